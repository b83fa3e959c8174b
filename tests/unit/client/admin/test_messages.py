"""Messages, traces and dead letters, asked of a broker over its socket."""

import pytest

from embermq.client.admin import Admin, Chosen, TopicConfig, WantedMessages, letter_of
from embermq.client.message_queue import MessageQueue
from embermq.errors import MessageIdInvalid, NameUnknown, RouteMissing, SubscriptionRefused
from embermq.model.message import StoredMessage
from tests.support.probed_cluster import ProbedCluster
from tests.support.waiting import wait_until
from tests.unit.client.admin.test_trace_records import AFTER, BEFORE, PUB


def topic(admin: Admin, name: str, queues: int = 1) -> MessageQueue:
    admin.topics.put(TopicConfig(name, queues, queues), admin.brokers.places())
    return MessageQueue(name, "broker-a", 0)


def test_messages_are_found_by_key_by_unique_id_and_by_id(cluster: ProbedCluster, admin: Admin) -> None:
    topic(admin, "m-find")
    first = cluster.send("m-find", b"one", keys="k1 k2", uniq_key="U1", tags="a")
    cluster.send("m-find", b"two", keys="k2", uniq_key="U2")
    cluster.dispatched("m-find", 2)
    assert [one.message.payload for one in admin.messages.by_key("m-find", "k2")] == [b"one", b"two"]
    assert [one.message.message_id for one in admin.messages.by_unique_id("m-find", "U1")] == [first]
    assert admin.messages.by_key("m-find", "k2", end_ms=1) == []
    found = admin.messages.by_id(first)
    assert found is not None
    assert (found.broker, found.message.payload, found.message.keys) == ("broker-a", b"one", ["k1", "k2"])
    assert found.queue == MessageQueue("m-find", "broker-a", 0)
    assert admin.messages.by_key("m-find", "k3") == []


def test_ids_that_lead_nowhere(cluster: ProbedCluster, admin: Admin) -> None:
    first = cluster.send("m-ids")
    assert admin.messages.by_id(first[:16] + f"{1 << 40:016X}") is None
    with pytest.raises(MessageIdInvalid):
        admin.messages.by_id("U1")
    with pytest.raises(NameUnknown, match="unique id"):
        admin.messages.by_id("01020304000000050000000000000000")
    with pytest.raises(RouteMissing):
        admin.messages.by_key("m-idz-elsewhere", "k")


def test_a_queue_is_read_page_by_page(cluster: ProbedCluster, admin: Admin) -> None:
    queue = topic(admin, "m-pages")
    for number in range(5):
        cluster.send("m-pages", b"%d" % number, tags="even" if number % 2 == 0 else "odd")
    cluster.dispatched("m-pages", 5)
    page = admin.messages.page(queue, 0, count=2)
    assert ([one.message.payload for one in page.messages], page.next_offset) == ([b"0", b"1"], 2)
    assert (page.min_offset, page.max_offset, page.is_end) == (0, 5, False)
    evens = admin.messages.page(queue, 0, wanted=WantedMessages("even"))
    assert [one.message.payload for one in evens.messages] == [b"0", b"2", b"4"]
    assert admin.messages.page(queue, 5).is_end
    assert admin.messages.span(queue) == (0, 5)
    beyond = admin.messages.page(queue, 99)
    assert (beyond.messages, beyond.next_offset) == ([], 5)
    with pytest.raises(SubscriptionRefused):
        admin.messages.page(queue, 0, wanted=WantedMessages("||"))


def test_offsets_by_time_are_exact_where_brokers_answer_the_nearest(cluster: ProbedCluster, admin: Admin) -> None:
    queue = topic(admin, "m-times")
    assert admin.messages.offset_at(queue, 1) == 0
    cluster.send("m-times")
    cluster.dispatched("m-times", 1)
    stored = admin.messages.page(queue, 0).messages[0].message.store_timestamp
    assert [admin.messages.offset_at(queue, stored + more) for more in (-1, 0, 1, 10**6)] == [0, 0, 1, 1]


