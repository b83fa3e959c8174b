"""Brokers and topics as state: who is there, what belongs to them, what goes with them."""

import msgspec
import pytest

from embermq.errors import LimitReached
from embermq.model.data_version import DataVersion
from embermq.namesrv.registration import BrokerIdentity, RegisterBody, TopicQueues
from embermq.namesrv.route_table import Registered, RouteTable
from embermq.settings import NamesrvSettings

LIMITS = NamesrvSettings()


class Closing:
    """A connection that remembers why it was closed."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def close(self, reason: str) -> None:
        self.reasons.append(reason)


def queues(count: int = 8, perm: int = 6, flags: int = 0) -> TopicQueues:
    return TopicQueues(perm, count, flags, count)


def body(*topics: str, counter: int = 1, **more: TopicQueues) -> RegisterBody:
    return RegisterBody(DataVersion(100, counter), {topic: queues() for topic in topics} | more, [])


class Table:
    """A route table with a short way to register."""

    def __init__(self, limits: NamesrvSettings = LIMITS) -> None:
        self.routes, self.limits, self.now = RouteTable(), limits, 0.0
        self.connection = Closing()

    def register(
        self,
        name: str,
        address: str,
        registered: RegisterBody,
        *,
        broker_id: int = 0,
        cluster: str = "C",
        connection: Closing | None = None,
    ) -> Registered:
        identity = BrokerIdentity(cluster, name, broker_id, address)
        on = connection or self.connection
        return self.routes.register(identity, f"ha-{address}", registered, on, self.now, self.limits)

    def addresses(self) -> dict[str, dict[int, str]]:
        return {
            name: {broker_id: live.identity.address for broker_id, live in ids.items()}
            for name, ids in self.routes.brokers.items()
        }

    def perms(self, topic: str) -> dict[str, int]:
        route = self.routes.route(topic)
        return {} if route is None else {name: one.perm for name, one in route.queues.items()}


@pytest.fixture
def table() -> Table:
    return Table()


# -- registration ------------------------------------------------------------------------------------------------


def test_a_master_brings_its_topics(table: Table) -> None:
    assert table.register("a", "1:1", body("T", "U")) == Registered(is_new=True, took_topics=True)
    route = table.routes.route("T")
    assert route is not None
    assert route.queues == {"a": queues()}
    assert table.addresses() == {"a": {0: "1:1"}}
    assert table.routes.clusters() == {"C": ["a"]}
    assert table.routes.topics() == ["T", "U"]
    assert table.routes.route("V") is None


def test_the_same_version_again_changes_no_topic(table: Table) -> None:
    table.register("a", "1:1", body("T"))
    assert table.register("a", "1:1", body("U")) == Registered(is_new=False, took_topics=False)
    assert table.routes.topics() == ["T"]


def test_another_version_adds_and_overwrites_and_keeps_the_rest(table: Table) -> None:
    table.register("a", "1:1", body("T", "U"))
    done = table.register("a", "1:1", body(counter=2, U=queues(2, perm=4), V=queues()))
    assert done == Registered(is_new=False, took_topics=True)
    assert table.routes.topics() == ["T", "U", "V"]
    assert table.perms("U") == {"a": 4}


def test_a_slave_brings_no_topics_and_learns_of_its_master(table: Table) -> None:
    assert table.register("a", "2:1", body("T"), broker_id=1) == Registered(is_new=True, took_topics=False)
    assert table.routes.topics() == []
    table.register("a", "1:1", body("T"))
    done = table.register("a", "2:1", body("X", counter=9), broker_id=1)
    assert done == Registered(False, False, master_address="1:1", ha_address="ha-1:1")
    assert table.routes.topics() == ["T"]
    assert table.addresses() == {"a": {1: "2:1", 0: "1:1"}}


def test_a_slave_that_becomes_the_master_has_one_id(table: Table) -> None:
    table.register("a", "1:1", body("T"))
    table.register("a", "2:1", body(), broker_id=1)
    table.register("a", "2:1", body("T", "U"), broker_id=0)
    assert table.addresses() == {"a": {0: "2:1"}}
    assert table.routes.topics() == ["T", "U"]


def test_a_master_that_comes_back_at_another_address_takes_its_place(table: Table) -> None:
    table.register("a", "1:1", body("T"))
    table.register("a", "3:1", body("U"))
    assert table.addresses() == {"a": {0: "3:1"}}
    assert table.routes.topics() == ["T", "U"], "the topics belong to the name"
    assert table.routes.version_of("1:1") is None


def test_an_address_under_a_new_name_leaves_the_old_one(table: Table) -> None:
    table.register("a", "1:1", body("T"))
    table.register("b", "1:1", body("U"))
    assert table.addresses() == {"b": {0: "1:1"}}
    assert table.routes.topics() == ["U"]


def test_a_broker_in_a_new_cluster_leaves_the_old_one(table: Table) -> None:
    table.register("a", "1:1", body("T"))
    table.register("a", "1:1", body("T"), cluster="D")
    assert table.routes.clusters() == {"D": ["a"]}
    assert table.routes.topics_of_cluster("D") == ["T"]
    assert table.routes.topics() == ["T"]


def test_two_brokers_share_a_topic(table: Table) -> None:
    table.register("a", "1:1", body("T", A=queues()))
    table.register("b", "2:1", body(T=queues(4), B=queues()))
    route = table.routes.route("T")
    assert route is not None
    assert {name: one.read_queue_nums for name, one in route.queues.items()} == {"a": 8, "b": 4}
    assert list(route.brokers) == ["a", "b"]
    assert table.routes.clusters() == {"C": ["a", "b"]}
    assert table.routes.topics() == ["T", "A", "B"]


def test_filter_servers_are_kept_until_a_registration_says_otherwise(table: Table) -> None:
    with_filters = msgspec.structs.replace(body("T"), filter_servers=["f:1"])
    table.register("a", "1:1", with_filters)
    table.register("a", "1:1", msgspec.structs.replace(with_filters, filter_servers=None))
    assert table.routes.brokers["a"][0].filter_servers == ("f:1",)
    table.register("a", "1:1", body("T"))
    assert not table.routes.brokers["a"][0].filter_servers


# -- removal -----------------------------------------------------------------------------------------------------


def test_unregistering_removes_an_address_and_with_the_last_one_the_name(table: Table) -> None:
    table.register("a", "1:1", body("T", "U"))
    table.register("a", "2:1", body(), broker_id=1)
    table.register("b", "3:1", body("T"))
    assert table.routes.unregister(BrokerIdentity("C", "a", 0, "1:1")) is not None
    assert table.addresses() == {"a": {1: "2:1"}, "b": {0: "3:1"}}
    assert table.perms("U") == {"a": 6}, "a slave can still be read from"
    assert table.routes.unregister(BrokerIdentity("C", "a", 1, "2:1")) is not None
    assert table.addresses() == {"b": {0: "3:1"}}
    assert table.routes.clusters() == {"C": ["b"]}
    assert table.routes.topics() == ["T"]
    assert table.perms("T") == {"b": 6}


@pytest.mark.parametrize(
    "identity",
    [
        BrokerIdentity("C", "a", 0, "9:9"),
        BrokerIdentity("C", "b", 0, "1:1"),
        BrokerIdentity("C", "a", 1, "1:1"),
    ],
)
def test_unregistering_what_is_not_there_changes_nothing(table: Table, identity: BrokerIdentity) -> None:
    table.register("a", "1:1", body("T"))
    assert table.routes.unregister(identity) is None
    assert table.addresses() == {"a": {0: "1:1"}}


def test_a_closed_connection_removes_all_that_registered_on_it(table: Table) -> None:
    first, second = Closing(), Closing()
    table.register("a", "1:1", body("T"), connection=first)
    table.register("b", "2:1", body("T"), connection=first)
    table.register("c", "3:1", body("T"), connection=second)
    assert [live.identity.name for live in table.routes.disconnected(first)] == ["a", "b"]
    assert table.perms("T") == {"c": 6}
    assert table.routes.disconnected(first) == []


def test_an_old_connection_of_a_broker_that_registered_again_removes_nothing(table: Table) -> None:
    old, new = Closing(), Closing()
    table.register("a", "1:1", body("T"), connection=old)
    table.register("a", "1:1", body("T"), connection=new)
    assert table.routes.disconnected(old) == []
    assert table.routes.topics() == ["T"]


def test_silent_brokers_expire(table: Table) -> None:
    table.register("a", "1:1", body("T"))
    table.register("b", "2:1", body("U"))
    table.now = 60.0
    table.register("b", "2:1", body("U"))
    assert table.routes.expire(120.0, 120.0) == []
    assert [live.identity.name for live in table.routes.expire(120.1, 120.0)] == ["a"]
    assert table.routes.topics() == ["U"]
    table.routes.touch("2:1", 150.0)
    table.routes.touch("9:9", 150.0)
    assert table.routes.expire(270.0, 120.0) == []
    assert len(table.routes.expire(270.1, 120.0)) == 1
    assert table.routes.topics() == []
    assert table.addresses() == {}


# -- topics ------------------------------------------------------------------------------------------------------


def test_topics_of_a_cluster(table: Table) -> None:
    table.register("a", "1:1", body("T", "U"))
    table.register("b", "2:1", body("T", "V"), cluster="D")
    assert table.routes.topics_of_cluster("C") == ["T", "U"]
    assert table.routes.topics_of_cluster("D") == ["T", "V"]
    assert table.routes.topics_of_cluster("E") == []


def test_a_topic_is_deleted_everywhere_or_in_one_cluster(table: Table) -> None:
    table.register("a", "1:1", body("T", "U"))
    table.register("b", "2:1", body("T", "U"), cluster="D")
    assert table.routes.delete_topic("T") == 2
    assert table.routes.route("T") is None
    assert table.routes.delete_topic("U", "D") == 1
    assert table.perms("U") == {"a": 6}
    assert table.routes.delete_topic("U", "E") == 0
    assert table.routes.delete_topic("U", "C") == 1
    assert table.routes.delete_topic("U") == 0
    assert table.routes.topics() == []


def test_write_permission_is_wiped_and_restored(table: Table) -> None:
    table.register("a", "1:1", body("U", T=queues(perm=7)))
    table.register("b", "2:1", body("T"))
    assert table.routes.wipe_write("a") == 2
    assert table.perms("T") == {"a": 5, "b": 6}
    table.register("a", "1:1", body("U", T=queues(perm=7)))
    assert table.perms("U") == {"a": 4}, "the same version brings nothing back"
    assert table.routes.restore_write("a") == 2
    assert table.perms("T") == {"a": 6, "b": 6}
    assert table.routes.wipe_write("unknown") == 0


def test_a_new_version_ends_a_wipe(table: Table) -> None:
    table.register("a", "1:1", body("T"))
    table.routes.wipe_write("a")
    table.register("a", "1:1", body("T", counter=2))
    assert table.perms("T") == {"a": 6}


def test_the_version_of_a_broker(table: Table) -> None:
    table.register("a", "1:1", body("T", counter=5))
    assert table.routes.version_of("1:1") == DataVersion(100, 5)
    assert table.routes.version_of("2:1") is None


# -- limits ------------------------------------------------------------------------------------------------------


def test_the_number_of_brokers_is_bounded() -> None:
    table = Table(NamesrvSettings(brokers_max=1))
    table.register("a", "1:1", body("T"))
    with pytest.raises(LimitReached, match=r"no room for the broker 2:1: the limit is 1 \(emberMaxBrokers\)"):
        table.register("b", "2:1", body("U"))
    assert table.addresses() == {"a": {0: "1:1"}}
    table.register("a", "1:1", body("U", counter=2))


def test_the_number_of_topics_is_bounded() -> None:
    table = Table(NamesrvSettings(topics_max=2))
    table.register("a", "1:1", body("T", "U"))
    table.register("b", "2:1", body("T", "U"))
    with pytest.raises(LimitReached, match=r"no room for 1 more topics: the limit is 2 \(emberMaxTopics\)"):
        table.register("b", "2:1", body("V", counter=2))
    assert table.routes.topics() == ["T", "U"]


def test_the_number_of_entries_is_bounded_and_counted_down() -> None:
    table = Table(NamesrvSettings(topic_entries_max=3))
    table.register("a", "1:1", body("T", "U"))
    with pytest.raises(LimitReached, match=r"2 more topics of b: the limit is 3 \(emberMaxTopicEntries\)"):
        table.register("b", "2:1", body("T", "U"))
    table.routes.delete_topic("U")
    table.register("b", "2:1", body("T", "U"))
    table.routes.unregister(BrokerIdentity("C", "b", 0, "2:1"))
    table.register("a", "1:1", body("T", "U", "V", counter=2))


def test_a_refused_registration_is_still_a_sign_of_life() -> None:
    table = Table(NamesrvSettings(topics_max=1))
    table.register("a", "1:1", body("T"))
    table.now = 100.0
    reconnected = Closing()
    with pytest.raises(LimitReached):
        table.register("a", "1:1", body("U", counter=2), connection=reconnected)
    assert table.routes.expire(200.0, 120.0) == []
    assert table.routes.version_of("1:1") == DataVersion(100, 1), "the next query says that it changed"
    assert len(table.routes.disconnected(reconnected)) == 1
