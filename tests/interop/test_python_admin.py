"""Admin of the Python client: one suite, against Apache RocketMQ 4.9.7 and 5.3.3 and against `embermq broker`."""

import uuid
from collections import Counter
from collections.abc import Iterator
from itertools import islice

import pytest

from embermq.client import Admin, Message, MessageQueue, Producer, PullConsumer, PushConsumer
from embermq.client.admin import EARLIEST, LATEST, GroupConfig, TopicConfig
from tests.interop.apache5 import ACCOUNT
from tests.interop.python_client import APACHE5, ClusterUnderTest, bodies
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

BROKER = "broker-a"
QUEUES = 2


@pytest.fixture
def admin(cluster: ClusterUnderTest) -> Iterator[Admin]:
    with Admin(cluster.name_server, credentials=ACCOUNT) as made:
        yield made


@pytest.fixture
def topic(admin: Admin) -> Iterator[str]:
    """A topic with two queues, and a group of the same name."""
    name = f"T_{uuid.uuid4().hex[:12]}"
    places = admin.brokers.places()
    admin.topics.put(TopicConfig(name, QUEUES, QUEUES), places)
    admin.groups.put(GroupConfig(name, retry_max_times=3), places)
    wait_until(lambda: name in admin.topics.names())
    yield name
    admin.groups.delete(name, places)
    admin.topics.delete(name)
    wait_until(lambda: name not in admin.topics.names())
    assert name not in admin.groups.names()


def sent(cluster: ClusterUnderTest, topic: str, count: int = 6, start: int = 0) -> list[str]:
    """Messages to the queues in turn; their unique ids."""
    with Producer(cluster.name_server, f"p_{topic}", credentials=ACCOUNT, send_timeout=20.0) as producer:
        queues = producer.queues(topic)
        return [
            producer.send(Message(topic, b"m%d" % n, keys=[f"k{n}"]), queue_by=queues[n % QUEUES]).message_id
            for n in range(start, start + count)
        ]


def pulled(cluster: ClusterUnderTest, topic: str, count: int) -> list[bytes]:
    """So many messages that the group has not consumed, which it has after this."""
    options = {"credentials": ACCOUNT, "call_timeout": 20.0, "consume_from": "first"}
    with PullConsumer(name_server=cluster.name_server, group=topic, **options) as consumer:  # type: ignore[arg-type]
        got = [message.body for message in islice(consumer.messages(topic, timeout=60.0), count)]
        consumer.commit()
    return sorted(got)


def test_topics_and_groups_are_as_they_were_made(admin: Admin, topic: str) -> None:
    route = admin.topics.route(topic)
    assert route.read_queues() == [MessageQueue(topic, BROKER, queue) for queue in range(QUEUES)]
    assert admin.topics.configs(topic)[BROKER] == TopicConfig(topic, QUEUES, QUEUES)
    assert admin.groups.configs(topic)[BROKER].retry_max_times == 3
    assert admin.topics.clusters(topic) == ["DefaultCluster"]
    (broker,) = admin.brokers.listed()
    assert (broker.cluster, broker.broker_name, broker.broker_id) == ("DefaultCluster", BROKER, 0)
    assert admin.brokers.config(admin.brokers.place(BROKER))["brokerName"] == BROKER


def test_messages_are_found(cluster: ClusterUnderTest, admin: Admin, topic: str) -> None:
    unique_ids = sent(cluster, topic)
    wait_until(lambda: bool(admin.messages.by_key(topic, "k5")), look_seconds=0.1)  # The index lags behind.
    (by_key,) = admin.messages.by_key(topic, "k3")
    assert by_key.message.body == b"m3"
    (by_unique_id,) = admin.messages.by_unique_id(topic, unique_ids[3])
    assert by_unique_id == by_key
    assert admin.messages.by_id(by_key.message.message_id) == by_key
    assert admin.messages.by_key(topic, "k6") == []
    assert [(one.min_offset, one.max_offset) for one in admin.topics.status(topic)] == [(0, 3), (0, 3)]
    page = admin.messages.page(MessageQueue(topic, BROKER, 1), 1)
    assert [one.message.body for one in page.messages] == [b"m3", b"m5"]