def test_queues_are_followed(cluster: ProbedCluster, admin: Admin) -> None:
    topic(admin, "m-tail", 2)
    positions = [(queue, admin.messages.span(queue)[1]) for queue in admin.messages.queues("m-tail")]
    bodies: list[bytes] = []
    with admin.messages.tail(positions) as tail:
        assert tail.next(0.01) == []
        for number in range(4):
            cluster.send("m-tail", b"%d" % number, queue_id=number % 2)

        def came() -> bool:
            bodies.extend(one.message.payload for one in tail.next(1.0))
            return len(bodies) == 4

        wait_until(came)
    assert sorted(bodies) == [b"0", b"1", b"2", b"3"]


# -- traces ----------------------------------------------------------------------------------------------------------


def test_traces_are_found_by_message_id_and_by_key(cluster: ProbedCluster, admin: Admin) -> None:
    admin.topics.put(TopicConfig("traces", 1, 1), admin.brokers.places())
    other = PUB.replace("\x01U1\x01", "\x01U9\x01").replace("o-1 o-2", "o-9")
    cluster.send("traces", (PUB + other).encode(), keys="U1 o-1 o-2 U9 o-9")
    cluster.send("traces", (BEFORE + AFTER).encode(), keys="U1 o-1")
    cluster.dispatched("traces", 2)
    steps = admin.traces.of_message("U1", topic="traces")
    assert [(step.what, step.group, step.status) for step in steps] == [
        ("send", "shop", "success"),
        ("consume", "billing", "success"),
    ]
    assert {step.client_host for step in steps} == {"127.0.0.1"}
    assert [step.msg_id for step in admin.traces.of_key("o-9", topic="traces")] == ["U9"]
    assert admin.traces.of_message("U2", topic="traces") == []


# -- dead letters ----------------------------------------------------------------------------------------------------


def buried(cluster: ProbedCluster, admin: Admin, group: str, name: str, count: int = 3) -> None:
    """Dead letters of a group, that were messages `0`, `1` and so on of a topic."""
    topic(admin, name)
    for number in range(count):
        message_id = cluster.send(name, b"%d" % number, keys=f"k{number}", uniq_key=f"U-{name}-{number}", tags="t")
        cluster.bury(group, message_id)
    cluster.dispatched(f"%DLQ%{group}", count)


def last(admin: Admin, name: str, offset: int) -> StoredMessage:
    (found,) = admin.messages.page(MessageQueue(name, "broker-a", 0), offset).messages
    return found.message


def test_dead_letters_are_listed_all_by_time_by_key_and_singly(cluster: ProbedCluster, admin: Admin) -> None:
    buried(cluster, admin, "d-list", "d-list-topic")
    found = admin.dead_letters.found("d-list")
    assert [one.message.payload for one in found] == [b"0", b"1", b"2"]
    letter = letter_of("d-list", found[0])
    assert (letter.topic, letter.keys, letter.tags, letter.attempts) == ("d-list-topic", "k0", "t", 1)
    assert letter.origin_msg_id != letter.msg_id
    assert len(admin.dead_letters.found("d-list", Chosen(key="k1"))) == 1
    assert len(admin.dead_letters.found("d-list", Chosen(msg_ids=[letter.msg_id]))) == 1
    assert len(admin.dead_letters.found("d-list", Chosen(msg_ids=["U-d-list-topic-2"]))) == 1
    stored = found[-1].message.store_timestamp
    assert len(admin.dead_letters.found("d-list", Chosen(begin_ms=stored + 1))) == 0
    assert len(admin.dead_letters.found("d-list", Chosen(end_ms=stored + 1))) == 3
    with pytest.raises(NameUnknown, match="no broker has dead letters"):
        admin.dead_letters.found("d-nobody")
    with pytest.raises(NameUnknown, match="not among the dead letters"):
        admin.dead_letters.found("d-list", Chosen(msg_ids=[letter.origin_msg_id]))


