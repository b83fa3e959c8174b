"""`embermq message`: found, shown, consumed, followed, traced."""

import io
import json

import pytest

from tests.support.probed_cluster import ProbedCluster
from tests.support.waiting import wait_until
from tests.unit.cli.network.conftest import Command
from tests.unit.client.admin.test_trace_records import AFTER, BEFORE, PUB

# The JSON form of a message, which `embermq store` writes too, after the broker's name.
MESSAGE_KEYS = (
    "brokerName topic queueId queueOffset physicalOffset msgId uniqKey tags keys body properties flag sysFlag"
    " bornTimestamp bornHost storeTimestamp storeHost reconsumeTimes preparedTransactionOffset bodyCrc size"
)


@pytest.fixture
def orders(cluster: ProbedCluster, command: Command, request: pytest.FixtureRequest) -> str:
    """A topic of two queues with three messages."""
    topic = f"o-{abs(hash(request.node.name))}"
    command(f"topic create {topic} --queues 2")
    for number in range(3):
        tag = "even" if number % 2 == 0 else "odd"
        key, unique = f"k{number}", f"U{topic}{number}"
        cluster.send(topic, b"body %d" % number, queue_id=number % 2, keys=key, tags=tag, uniq_key=unique)
    cluster.dispatched(topic, 2, 0)
    cluster.dispatched(topic, 1, 1)
    return topic


def test_find_by_key_and_unique_id_and_get_by_id_and_place(orders: str, command: Command) -> None:
    (found,) = command(f"message find --topic {orders} --key k1 --body text", as_json=True).json["messages"]
    assert list(found) == MESSAGE_KEYS.split()
    assert (found["brokerName"], found["body"], found["keys"], found["tags"]) == ("broker-a", "body 1", "k1", "odd")
    unique = command(f"message find --topic {orders} --unique-id U{orders}1 --body text", as_json=True).json
    assert unique["messages"] == [found]
    assert command(f"message get {found['msgId']} --body text", as_json=True).json == {"message": found}
    by_place = command(f"message get --topic {orders} --queue broker-a:1 --offset 0 --body text", as_json=True).json
    assert by_place == {"message": found}
    assert "body 1" in command(f"message find --topic {orders} --key k1").out
    assert "broker" in command(f"message get {found['msgId']}").out


def test_what_is_not_there_is_1(orders: str, command: Command) -> None:
    missing = command(f"message find --topic {orders} --key k9", as_json=True)
    assert (missing.code, missing.json) == (1, {"messages": []})
    early = command(f"message find --topic {orders} --key k1 --end 2020-01-01", as_json=True)
    assert (early.code, early.json) == (1, {"messages": []})
    place = command(f"message get --topic {orders} --queue broker-a:1 --offset 77")
    assert (place.code, place.out) == (1, "")
    assert "no such message" in place.err


def test_consume_reads_to_the_end_and_changes_no_group(orders: str, command: Command) -> None:
    whole = command(f"message consume {orders} --body text", as_json=True).json["messages"]
    assert [one["body"] for one in whole] == ["body 0", "body 2", "body 1"]
    assert [list(one) for one in whole] == [MESSAGE_KEYS.split()] * 3
    tagged = command(f"message consume {orders} --tags even --body text", as_json=True).json["messages"]
    assert [one["body"] for one in tagged] == ["body 0", "body 2"]
    placed = command(f"message consume {orders} --queue broker-a:0 --offset 1", as_json=True).json["messages"]
    assert [one["queueOffset"] for one in placed] == [1]
    assert len(command(f"message consume {orders} --limit 1", as_json=True).json["messages"]) == 1
    assert command(f"message consume {orders} --from latest", as_json=True).json == {"messages": []}
    later = command(f"message consume {orders} --from 2020-01-01", as_json=True).json
    assert len(later["messages"]) == 3
    assert command(f"topic groups {orders}", as_json=True).json == {"groups": []}


