"""`embermq group`."""

import pytest

from embermq.client.admin import Admin
from embermq.client.admin.asking import Asking
from embermq.client.calls import BrokerAddress
from embermq.errors import BrokerUnreachable
from tests.support.probed_cluster import ProbedCluster
from tests.unit.cli.network.conftest import Command


def fill(cluster: ProbedCluster, command: Command, topic: str, group: str, consumed: int = 1) -> None:
    command(f"topic create {topic} --queues 1")
    for _ in range(3):
        cluster.send(topic)
    cluster.dispatched(topic, 3)
    cluster.commit(group, topic, 0, consumed)


def test_a_group_is_created_listed_changed_and_deleted(command: Command) -> None:
    created = command("group create g-life --retries 3", as_json=True)
    assert created.json["groups"] == [
        {
            "brokerName": "broker-a",
            "groupName": "g-life",
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "consumeBroadcastEnable": True,
            "retryQueueNums": 1,
            "retryMaxTimes": 3,
            "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1,
            "notifyConsumerIdsChangedEnable": True,
        }
    ]
    assert command("group config g-life", as_json=True).json == created.json
    listed = {one["group"]: one for one in command("group list", as_json=True).json["groups"]}
    assert listed["g-life"]["members"] == listed["g-life"]["lag"] == 0
    assert "TOOLS_CONSUMER" not in listed
    assert "TOOLS_CONSUMER" in command("group list --all").out
    changed = command("group update g-life --disable --no-broadcast", as_json=True).json["groups"][0]
    assert (changed["consumeEnable"], changed["consumeBroadcastEnable"], changed["retryMaxTimes"]) == (False, False, 3)
    assert "exists on broker-a" in command("group create g-life").mistake
    assert command("group delete g-life -y", as_json=True).json == {"group": "g-life", "deletedOn": ["broker-a"]}
    assert "g-life" not in command("group list").out


def test_progress_and_lag(cluster: ProbedCluster, command: Command) -> None:
    fill(cluster, command, "g-progress-topic", "g-progress")
    whole = command("group progress g-progress", as_json=True).json
    (queue,) = whole["queues"]
    last = queue.pop("lastTimestamp")
    assert last > 0
    assert queue == {
        "topic": "g-progress-topic",
        "brokerName": "broker-a",
        "queueId": 0,
        "brokerOffset": 3,
        "consumerOffset": 1,
        "lag": 2,
    }
    assert (whole["group"], whole["lag"], whole["consumeTps"]) == ("g-progress", 2, 0.0)
    assert "lag 2 messages" in command("group progress g-progress --topic g-progress-topic").out
    lag = command("message lag g-progress", as_json=True).json
    assert (lag["lag"], lag["topics"][0]["topic"], lag["topics"][0]["lag"]) == (2, "g-progress-topic", 2)
    watched = command("message lag g-progress --watch --every 0.1 --times 2")
    assert watched.code == 0
    assert [line.split("  ")[1] for line in watched.out.splitlines()] == ["lag 2", "lag 2"]


