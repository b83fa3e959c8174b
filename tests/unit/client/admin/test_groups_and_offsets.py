"""Consumer groups and their offsets, asked of a broker over its socket."""

import pytest

from embermq.client.admin import EARLIEST, LATEST, Admin, GroupConfig, TopicConfig
from embermq.client.message_queue import MessageQueue
from embermq.errors import NameUnknown, RequestRefused
from tests.support.probed_cluster import ProbedCluster
from tests.support.waiting import wait_until


def fill(cluster: ProbedCluster, admin: Admin, topic: str, count: int = 4) -> None:
    admin.topics.put(TopicConfig(topic, 1, 1), admin.brokers.places())
    for number in range(count):
        cluster.send(topic, b"%d" % number)
    cluster.dispatched(topic, count)


def test_a_group_is_made_changed_shown_and_deleted(admin: Admin) -> None:
    places = admin.brokers.places()
    admin.groups.put(GroupConfig("g-life", retry_max_times=3), places)
    assert admin.groups.names()["g-life"] == ["broker-a"]
    assert admin.groups.require("g-life") == ["broker-a"]
    assert admin.groups.configs("g-life") == {"broker-a": GroupConfig("g-life", retry_max_times=3)}
    admin.groups.delete("g-life", places)
    assert "g-life" not in admin.groups.names()
    with pytest.raises(NameUnknown) as unknown:
        admin.groups.require("TOOLS_CONSUMR")
    assert unknown.value.nearest == ("TOOLS_CONSUMER",)


def test_deleting_a_group_takes_its_retry_and_dead_letter_topics_along(cluster: ProbedCluster, admin: Admin) -> None:
    fill(cluster, admin, "t-gone", 0)
    cluster.bury("g-gone", cluster.send("t-gone"))
    assert {"%RETRY%g-gone", "%DLQ%g-gone"} <= set(admin.topics.names())
    admin.groups.delete("g-gone", admin.brokers.places())
    assert not {"%RETRY%g-gone", "%DLQ%g-gone"} & set(admin.topics.names())


def test_progress_is_what_is_stored_less_what_is_consumed(cluster: ProbedCluster, admin: Admin) -> None:
    fill(cluster, admin, "t-progress")
    cluster.commit("g-progress", "t-progress", 0, 3)
    found = admin.groups.progress("g-progress")
    (queue,) = found.queues
    assert (queue.topic, queue.broker_name, queue.queue_id) == ("t-progress", "broker-a", 0)
    assert (queue.broker_offset, queue.consumer_offset, queue.lag, found.lag) == (4, 3, 1, 1)
    assert queue.last_timestamp is not None
    assert admin.topics.groups("t-progress") == ["g-progress"]
    (listed,) = admin.groups.summaries(["g-progress"])
    assert (listed.members, listed.lag, listed.consume_type) == (0, 1, None)


def test_members_and_what_they_say_of_themselves(cluster: ProbedCluster, admin: Admin) -> None:
    fill(cluster, admin, "t-members", 0)
    assert admin.groups.connections("g-members") is None
    member = cluster.join("g-members", "t-members", client_id="c-1", producer="p-members")
    found = admin.groups.connections("g-members")
    assert found is not None
    assert [(one.client_id, one.language, one.version) for one in found.members] == [("c-1", "PYTHON", "V4_9_8")]
    assert [(one.topic, one.expression, one.expression_type) for one in found.subscriptions] == [
        ("t-members", "*", "TAG")
    ]
    assert (found.consume_type, found.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    info = admin.groups.running_info("g-members", "c-1")
    assert (info.queues[0].commit_offset, info.queues[0].locked, info.queues[0].cached_msg_size_mib) == (7, True, 1)
    assert (info.topics[0].consume_ok_tps, info.topics[0].consume_failed_msgs) == (2.5, 1)
    assert info.properties["PROP_CLIENT_VERSION"] == "V4_9_7"
    with pytest.raises(RequestRefused, match="not online"):
        admin.groups.running_info("g-members", "c-2")
    producers = [one for one in admin.groups.producers() if one.group == "p-members"]
    assert [(one.client_id, one.broker_name) for one in producers] == [("c-1", "broker-a")]
    cluster.part(member)
    wait_until(lambda: admin.groups.connections("g-members") is None)


def test_offsets_of_a_group_that_is_not_online_are_set_at_the_broker(cluster: ProbedCluster, admin: Admin) -> None:
    fill(cluster, admin, "t-reset")
    cluster.commit("g-reset", "t-reset", 0, 2)
    planned = admin.offsets.reset("g-reset", "t-reset", LATEST, dry_run=True)
    assert [(one.before, one.after) for one in planned.queues] == [(2, 4)]
    assert admin.groups.progress("g-reset").lag == 2
    assert not admin.offsets.reset("g-reset", "t-reset", LATEST).is_online
    assert admin.groups.progress("g-reset").lag == 0
    assert admin.offsets.reset("g-reset", "t-reset", EARLIEST).queues[0].after == 0
    assert admin.groups.progress("g-reset").lag == 4
    kept = admin.offsets.reset("g-reset", "t-reset", LATEST, only_back=True)
    assert [(one.before, one.after) for one in kept.queues] == [(0, 0)]


def test_offsets_by_time(cluster: ProbedCluster, admin: Admin) -> None:
    fill(cluster, admin, "t-time")
    messages = admin.messages.page(MessageQueue("t-time", "broker-a", 0), 0).messages
    times = [one.message.store_timestamp for one in messages]
    third = next(at for at, moment in enumerate(times) if moment >= times[2])
    assert admin.offsets.reset("g-time", "t-time", times[2]).queues[0].after == third
    assert admin.offsets.reset("g-time", "t-time", times[-1] + 1).queues[0].after == 4
    assert admin.offsets.reset("g-time", "t-time", times[0] - 1).queues[0].after == 0


def test_offsets_of_a_group_that_is_online_are_set_through_its_members(cluster: ProbedCluster, admin: Admin) -> None:
    fill(cluster, admin, "t-online")
    cluster.commit("g-online", "t-online", 0, 3)
    member = cluster.join("g-online", "t-online", client_id="c-online")
    done = admin.offsets.reset("g-online", "t-online", EARLIEST)
    assert (done.is_online, [(one.before, one.after) for one in done.queues]) == (True, [(3, 0)])
    wait_until(lambda: len(member.resets) == 1)
    assert b'"t-online"' in member.resets[0]
    cluster.part(member)


def test_one_queue_is_set_to_an_offset(cluster: ProbedCluster, admin: Admin) -> None:
    fill(cluster, admin, "t-set")
    queue = MessageQueue("t-set", "broker-a", 0)
    assert admin.offsets.set("g-set", queue, 3).after == 3
    assert admin.groups.progress("g-set").queues[0].consumer_offset == 3
    with pytest.raises(NameUnknown):
        admin.offsets.set("g-set", queue._replace(queue_id=9), 3)


def test_offsets_are_copied_from_one_group_to_another(cluster: ProbedCluster, admin: Admin) -> None:
    for topic in ("t-clone-1", "t-clone-2"):
        fill(cluster, admin, topic)
        cluster.commit("g-old", topic, 0, 2)
    assert admin.offsets.clone("g-old", "g-one", "t-clone-1") == ["t-clone-1"]
    assert {one.topic for one in admin.groups.progress("g-one").queues} == {"t-clone-1"}
    assert admin.offsets.clone("g-old", "g-all") == ["t-clone-1", "t-clone-2"]
    assert [one.consumer_offset for one in admin.groups.progress("g-all").queues] == [2, 2]
