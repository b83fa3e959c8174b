"""The broker of a test: what it shows, its clock, its faults, and its end."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq import testing
from embermq.broker import Broker
from embermq.broker.tables import Saver
from embermq.errors import ConnectFailed, ConnectionLost, EmberError, RemotingError, SettingsError
from embermq.model.message import StoredMessage
from embermq.remoting import RequestCode, ResponseCode, parse_json
from embermq.testing import LocalBroker, broker
from embermq.testing.clock import ManualClock
from tests.support.asking import Asker
from tests.support.brokers import pull_fields, send_fields
from tests.support.transactions import GROUP, TransactionProducer
from tests.support.waiting import wait_until

DELAY_10_S = "DELAY\x013"


@pytest.fixture
def asker(rocketmq_broker: LocalBroker) -> Iterator[Asker]:
    with Asker(rocketmq_broker.address) as made:
        yield made


def bodies(messages: list[StoredMessage]) -> list[bytes]:
    return [message.body for message in messages]


def routed(asker: Asker, name_server: str, topic: str) -> list[str]:
    """The brokers that a name server names for a topic."""
    there = Asker(name_server)
    try:
        answer = there.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    finally:
        there.close()
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return []
    found = parse_json(answer.body)
    return [address for one in found["brokerDatas"] for address in one["brokerAddrs"].values()]


# -- what it shows -----------------------------------------------------------------------------------------------


def test_what_was_sent_is_a_list_in_the_order_of_sending(rocketmq_broker: LocalBroker, asker: Asker) -> None:
    for number in range(8):
        assert asker.send("orders", b"%d" % number, f"TAGS\x01t{number}", e=number % 4).code == 0
    found = rocketmq_broker.sent("orders")
    assert bodies(found) == [b"%d" % number for number in range(8)]
    assert [(message.queue_id, message.tags) for message in found] == [(n % 4, f"t{n}") for n in range(8)]
    assert rocketmq_broker.sent("never heard of") == []


def test_what_a_group_committed_are_offsets_and_messages(rocketmq_broker: LocalBroker, asker: Asker) -> None:
    for number in range(6):
        asker.send("orders", b"%d" % number, e=number % 2)
    asker.send("%RETRY%billing", b"again")
    asker.commit("billing", "orders", 0, 2)
    asker.commit("billing", "orders", 1, 1)
    asker.commit("billing", "%RETRY%billing", 0, 1)
    assert rocketmq_broker.offsets("billing") == {("orders", 0): 2, ("orders", 1): 1, ("%RETRY%billing", 0): 1}
    assert bodies(rocketmq_broker.committed("billing")) == [b"0", b"1", b"2"]
    assert bodies(rocketmq_broker.committed("billing", "%RETRY%billing")) == [b"again"]
    assert rocketmq_broker.committed("never heard of") == []


def test_its_name_server_knows_it_and_the_topics_it_was_given(asker: Asker) -> None:
    with broker(topics={"orders": 3, "bills": 1}) as b:
        assert routed(asker, b.name_server, "orders") == [b.address]
        config = b._running.broker.topics.find("orders")
        assert config is not None
        assert (config.write_queue_nums, config.read_queue_nums) == (3, 3)
        assert routed(asker, b.name_server, "letters") == []
        b.create_topic("letters")
        assert routed(asker, b.name_server, "letters") == [b.address]


def test_two_at_once_know_nothing_of_each_other() -> None:
    with broker() as one, broker() as other, Asker(one.address) as to_one, Asker(other.address) as to_other:
        to_one.send("orders", b"one")
        to_other.send("orders", b"other")
        assert (bodies(one.sent("orders")), bodies(other.sent("orders"))) == ([b"one"], [b"other"])
        assert len({one.address, other.address, one.name_server, other.name_server}) == 4


def test_two_brokers_may_share_a_name_server(asker: Asker) -> None:
    with (
        broker(topics={"orders": 1}, broker_name="a") as a,
        broker(topics={"orders": 1}, broker_name="b", name_server=a.name_server) as b,
    ):
        assert b.name_server == a.name_server
        assert sorted(routed(asker, a.name_server, "orders")) == sorted([a.address, b.address])


# -- settings ----------------------------------------------------------------------------------------------------


def test_settings_go_to_the_broker_or_to_its_store(tmp_path: Path) -> None:
    with broker(auto_create_topics=False, flush="SYNC_FLUSH", path=tmp_path) as b, Asker(b.address) as asker:
        assert asker.send("orders").code == ResponseCode.TOPIC_NOT_EXIST
        b.create_topic("orders", 1)
        assert asker.send("orders").code == 0
        assert b.store.flushed_offset == b.store.max_physical
        assert b.store.path == tmp_path / "store"
    assert (tmp_path / "store" / "commitlog").is_dir()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"no_such_thing": 1}, "no_such_thing is no setting"),
        ({"listen_port": 9876}, "listen_port is set by the test's broker itself"),
        ({"flush": "SOMETIMES"}, "flush = 'SOMETIMES'"),
    ],
)
def test_a_setting_that_cannot_be_is_named(settings: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said), broker(**settings):  # type: ignore[arg-type]
        pass


def test_the_fast_port_is_two_below() -> None:
    with broker(fast_port=True) as b, Asker(f"127.0.0.1:{int(b.address.split(':')[1]) - 2}") as asker:
        assert asker.send("orders", b"x").code == 0
        assert bodies(b.sent("orders")) == [b"x"]


# -- time --------------------------------------------------------------------------------------------------------


def test_a_delayed_message_comes_when_the_clock_is_moved(rocketmq_broker: LocalBroker, asker: Asker) -> None:
    asker.send("orders", b"later", DELAY_10_S)
    assert rocketmq_broker.sent("orders") == []
    rocketmq_broker.clock.advance(s=9.999)
    assert rocketmq_broker.sent("orders") == []
    rocketmq_broker.clock.advance(ms=1)
    assert bodies(rocketmq_broker.sent("orders")) == [b"later"]


def test_a_message_with_a_time_of_its_own_comes_when_the_clock_is_moved(
    rocketmq_broker: LocalBroker, asker: Asker
) -> None:
    assert asker.send("orders", b"tomorrow", "TIMER_DELAY_SEC\x0186400").code == 0
    rocketmq_broker.clock.advance(s=86_399)
    assert rocketmq_broker.sent("orders") == []
    rocketmq_broker.clock.advance(s=1)
    assert bodies(rocketmq_broker.sent("orders")) == [b"tomorrow"]


def test_time_that_passed_while_it_was_dead_counts(rocketmq_broker: LocalBroker, asker: Asker) -> None:
    asker.send("orders", b"later", DELAY_10_S)
    rocketmq_broker.kill()
    rocketmq_broker.clock.advance(s=20)
    rocketmq_broker.restart()
    wait_until(lambda: bodies(rocketmq_broker.sent("orders")) == [b"later"])


def test_a_message_given_back_is_retried_when_the_clock_is_moved(rocketmq_broker: LocalBroker, asker: Asker) -> None:
    asker.send("orders", b"hard")
    place = rocketmq_broker.sent("orders")[0].physical_offset
    fields = {"group": "billing", "offset": place, "delayLevel": 0, "originTopic": "orders"}
    assert asker.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0
    assert rocketmq_broker.sent("%RETRY%billing") == []
    rocketmq_broker.clock.advance(s=10)  # The first retry comes after level 3.
    (again,) = rocketmq_broker.sent("%RETRY%billing")
    assert (again.body, again.reconsume_times) == (b"hard", 1)


def test_a_transaction_is_asked_about_when_the_clock_is_moved(rocketmq_broker: LocalBroker) -> None:
    producer = TransactionProducer()
    with Asker(rocketmq_broker.address, producer.table) as asker:
        asker.be_producer(GROUP)
        properties = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01U1"
        assert asker.send("orders", b"pay", properties, f=4, g=rocketmq_broker.clock.now_ms()).code == 0
        rocketmq_broker.clock.advance(s=1)
        assert producer.asked == []
        rocketmq_broker.clock.advance(s=60)
        wait_until(lambda: len(producer.asked) == 1)
    assert rocketmq_broker.sent("orders") == []


def test_another_clock_may_be_given() -> None:
    clock = ManualClock()
    with broker(clock=clock) as b, Asker(b.address) as asker:
        asker.send("orders", b"x")
        assert b.sent("orders")[0].store_timestamp == clock.now_ms()
        with pytest.raises(EmberError, match="a clock of its own"):
            b.clock  # noqa: B018


# -- faults ------------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_until_there_is_room(rocketmq_broker: LocalBroker, asker: Asker) -> None:
    rocketmq_broker.disk_full()
    refused = asker.send("orders", b"no")
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "is 100% full" in (refused.remark or "")
    rocketmq_broker.kill_and_restart()
    assert asker.send("orders", b"no").code == ResponseCode.SERVICE_NOT_AVAILABLE
    rocketmq_broker.disk_full(False)
    assert asker.send("orders", b"yes").code == 0
    assert bodies(rocketmq_broker.sent("orders")) == [b"yes"]


def test_after_a_failed_sync_nothing_is_acknowledged_until_a_restart() -> None:
    with broker(flush="SYNC_FLUSH") as b, Asker(b.address) as asker:
        assert asker.send("orders", b"1").code == 0
        b.fail_next_fsync()
        assert asker.send("orders", b"2").code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert asker.send("orders", b"3").code == ResponseCode.SERVICE_NOT_AVAILABLE
        b.kill_and_restart()
        assert asker.send("orders", b"4").code == 0
        found = bodies(b.sent("orders"))
        assert (found[0], found[-1]) == (b"1", b"4")
        assert b"3" not in found


def test_dropped_connections_can_be_made_again(rocketmq_broker: LocalBroker, asker: Asker) -> None:
    asker.send("orders", b"1")
    assert len(rocketmq_broker.sent("orders")) == 1
    waits = pull_fields("orders", 1, sys_flag=6) | {"suspendTimeoutMillis": 60_000}
    held = asker.call_later(RequestCode.PULL_MESSAGE, waits)
    wait_until(lambda: len(rocketmq_broker._running.broker.held) == 1)
    rocketmq_broker.drop_connections()
    with pytest.raises(ConnectionLost):
        held.result()
    assert asker.send("orders", b"2").code == 0


def test_a_paused_broker_answers_after_it_goes_on(rocketmq_broker: LocalBroker, asker: Asker) -> None:
    rocketmq_broker.pause()
    rocketmq_broker.pause()
    waiting = asker.call_later(RequestCode.SEND_MESSAGE_V2, send_fields("orders"))
    with pytest.raises(RemotingError, match="did not answer"):
        asker.call(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": 0}, seconds=0.05)
    assert rocketmq_broker.sent("orders") == []
    assert not waiting.done()
    rocketmq_broker.resume()
    assert waiting.result().code == 0
    assert len(rocketmq_broker.sent("orders")) == 1


def test_the_name_server_goes_on_while_the_broker_stands_still(rocketmq_broker: LocalBroker, asker: Asker) -> None:
    rocketmq_broker.create_topic("orders")
    rocketmq_broker.pause()
    assert routed(asker, rocketmq_broker.name_server, "orders") == [rocketmq_broker.address]
    rocketmq_broker.clock.advance(s=100)
    rocketmq_broker.resume()


# -- kills -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_nothing_acknowledged_is_lost_by_kills(flush: str) -> None:
    with broker(flush=flush) as b, Asker(b.address) as asker:
        acknowledged = []
        for number in range(60):
            body = b"%d" % number
            assert asker.send("orders", body, e=number % 4).code == 0
            acknowledged.append(body)
            if number % 20 == 7:
                b.kill_and_restart()
                assert not b.store.recovery.clean
        assert bodies(b.sent("orders")) == acknowledged


def test_what_is_under_way_at_a_kill_gets_no_answer(rocketmq_broker: LocalBroker, asker: Asker) -> None:
    asker.send("orders", b"1")
    rocketmq_broker.pause()
    waiting = asker.call_later(RequestCode.SEND_MESSAGE_V2, send_fields("orders"))
    address, name_server = rocketmq_broker.address, rocketmq_broker.name_server
    rocketmq_broker.kill()
    with pytest.raises((ConnectionLost, ConnectFailed)):  # The second, if it was sent only now.
        waiting.result()
    with pytest.raises(ConnectFailed):
        asker.send("orders", b"2")
    assert routed(asker, name_server, "orders") == []
    rocketmq_broker.restart()
    assert (rocketmq_broker.address, rocketmq_broker.name_server) == (address, name_server)
    wait_until(lambda: routed(asker, name_server, "orders") == [address])
    assert bodies(rocketmq_broker.sent("orders")) == [b"1"]


def test_offsets_survive_a_kill_once_they_are_saved(
    rocketmq_broker: LocalBroker, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_at_the_end: list[Broker] = []
    with monkeypatch.context() as patched:
        patched.setattr(Saver, "save_all", lambda saver: None)  # No table is saved by the way.
        patched.setattr(Broker, "save_tables", saved_at_the_end.append)
        asker.send("orders", b"1")
        asker.commit("billing", "orders", 0, 1)
        assert bodies(rocketmq_broker.committed("billing")) == [b"1"]
        rocketmq_broker.kill_and_restart()
        assert rocketmq_broker.committed("billing") == []
    assert saved_at_the_end == []  # A kill saves nothing.
    asker.commit("billing", "orders", 0, 1)
    rocketmq_broker._running.broker.save_tables()
    rocketmq_broker.kill_and_restart()
    assert bodies(rocketmq_broker.committed("billing")) == [b"1"]


def test_a_dead_broker_says_what_to_do(rocketmq_broker: LocalBroker) -> None:
    rocketmq_broker.kill()
    for ask in (rocketmq_broker.kill, rocketmq_broker.pause, lambda: rocketmq_broker.sent("orders")):
        with pytest.raises(EmberError, match=r"was killed; restart\(\) it first"):
            ask()
    rocketmq_broker.restart()
    rocketmq_broker.restart()
    assert rocketmq_broker.sent("orders") == []


def test_a_kill_ends_what_the_broker_delivers_by_itself(
    rocketmq_broker: LocalBroker, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread of a killed broker goes on, none says that it was killed, and the kill waits for none of them."""
    reported: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    before = threading.active_count()
    asker.send("orders", b"later", DELAY_10_S)
    rocketmq_broker.clock.advance(s=10)
    rocketmq_broker.kill()
    assert threading.active_count() < before
    rocketmq_broker.restart()
    assert set(bodies(rocketmq_broker.sent("orders"))) == {b"later"}
    assert reported == []