def test_a_broker_that_is_down_is_named_and_the_others_are_shown(
    cluster: ProbedCluster, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(cluster, command, "g-down-topic", "g-down")
    gone = BrokerAddress("broker-gone", "127.0.0.1:1")
    places, topic_places = Asking.places, Asking.topic_places

    async def with_gone(asking: Asking, cluster: str = "") -> list[BrokerAddress]:
        return [gone, *await places(asking, cluster)]

    async def topic_with_gone(asking: Asking, topic: str, cluster: str = "") -> list[BrokerAddress]:
        return [*await topic_places(asking, topic, cluster), gone]

    monkeypatch.setattr(Asking, "places", with_gone)
    monkeypatch.setattr(Asking, "topic_places", topic_with_gone)
    for line, lists in (("group progress g-down", ("g-down-topic",)), ("topic status g-down-topic", ("broker-a",))):
        ran = command(line)
        assert ran.code == 1
        assert all(text in ran.out for text in (*lists, "broker broker-gone (127.0.0.1:1) is not among these"))
        found = command(line, as_json=True).json
        assert [queue["brokerName"] for queue in found["queues"]] == ["broker-a"]
        (silent,) = found["unreachable"]
        assert (silent["brokerName"], silent["address"]) == ("broker-gone", "127.0.0.1:1")
    with Admin(cluster.name_server) as admin:
        with pytest.raises(BrokerUnreachable, match="broker-gone"):
            admin.groups.progress("g-down")
        with pytest.raises(BrokerUnreachable, match="broker-gone"):
            admin.topics.status("g-down-topic")


def test_a_cluster_of_which_no_broker_answers_is_an_error(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    async def only_gone(asking: Asking, *names: str) -> list[BrokerAddress]:
        return [BrokerAddress("broker-gone", "127.0.0.1:1")]

    monkeypatch.setattr(Asking, "places", only_gone)
    ran = command("group progress g-any")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "broker-gone" in ran.err


def test_members_of_a_group(cluster: ProbedCluster, command: Command) -> None:
    command("topic create g-members-topic")
    command("group create g-members")
    offline = command("group connections g-members", as_json=True)
    assert (offline.code, offline.json) == (1, {"group": "g-members", "online": False})
    assert command("group status g-members").code == 1
    member = cluster.join("g-members", "g-members-topic", client_id="c-1", producer="p-1")
    online = command("group connections g-members", as_json=True).json
    assert (online["online"], online["messageModel"]) == (True, "CLUSTERING")
    assert [(one["clientId"], one["version"]) for one in online["members"]] == [("c-1", "V4_9_8")]
    assert online["subscriptions"] == [{"topic": "g-members-topic", "expression": "*", "expressionType": "TAG"}]
    assert "c-1" in command("group connections g-members").out
    status = command("group status g-members --client c-1", as_json=True).json["members"][0]
    assert (status["clientId"], status["queues"][0]["commitOffset"]) == ("c-1", 7)
    assert "consumed/s" in command("group status g-members").out
    assert "its members: c-1" in command("group status g-members --client c-2").mistake
    producers = command("group producers p-1", as_json=True).json["producers"]
    assert [(one["clientId"], one["brokerName"]) for one in producers] == [("c-1", "broker-a")]
    assert command("group producers p-2").code == 1
    cluster.part(member)


def test_offsets_are_reset_and_copied(cluster: ProbedCluster, command: Command) -> None:
    fill(cluster, command, "g-reset-topic", "g-reset")
    command("group create g-reset")
    line = "group reset-offsets g-reset --topic g-reset-topic"
    planned = command(f"{line} --to latest --dry-run", as_json=True).json
    expected = {"topic": "g-reset-topic", "brokerName": "broker-a", "queueId": 0, "before": 1, "after": 3}
    assert planned == {"queues": [expected], "group": "g-reset", "online": False, "dryRun": True}
    assert command(f"{line} --to latest --yes", as_json=True).json["queues"] == [expected]
    assert command("group progress g-reset", as_json=True).json["lag"] == 0
    back = command(f"{line} --to 2020-01-01 --yes", as_json=True).json["queues"]
    assert [(one["before"], one["after"]) for one in back] == [(3, 0)]
    kept = command(f"{line} --to latest --only-back --yes", as_json=True).json["queues"]
    assert [(one["before"], one["after"]) for one in kept] == [(0, 0)]
    one = command(f"{line} --queue broker-a:0 --offset 2 --yes", as_json=True).json["queues"]
    assert [(queue["before"], queue["after"]) for queue in one] == [(0, 2)]
    copied = command("group clone-offsets g-reset g-copy", as_json=True).json
    assert copied == {"from": "g-reset", "to": "g-copy", "topics": [{"topic": "g-reset-topic"}]}
    assert command("group progress g-copy", as_json=True).json["lag"] == 1


def test_members_that_are_online_are_told(cluster: ProbedCluster, command: Command) -> None:
    fill(cluster, command, "g-told-topic", "g-told")
    member = cluster.join("g-told", "g-told-topic", client_id="c-told")
    done = command("group reset-offsets g-told --topic g-told-topic --to earliest --yes")
    assert done.code == 0
    assert "members were notified" in done.out
    cluster.part(member)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("group progress g-neerly", "group 'g-neerly' is not known; did you mean g-nearly?"),
        ("group connections g-neerly", "did you mean g-nearly?"),
        ("group delete g-neerly --yes", "did you mean g-nearly?"),
        ("group update g-nearly", "nothing to change"),
        ("group update g-neerly --retries 1", "did you mean g-nearly?"),
        ("group progress g-nearly --topic no-such", "know no broker for it"),
        ("group reset-offsets g-nearly --topic g-reset-topic", "--to TIME, or --queue"),
        ("group reset-offsets g-nearly --topic g-near-topic --to yesterday --yes", "'yesterday' is no time"),
        ("group reset-offsets g-nearly --topic g-near-topic --to 1700000000 --yes", "looks like seconds"),
        ("group reset-offsets g-nearly --topic g-near-topic --queue 7 --offset 1 --yes", "BROKER:ID"),
        ("group reset-offsets g-nearly --topic g-near-topic --queue broker-a:9 --offset 1 --yes", "is not known"),
        ("group reset-offsets g-nearly --topic g-near-topic --to latest", "Say --yes"),
        ("group reset-offsets g-nearly", "Missing argument 'TOPIC'"),
        ("group clone-offsets g-neerly g-copy", "did you mean g-nearly?"),
        ("group progrss g-nearly", "did you mean progress?"),
    ],
)
def test_a_mistake_is_one_line_and_2(line: str, said: str, command: Command) -> None:
    command("group create g-nearly")
    command("topic create g-near-topic --queues 1")
    assert said in command(line).mistake