def test_consume_by_a_condition(cluster: ProbedCluster, command: Command) -> None:
    command("topic create o-sql --queues 1")
    for number in range(4):
        cluster.send("o-sql", b"%d" % number, amount=str(number))
    cluster.dispatched("o-sql", 4)
    chosen = command("message consume o-sql --body text --sql", "AMOUNT > 1", as_json=True).json["messages"]
    assert [one["body"] for one in chosen] == ["2", "3"]
    assert "broker-a" in command("message consume o-sql --sql", "AMOUNT >").mistake


def test_consume_for_a_group_goes_on_where_it_was(orders: str, command: Command) -> None:
    line = f"message consume {orders} --group g-{orders} --body text"
    first = command(f"{line} --limit 1", as_json=True).json["messages"]
    rest = command(line, as_json=True).json["messages"]
    assert [one["body"] for one in first + rest] == ["body 0", "body 2", "body 1"]
    assert command(line, as_json=True).json == {"messages": []}
    assert command(f"group progress g-{orders}", as_json=True).json["lag"] == 0


def test_tail_shows_messages_as_they_come(cluster: ProbedCluster, orders: str, command: Command) -> None:
    followed = command(f"message tail {orders} --from earliest --limit 3 --body text", as_json=True)
    documents = [json.loads(line) for line in followed.out.splitlines()]
    assert sorted(one["body"] for one in documents) == ["body 0", "body 1", "body 2"]
    assert list(documents[0]) == MESSAGE_KEYS.split()
    text = command(f"message tail {orders} --from earliest --limit 2 --queue broker-a:0 --tags even")
    lines = text.out.splitlines()
    assert lines[0] == f"following 1 queues of {orders}"
    assert [line.split("  ")[1:] for line in lines[1:]] == [
        ["broker-a:0@0", "even k0", "body 0"],
        ["broker-a:0@1", "even k2", "body 2"],
    ]


def test_trace(cluster: ProbedCluster, command: Command) -> None:
    command("topic create my-traces --queues 1")
    cluster.send("my-traces", (PUB + BEFORE + AFTER).encode(), keys="U1 o-1")
    cluster.dispatched("my-traces", 1)
    steps = command("message trace U1 --trace-topic my-traces", as_json=True).json["steps"]
    assert [(one["what"], one["group"], one["status"], one["costMs"]) for one in steps] == [
        ("send", "shop", "success", 3),
        ("consume", "billing", "success", 45),
    ]
    by_key = command("message trace --key o-1 --trace-topic my-traces", as_json=True).json["steps"]
    assert by_key == steps
    assert "billing" in command("message trace U1 --trace-topic my-traces").out
    missing = command("message trace U2 --trace-topic my-traces", as_json=True)
    assert (missing.code, missing.json) == (1, {"steps": []})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("message find --topic ordrs-near --key k", "did you mean orders-near?"),
        ("message find --topic orders-near", "either --key K or --unique-id ID"),
        ("message find --key k", "Missing argument 'TOPIC'"),
        ("message find --topic orders-near --key k --begin 2024-01-02 --end 2024-01-01", "is later than"),
        ("message get", "say which message"),
        ("message get U1", "not a message id"),
        ("message get 01020304000000050000000000000000", "1.2.3.4:5"),
        ("message get U1 --topic orders-near", "either an id, or"),
        ("message get --topic orders-near --queue broker-b:0 --offset 1", "did you mean broker-a?"),
        ("message consume orders-near --offset 1", "give --queue BROKER:ID too"),
        ("message consume orders-near --queue broker-a:7", "topic 'orders-near' has broker-a:0"),
        ("message consume orders-near --tags a --sql b=1", "either --tags or --sql"),
        ("message tail ordrs-near", "did you mean orders-near?"),
        ("message lag g-unknown-group", "is not known"),
        ("message trace", "either its id or --key K"),
        ("message trace U1 --trace-topic no-traces-here", "know no broker for it"),
        ("message fnd --topic t", "did you mean find?"),
        ("message dead-letters list g-without", "no broker has dead letters of it"),
        ("message dead-letters lst g", "did you mean list?"),
    ],
)
def test_a_mistake_is_one_line_and_2(line: str, said: str, command: Command) -> None:
    command("topic create orders-near --queues 1")
    assert said in command(line).mistake