# -- the end -----------------------------------------------------------------------------------------------------


def test_nothing_is_left_behind() -> None:
    threads = set(threading.enumerate())
    with broker(topics={"orders": 1}) as b, Asker(b.address) as asker:
        asker.send("orders", b"x")
        root, address = b.store.path, b.address
        b.kill_and_restart()
    assert not root.parent.exists()
    assert set(threading.enumerate()) == threads
    host, port = address.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


@pytest.mark.parametrize("state", ["paused", "dead", "full"])
def test_it_ends_from_any_state(state: str) -> None:
    with broker() as b:
        root = b.store.path
        {"paused": b.pause, "dead": b.kill, "full": b.disk_full}[state]()
    assert not root.exists()


def test_it_ends_when_the_test_fails() -> None:
    threads = set(threading.enumerate())
    roots = []

    def fail(b: LocalBroker) -> None:
        roots.append(b.store.path)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), broker() as b:
        fail(b)
    assert [root.exists() for root in roots] == [False]
    assert set(threading.enumerate()) == threads


def test_a_broker_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("in the way")
    threads = set(threading.enumerate())
    with pytest.raises(EmberError, match="store"), broker(path=tmp_path):
        pass
    assert set(threading.enumerate()) == threads


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'brokers'"):
        testing.brokers  # noqa: B018