def test_progress_and_offsets_of_a_group_that_is_not_online(
    cluster: ClusterUnderTest, admin: Admin, topic: str
) -> None:
    sent(cluster, topic)
    everything = [b"m%d" % n for n in range(6)]
    assert pulled(cluster, topic, 6) == everything
    assert admin.groups.progress(topic, topic).lag == 0
    assert admin.topics.groups(topic) == [topic]
    admin.offsets.reset(topic, topic, EARLIEST)
    found = admin.groups.progress(topic, topic)
    assert (found.lag, sorted((one.queue_id, one.consumer_offset) for one in found.queues)) == (6, [(0, 0), (1, 0)])
    admin.offsets.reset(topic, topic, LATEST)
    assert admin.groups.progress(topic, topic).lag == 0
    admin.offsets.set(topic, MessageQueue(topic, BROKER, 1), 1)
    assert admin.groups.progress(topic, topic).lag == 2
    assert pulled(cluster, topic, 2) == [b"m3", b"m5"]


def test_members_that_are_online_are_seen_and_reset(cluster: ClusterUnderTest, admin: Admin, topic: str) -> None:
    sent(cluster, topic)
    got: list[bytes] = []
    options = {"credentials": ACCOUNT, "call_timeout": 20.0, "consume_from": "first", "commit_seconds": 0.2}
    with PushConsumer(name_server=cluster.name_server, group=topic, **options) as consumer:  # type: ignore[arg-type]
        consumer.subscribe(topic, "*", lambda messages, _context: got.extend(bodies(messages)))
        wait_until(lambda: len(got) == 6)
        wait_until(lambda: admin.groups.progress(topic, topic).lag == 0, look_seconds=0.1)
        online = admin.groups.connections(topic)
        assert online is not None
        (member,) = online.members
        info = admin.groups.running_info(topic, member.client_id)
        assert {one.topic for one in info.queues} >= {topic}
        admin.offsets.reset(topic, topic, EARLIEST)
        expected = Counter({b"m%d" % n: 2 for n in range(6)})
        if cluster.kind == APACHE5:
            sent(cluster, topic, 2, start=6)  # It notifies no member; a new message ends the pull that waits.
            expected += Counter([b"m6", b"m7"])
        wait_until(lambda: len(got) >= expected.total())
    assert Counter(got) == expected


def test_rates_lag_entries_and_texts_of_name_servers(cluster: ClusterUnderTest, admin: Admin, topic: str) -> None:
    sent(cluster, topic)
    assert len(pulled(cluster, topic, 2)) == 2
    queue = MessageQueue(topic, BROKER, 0)
    first, second, third = admin.messages.entries(queue, 0)
    assert [one.queue_offset for one in (first, second, third)] == [0, 1, 2]
    assert 0 <= first.physic_offset < second.physic_offset < third.physic_offset
    assert admin.messages.entries(queue, 3) == []
    wait_until(lambda: sum(one.accumulation or 0 for one in admin.rates.of_topic(topic)) <= 4)
    (rate,) = admin.rates.of_topic(topic)
    assert (rate.topic, rate.group) == (topic, topic)
    groups = [one for one in admin.groups.of_all(admin.brokers.place(BROKER)) if one.group == topic]
    lags = {queue.queue_id: queue.lag for one in groups for queue in one.queues if queue.topic == topic}
    assert sum(lags.values()) == rate.accumulation
    assert admin.kv_configs.get("EMBERMQ_TEST", topic) is None
    admin.kv_configs.put("EMBERMQ_TEST", topic, "one; two")
    assert admin.kv_configs.get("EMBERMQ_TEST", topic) == "one; two"
    assert admin.kv_configs.of_namespace("EMBERMQ_TEST")[topic] == "one; two"
    admin.kv_configs.delete("EMBERMQ_TEST", topic)
    assert admin.kv_configs.get("EMBERMQ_TEST", topic) is None
