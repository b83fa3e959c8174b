"""`embermq message dead-letters`."""

import json
from pathlib import Path

from tests.support.probed_cluster import ProbedCluster
from tests.unit.cli.network.conftest import Command


def bury(cluster: ProbedCluster, command: Command, group: str, count: int = 3) -> str:
    topic = f"{group}-topic"
    command(f"topic create {topic} --queues 1")
    for number in range(count):
        cluster.bury(group, cluster.send(topic, b"%d" % number, keys=f"k{number}", uniq_key=f"U-{group}-{number}"))
    cluster.dispatched(f"%DLQ%{group}", count)
    return topic


def test_list_all_by_key_by_time_and_one(cluster: ProbedCluster, command: Command) -> None:
    topic = bury(cluster, command, "dl-list")
    whole = command("message dead-letters list dl-list", as_json=True).json
    assert (whole["found"], [one["keys"] for one in whole["deadLetters"]]) == (3, ["k0", "k1", "k2"])
    first = whole["deadLetters"][0]
    assert (first["topic"], first["attempts"], first["brokerName"], first["group"]) == (topic, 1, "broker-a", "dl-list")
    assert command("message dead-letters list dl-list --key k1", as_json=True).json["found"] == 1
    one = command(f"message dead-letters list dl-list --id {first['msgId']}", as_json=True).json
    assert one["deadLetters"] == [first]
    assert command("message dead-letters list dl-list --end 2020-01-01", as_json=True).json["found"] == 0
    newest = command("message dead-letters list dl-list --limit 1", as_json=True).json
    assert (newest["found"], [one["keys"] for one in newest["deadLetters"]]) == (3, ["k2"])
    assert "k2" in command("message dead-letters list dl-list").out


def test_resend_says_what_became_of_each(cluster: ProbedCluster, command: Command) -> None:
    topic = bury(cluster, command, "dl-send", 2)
    planned = command("message dead-letters resend dl-send --dry-run", as_json=True).json
    assert (planned["counts"], {one["topic"] for one in planned["deadLetters"]}) == ({"planned": 2}, {topic})
    one = command("message dead-letters resend dl-send --key k0 --yes", as_json=True).json
    assert one["counts"] == {"sent": 1}
    assert one["deadLetters"][0]["newMsgId"] is not None
    cluster.dispatched(topic, 3)
    rest = command("message dead-letters resend dl-send --yes", as_json=True).json
    assert [(one["outcome"], one["topic"]) for one in rest["deadLetters"]] == [("skipped", topic), ("sent", topic)]
    cluster.dispatched(topic, 4)
    sent = command(f"message find --topic {topic} --key k1 --body text", as_json=True).json["messages"]
    assert [one["body"] for one in sent] == ["1", "1"]
    again = command("message dead-letters resend dl-send --again --to-group --yes")
    assert (again.code, "2 sent" in again.out) == (0, True)
    assert "Say --yes" in command("message dead-letters resend dl-send").mistake
    assert (
        "either --to-topic or --to-group"
        in command("message dead-letters resend dl-send --to-topic x --to-group").mistake
    )
    assert "know no broker" in command("message dead-letters resend dl-send --to-topic nowhere-else --yes").mistake


def test_one_that_cannot_be_sent_is_1_and_the_others_are_sent(cluster: ProbedCluster, command: Command) -> None:
    topic = bury(cluster, command, "dl-half", 1)
    cluster.send("%DLQ%dl-half", b"lost")
    cluster.dispatched("%DLQ%dl-half", 2)
    done = command("message dead-letters resend dl-half --yes", as_json=True)
    assert done.code == 1
    assert done.json["counts"] == {"failed": 1, "sent": 1}
    outcomes = {one["topic"]: one["outcome"] for one in done.json["deadLetters"]}
    assert outcomes == {topic: "sent", None: "failed"}


def test_export_writes_all_they_have(cluster: ProbedCluster, command: Command, tmp_path: Path) -> None:
    bury(cluster, command, "dl-file")
    file = tmp_path / "dead.jsonl"
    done = command("message dead-letters export dl-file --body text --to", str(file), as_json=True)
    assert done.json == {"file": str(file), "exported": 3}
    written = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(one["body"], one["topic"]) for one in written] == [(str(n), "%DLQ%dl-file") for n in range(3)]
    assert all("ORIGIN_MESSAGE_ID" in one["properties"] for one in written)
    assert "there is a file" in command("message dead-letters export dl-file --to", str(file)).mistake
