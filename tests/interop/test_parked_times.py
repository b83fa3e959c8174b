"""A broker of RocketMQ 4.9 on a store with parked delivery times: it keeps them, delivers none, and nothing is lost."""

import time
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.model.properties import TIMER_TOPIC
from embermq.testing.clock import ManualClock
from tests.interop import java_broker, reference
from tests.interop.recorder.sends import fields as send_fields
from tests.interop.recorder.sends import properties
from tests.interop.test_broker_tables import Talk, broker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

TOPIC, HOUR_MS = "orders", 3_600_000
SETTINGS = StoreSettings(
    segment_bytes=16 << 20,
    queue_file_bytes=20_000,
    index_slots_max=1000,
    index_entries_max=4000,
    disk_full_percent=100,
    disk_clean_percent=100,
)
SOON = [b"soon-%d" % number for number in range(50)]
LATER = [b"later-%d" % number for number in range(50)]


@pytest.fixture(scope="module", autouse=True)
def _fetched() -> None:
    try:
        java_broker.class_path()
    except reference.ReferenceMissing as why:
        pytest.skip(str(why))


def now_ms() -> int:
    return int(time.time() * 1000)


def park(place: Path) -> None:
    """Messages due in a second and in an hour, one of them cancelled; by a clock that stands still."""
    clock = ManualClock(now_ms())
    at_ms = str(clock.now_ms() + HOUR_MS)
    with MessageStore.open(place / "store", SETTINGS, clock=clock) as store:
        for soon, later in zip(SOON, LATER, strict=True):
            store.append(Message(TOPIC, soon, tags="paid", properties={"TIMER_DELAY_SEC": "1"}))
            store.append(Message(TOPIC, later, properties={"TIMER_DELIVER_MS": at_ms, "UNIQ_KEY": later.decode()}))
        named = {"TIMER_DELIVER_MS": at_ms, "TIMER_DEL_UNIQKEY": "later-7"}
        store.append(Message(TOPIC, b"", properties=named))


def max_offset(talk: Talk, topic: str, queue_id: int = 0) -> int:
    found = talk.ask(30, {"topic": topic, "queueId": str(queue_id)})
    return int(found.header["extFields"]["offset"])


def served_by_apache(talk: Talk) -> None:
    """Its own delayed message comes when it is due; of the parked ones, which are due as well, none does."""
    talk.ask(310, send_fields(TOPIC), b"from apache")
    talk.ask(310, send_fields(TOPIC, i=properties(DELAY="1")), b"delayed by apache")
    wait_until(lambda: max_offset(talk, TOPIC) == 2, "its own delayed message is delivered")
    assert max_offset(talk, TIMER_TOPIC) == 101
    assert max_offset(talk, TIMER_TOPIC, 1) == 1
    assert max_offset(talk, TOPIC) == 2


def bodies(store: MessageStore) -> list[bytes]:
    found: list[bytes] = []
    while more := store.fetch(TOPIC, 0, len(found)).messages:
        found += [message.body for message in more]
    return found


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_nothing_parked_is_lost(is_killed: bool, tmp_path: Path) -> None:
    with broker("ours", tmp_path, is_killed=False) as talk:  # So that the topic is listed, as it is by a broker.
        first = properties(TIMER_DELIVER_MS=str(now_ms() + HOUR_MS))
        talk.ask(310, send_fields(TOPIC, i=first), b"later, by a broker")
    park(tmp_path)
    assert (tmp_path / "store" / "config" / "topics.json").read_text().count(TIMER_TOPIC) > 0
    with broker("theirs", tmp_path, is_killed=is_killed) as talk:
        served_by_apache(talk)
    own = [b"from apache", b"delayed by apache"]
    clock = ManualClock(now_ms())
    with MessageStore.open(tmp_path / "store", SETTINGS, clock=clock) as store:
        assert store.deliver_due()
        # A kill may repeat what RocketMQ itself had delivered: its progress was not written yet.
        found = bodies(store)
        assert found[:2] == own
        assert [one for one in found if one not in own] == SOON
        assert is_killed or len(found) == 52
        clock.advance(ms=2 * HOUR_MS)
        assert store.deliver_due()
        later = bodies(store)
        assert later[: len(found)] == found
        assert sorted(later[len(found) :]) == sorted(
            [b"later, by a broker", *(one for one in LATER if one != b"later-7")]
        )
