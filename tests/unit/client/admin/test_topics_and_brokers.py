"""Topics and brokers, asked of a broker over its socket."""

import asyncio

import pytest

from embermq.client import aio
from embermq.client.admin import Admin, TopicConfig
from embermq.client.calls import BrokerAddress
from embermq.errors import (
    BrokerUnreachable,
    ClientClosed,
    NameServersUnreachable,
    NameUnknown,
    OptionInvalid,
    PermissionMissing,
    RequestRefused,
    RouteMissing,
)
from tests.support.probed_cluster import ProbedCluster


def put(admin: Admin, topic: str, queues: int = 2) -> None:
    admin.topics.put(TopicConfig(topic, queues, queues), admin.brokers.places())


def test_a_topic_is_made_changed_shown_and_deleted(cluster: ProbedCluster, admin: Admin) -> None:
    put(admin, "life", 2)
    assert "life" in admin.topics.names()
    assert admin.topics.clusters("life") == ["DefaultCluster"]
    assert admin.topics.configs("life") == {"broker-a": TopicConfig("life", 2, 2)}
    put(admin, "life", 3)
    route = admin.topics.route("life")
    assert [(one.broker_name, one.write_queue_nums, one.perm) for one in route.queues] == [("broker-a", 3, 6)]
    assert route.address("broker-a") == cluster.address
    assert admin.topics.delete("life") == ["broker-a"]
    assert "life" not in admin.topics.names()


def test_the_status_of_a_topic_has_every_queue(cluster: ProbedCluster, admin: Admin) -> None:
    put(admin, "filled", 2)
    for _ in range(3):
        cluster.send("filled", queue_id=1)
    cluster.dispatched("filled", 3, 1)
    empty, full = admin.topics.status("filled")
    assert (empty.queue_id, empty.min_offset, empty.max_offset, empty.last_update_timestamp) == (0, 0, 0, None)
    assert (full.queue_id, full.min_offset, full.max_offset) == (1, 0, 3)
    assert full.last_update_timestamp is not None


def test_topics_say_what_they_are_for(cluster: ProbedCluster, admin: Admin) -> None:
    put(admin, "plain")
    put(admin, "%RETRY%someone")
    kinds = {one.topic: one.kind for one in admin.topics.listed()}
    assert kinds["plain"] == "normal"
    assert kinds["%RETRY%someone"] == "retry"
    assert all(kinds[name] == "system" for name in ("TBW102", "broker-a", "DefaultCluster"))


def test_an_order_config_is_kept_by_the_name_servers_and_goes_with_the_topic(admin: Admin) -> None:
    admin.topics.put(TopicConfig("ordered", 2, 2, order=True), admin.brokers.places())
    admin.topics.put(TopicConfig("ordered", 4, 4, order=True), admin.brokers.places())
    admin.topics.delete("ordered")
    with pytest.raises(RouteMissing):
        admin.topics.route("ordered")


def test_unknown_names_come_with_the_nearest_one(admin: Admin) -> None:
    put(admin, "payments")
    with pytest.raises(RouteMissing) as missing:
        admin.topics.status("paymets")
    assert (missing.value.topic, "did you mean payments?" in str(missing.value)) == ("paymets", True)
    with pytest.raises(NameUnknown) as unknown:
        admin.brokers.place("broker-b")
    assert (unknown.value.kind, unknown.value.nearest) == ("broker", ("broker-a",))
    with pytest.raises(NameUnknown, match="DefaultCluster"):
        admin.topics.names("DefaultClusta")
    with pytest.raises(RouteMissing, match="does not have it"):
        admin.topics.delete("payments", "elsewhere")


def test_what_a_broker_refuses_says_why(admin: Admin) -> None:
    with pytest.raises(RequestRefused) as refused:
        put(admin, "TBW102")
    assert (refused.value.code, refused.value.topic, refused.value.broker) == (1, "TBW102", "broker-a")
    place = admin.brokers.place("broker-a")
    with pytest.raises(PermissionMissing, match="rocketmqHome"):
        admin.brokers.change_config(place, {"rocketmqHome": "/"})


def test_a_broker_in_figures_and_settings(cluster: ProbedCluster, admin: Admin) -> None:
    (listed,) = admin.brokers.listed()
    assert (listed.cluster, listed.broker_name, listed.broker_id) == ("DefaultCluster", "broker-a", 0)
    assert (listed.address, listed.version, listed.problem) == (cluster.address, "V4_9_8", None)
    place = admin.brokers.place(cluster.address)
    assert place == BrokerAddress("broker-a", cluster.address)
    assert admin.brokers.status(place)["brokerVersionDesc"] == "V4_9_8"
    assert admin.brokers.config(place)["brokerName"] == "broker-a"
    admin.brokers.change_config(place, {"traceOn": "false"})
    assert admin.brokers.config(place)["traceOn"] == "false"
    admin.brokers.change_config(place, {"traceOn": "true"})
    for what in ("queues", "topics", "log"):
        admin.brokers.clean(place, what)


def test_a_broker_that_is_not_written_to(admin: Admin) -> None:
    put(admin, "kept")
    assert admin.brokers.set_writable("broker-a", False) > 0
    assert admin.topics.route("kept").queues[0].perm == 4
    assert admin.brokers.set_writable("broker-a", True) > 0
    assert admin.topics.route("kept").queues[0].perm == 6


def test_name_servers_show_their_settings(cluster: ProbedCluster, admin: Admin) -> None:
    assert admin.brokers.name_server_config()[cluster.name_server]["orderMessageEnable"] == "false"


def test_a_broker_that_does_not_answer_is_listed_with_its_problem(cluster: ProbedCluster, admin: Admin) -> None:
    with pytest.raises(BrokerUnreachable) as silent:
        admin.brokers.status(BrokerAddress("gone", "127.0.0.1:1"))
    assert (silent.value.broker, silent.value.address) == ("gone", "127.0.0.1:1")


def test_name_servers_that_do_not_answer_are_named() -> None:
    with Admin("127.0.0.1:1") as nowhere, pytest.raises(NameServersUnreachable) as unreachable:
        nowhere.topics.names()
    assert unreachable.value.addresses == ("127.0.0.1:1",)


def test_the_second_name_server_answers_where_the_first_does_not(cluster: ProbedCluster) -> None:
    with Admin(f"127.0.0.1:1;{cluster.name_server}") as both:
        assert "TBW102" in both.topics.names()


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(OptionInvalid):
        Admin("nowhere:at:all:x")


def test_a_closed_admin_says_so(cluster: ProbedCluster) -> None:
    closed = Admin(cluster.name_server)
    closed.close()
    closed.close()
    with pytest.raises(ClientClosed):
        closed.topics.names()


def test_the_same_on_a_loop(cluster: ProbedCluster) -> None:
    async def scenario() -> list[str]:
        async with aio.Admin(cluster.name_server) as admin:
            return await admin.topics.names()

    assert "TBW102" in asyncio.run(scenario())
