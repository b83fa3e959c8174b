"""`embermq topic`."""

import pytest

from tests.support.probed_cluster import ProbedCluster
from tests.unit.cli.network.conftest import Command


def test_a_topic_is_created_listed_changed_and_deleted(command: Command) -> None:
    created = command("topic create t-life --queues 2", as_json=True)
    assert created.code == 0
    assert created.json["topics"] == [
        {
            "brokerName": "broker-a",
            "topicName": "t-life",
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
    ]
    assert command("topic config t-life", as_json=True).json == created.json
    assert {"topic": "t-life", "kind": "normal"} in command("topic list", as_json=True).json["topics"]
    assert "t-life" in command("topic list").out
    changed = command("topic update t-life --queues 4 --perm r", as_json=True).json["topics"][0]
    assert (changed["readQueueNums"], changed["writeQueueNums"], changed["perm"]) == (4, 4, 4)
    assert "exists on broker-a" in command("topic create t-life").mistake
    assert command("topic delete t-life --yes", as_json=True).json == {"topic": "t-life", "deletedOn": ["broker-a"]}
    assert "t-life" not in command("topic list --all").out


def test_system_topics_are_listed_when_asked_for(command: Command) -> None:
    plain = command("topic list", as_json=True).json["topics"]
    everything = command("topic list --all", as_json=True).json["topics"]
    assert "TBW102" not in {one["topic"] for one in plain}
    assert {"topic": "TBW102", "kind": "system"} in everything
    detailed = command("topic list --all --details", as_json=True).json["topics"]
    assert {one["topic"]: one["clusters"] for one in detailed}["TBW102"] == ["DefaultCluster"]


def test_route_status_clusters_and_groups(cluster: ProbedCluster, command: Command) -> None:
    command("topic create t-seen --queues 2")
    cluster.send("t-seen", queue_id=1)
    cluster.dispatched("t-seen", 1, 1)
    cluster.commit("g-seen", "t-seen", 1, 1)
    assert command("topic route t-seen", as_json=True).json == {
        "topic": "t-seen",
        "brokers": [
            {
                "brokerName": "broker-a",
                "cluster": "DefaultCluster",
                "brokerAddrs": {"0": cluster.address},
                "readQueueNums": 2,
                "writeQueueNums": 2,
                "perm": 6,
            }
        ],
    }
    status = command("topic status t-seen", as_json=True).json
    assert [(one["queueId"], one["minOffset"], one["maxOffset"]) for one in status["queues"]] == [(0, 0, 0), (1, 0, 1)]
    assert status["messages"] == 1
    assert command("topic clusters t-seen", as_json=True).json == {"clusters": [{"cluster": "DefaultCluster"}]}
    assert command("topic groups t-seen", as_json=True).json == {"groups": [{"group": "g-seen"}]}
    shown = command("topic status t-seen").out
    assert shown.splitlines()[0].split() == ["broker", "queue", "first", "offset", "end", "offset", "last", "message"]
    assert "RW-" in command("topic route t-seen").out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("topic status t-nearl", "know no broker for it; did you mean t-nearly?"),
        ("topic delete nothing-like-it --yes", "know no broker for it"),
        ("topic create bad.name", "illegal characters"),
        ("topic create t-new --cluster DefaultClustr", "did you mean DefaultCluster?"),
        ("topic create t-new --broker broker-b", "did you mean broker-a?"),
        ("topic create t-new --broker broker-a --cluster c", "either a cluster or a broker"),
        ("topic create t-new --queues 0", "--queues"),
        ("topic create t-new --perm x", "'x' is not one of 'r', 'w', 'rw'. See embermq topic create --help."),
        ("topic update t-nearly", "nothing to change"),
        ("topic updat t-nearly", "no such command: embermq topic updat; did you mean update?"),
        ("topic xyz", "there are clusters, config, create"),
        ("topic list --detail-s", "--details"),
        ("topic route", "Missing argument 'TOPIC'"),
        ("topic delete t-nearly", "Say --yes"),
        ("topic list --access-key me", "give both"),
    ],
)
def test_a_mistake_is_one_line_and_2(line: str, said: str, command: Command) -> None:
    command("topic create t-nearly")
    assert said in command(line).mistake


def test_what_the_broker_refuses_is_1(command: Command) -> None:
    refused = command("topic create TBW103")
    assert refused.code == 0
    refused = command("topic update TBW102 --queues 3")
    assert (refused.code, refused.out) == (1, "")
    assert "UPDATE_AND_CREATE_TOPIC (topic 'TBW102'): broker broker-a" in refused.err


def test_rates_by_topic_and_group(cluster: ProbedCluster, command: Command) -> None:
    command("topic create t-rates --queues 2")
    alone = command("topic rates t-rates", as_json=True).json["topics"]
    assert [(one["topic"], one["group"], one["accumulation"], one["inMsg24Hour"]) for one in alone] == [
        ("t-rates", None, None, 0)
    ]
    cluster.send("t-rates", queue_id=1)
    cluster.send("t-rates", queue_id=1)
    cluster.dispatched("t-rates", 2, 1)
    cluster.commit("g-rates", "t-rates", 1, 1)
    (one,) = command("topic rates t-rates", as_json=True).json["topics"]
    assert (one["group"], one["accumulation"], one["outTps"], one["outMsg24Hour"]) == ("g-rates", 1, 0.0, 0)
    assert 0 <= one["inTps"] <= 2
    assert 0 <= one["inMsg24Hour"] <= 2  # What the windows of a broker have counted so far.
    assert "g-rates" in command("topic rates").out
    assert "did you mean t-rates?" in command("topic rates t-rate").mistake