# -- sent ------------------------------------------------------------------------------------------------------------


def test_send_says_where_the_message_is(cluster: ProbedCluster, command: Command) -> None:
    command("topic create s-topic --queues 2")
    sent = command("message send s-topic hello --tags t --key k1 --key k2 --property a=1", as_json=True)
    assert sent.code == 0
    (one,) = sent.json["sent"]
    assert (one["status"], one["topic"], one["brokerName"]) == ("SEND_OK", "s-topic", "broker-a")
    cluster.dispatched("s-topic", 1, one["queueId"])
    stored = command(f"message get {one['msgId']} --body text", as_json=True).json["message"]
    assert (stored["body"], stored["tags"], stored["keys"], stored["uniqKey"]) == (
        "hello",
        "t",
        "k1 k2",
        one["uniqKey"],
    )
    assert (stored["properties"]["a"], stored["queueOffset"]) == ("1", one["queueOffset"])
    placed = command("message send s-topic there --queue broker-a:1", as_json=True).json["sent"]
    assert [one["queueId"] for one in placed] == [1]
    assert "SEND_OK" in command("message send s-topic again").out


def test_send_takes_lines(cluster: ProbedCluster, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    command("topic create s-lines --queues 1")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"".join(b"%d\n" % n for n in range(50)))))
    sent = command("message send s-lines --lines", as_json=True).json["sent"]
    assert len(sent) == 50
    cluster.dispatched("s-lines", 50)
    read = command("message consume s-lines --body text", as_json=True).json["messages"]
    assert sorted(int(one["body"]) for one in read) == list(range(50))


@pytest.mark.slow(seconds=2)
def test_a_traced_send_is_found_again(cluster: ProbedCluster, command: Command) -> None:
    command("topic create s-traced --queues 1")
    (sent,) = command("message send s-traced hello --key o-99 --trace --group shop", as_json=True).json["sent"]

    def steps() -> list[dict[str, object]]:
        ran = command(f"message trace {sent['uniqKey']}", as_json=True)
        found: list[dict[str, object]] = ran.json["steps"] if ran.code == 0 else []
        return found

    wait_until(lambda: bool(steps()))
    (step,) = steps()
    assert (step["what"], step["group"], step["topic"], step["status"]) == ("send", "shop", "s-traced", "success")
    assert (step["keys"], step["offsetMsgId"]) == ("o-99", sent["msgId"])
    assert command("message trace --key o-99", as_json=True).json["steps"] == [step]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("message send s-topic body --lines", "either BODY or --lines"),
        ("message send s-topic body --property a", "NAME=VALUE is expected"),
        ("message send s-topic body --queue 1", "BROKER:ID"),
        ("message send bad.topic body", "bad.topic"),
        ("message send s-topic body --delay-level 19", "--delay-level"),
    ],
)
def test_a_mistake_in_sending_is_one_line_and_2(line: str, said: str, command: Command) -> None:
    assert said in command(line).mistake


def test_entries_of_a_queue(orders: str, cluster: ProbedCluster, command: Command) -> None:
    by_place = command(f"message get --topic {orders} --queue broker-a:1 --offset 0", as_json=True).json["message"]
    found = command(f"message entries {orders} --queue broker-a:1 --limit 1", as_json=True).json["entries"]
    assert [(one["queueOffset"], one["physicOffset"], one["physicSize"]) for one in found] == [
        (0, by_place["physicalOffset"], by_place["size"])
    ]
    assert found[0]["matches"] is None
    assert f"{by_place['physicalOffset']:,}" in command(f"message entries {orders} --queue broker-a:1").out
    cluster.join("entry-readers", orders)
    (seen,) = command(
        f"message entries {orders} --queue broker-a:1 --group entry-readers --limit 1", as_json=True
    ).json["entries"]
    assert seen["matches"] is True
    missing = command(f"message entries {orders} --queue broker-a:1 --offset 999", as_json=True)
    assert (missing.code, missing.json) == (1, {"entries": []})
    assert "BROKER:ID" in command(f"message entries {orders} --queue 1").mistake