def test_a_dead_letter_is_sent_to_the_topic_it_came_from_once(cluster: ProbedCluster, admin: Admin) -> None:
    buried(cluster, admin, "d-send", "d-send-topic", 1)
    (found,) = admin.dead_letters.found("d-send")
    done = admin.dead_letters.resend("d-send", found)
    assert (done.outcome, done.topic, done.msg_id) == ("sent", "d-send-topic", found.message.message_id)
    cluster.dispatched("d-send-topic", 2)
    again = last(admin, "d-send-topic", 1)
    assert (again.message_id, again.payload, again.reconsume_times) == (done.new_msg_id, b"0", 0)
    assert {name: again.properties.get(name) for name in ("KEYS", "TAGS", "UNIQ_KEY", "RESENT_FROM")} == {
        "KEYS": "k0",
        "TAGS": "t",
        "UNIQ_KEY": "U-d-send-topic-0",
        "RESENT_FROM": found.message.message_id,
    }
    assert not {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DELAY", "REAL_TOPIC"} & again.properties.keys()
    assert admin.dead_letters.resend("d-send", found).outcome == "skipped"
    assert admin.dead_letters.resend("d-send", found, again=True).outcome == "sent"


def test_a_dead_letter_may_go_to_its_group_alone_or_elsewhere(cluster: ProbedCluster, admin: Admin) -> None:
    buried(cluster, admin, "d-group", "d-group-topic", 1)
    topic(admin, "d-elsewhere")
    (found,) = admin.dead_letters.found("d-group")
    done = admin.dead_letters.resend("d-group", found, to_topic="%RETRY%d-group")
    assert (done.outcome, done.topic) == ("sent", "%RETRY%d-group")
    cluster.dispatched("%RETRY%d-group", 1)
    retried = last(admin, "%RETRY%d-group", 0)
    assert (retried.properties["RETRY_TOPIC"], retried.reconsume_times) == ("d-group-topic", 0)
    assert admin.dead_letters.resend("d-group", found, to_topic="d-elsewhere").outcome == "sent"
    failed = admin.dead_letters.resend("d-group", found, to_topic="d-nowhere-at-all")
    assert (failed.outcome, failed.new_msg_id) == ("failed", None)
    assert "d-nowhere-at-all" in (failed.reason or "")


def test_a_dead_letter_without_origin_is_not_sent(cluster: ProbedCluster, admin: Admin) -> None:
    topic(admin, "%DLQ%d-lost")
    cluster.send("%DLQ%d-lost", b"x")
    cluster.dispatched("%DLQ%d-lost", 1)
    (found,) = admin.dead_letters.found("d-lost")
    done = admin.dead_letters.resend("d-lost", found)
    assert (done.outcome, done.reason) == ("failed", "it does not say which topic it came from")


def test_many_dead_letters_are_read_page_by_page(cluster: ProbedCluster, admin: Admin) -> None:
    topic(admin, "%DLQ%d-many")
    for number in range(70):
        cluster.send("%DLQ%d-many", b"%d" % number)
    cluster.dispatched("%DLQ%d-many", 70)
    assert [int(one.message.payload) for one in admin.dead_letters.scan("d-many")] == list(range(70))
    stored = [one.message.store_timestamp for one in admin.dead_letters.found("d-many")]
    assert stored == sorted(stored)
    middle = stored[35]
    later = list(admin.dead_letters.scan("d-many", Chosen(begin_ms=middle)))
    earlier = list(admin.dead_letters.scan("d-many", Chosen(end_ms=middle)))
    assert len(earlier) + len(later) == 70
    assert min(one.message.store_timestamp for one in later) >= middle
    assert all(one.message.store_timestamp < middle for one in earlier)
