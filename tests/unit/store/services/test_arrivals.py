"""Arrivals by step: which queues moved and how far, with arrays; and dispatch that makes no pauses while one waits."""

import logging
import queue
from collections import defaultdict
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.errors import StoreClosed
from embermq.format.java import string_hash
from embermq.settings import KernelUse
from embermq.store.services import Arrival, ArrivalStep, dispatch
from tests.support.kernels import force_compiled

SETTINGS = StoreSettings(
    segment_bytes=256 << 10,
    queue_file_bytes=20 * 1000,
    index_slots_max=10,
    index_entries_max=10_000,
    disk_full_percent=100,
)
PREPARED = 4
Queue = tuple[str, int]


class Seen:
    """What the steps said, put together."""

    def __init__(self) -> None:
        self.steps = 0
        self.ends: dict[Queue, int] = {}
        self.offsets: dict[Queue, list[int]] = defaultdict(list)
        self.tags: dict[Queue, list[int]] = defaultdict(list)
        self.properties: dict[Queue, list[bytes]] = defaultdict(list)
        self.times: list[int] = []

    def __call__(self, step: ArrivalStep) -> None:
        moved = step.moved
        self.steps += 1
        assert len(moved.starts) == len(moved.queues) + 1 == len(moved.to_offsets) + 1
        assert moved.starts[-1] == len(moved.rows) == len(step.tag_codes) == len(step.store_times)
        self.times += step.store_times.tolist()
        for q, name in enumerate(moved.queues):
            own = slice(int(moved.starts[q]), int(moved.starts[q + 1]))
            offsets = moved.queue_offsets[own].tolist()
            assert offsets[0] == moved.from_offsets[q]
            assert offsets[-1] + 1 <= moved.to_offsets[q]
            self.ends[name] = int(moved.to_offsets[q])
            self.offsets[name] += offsets
            self.tags[name] += step.tag_codes[own].tolist()
            self.properties[name] += [step.properties(entry) for entry in range(own.start, own.stop)]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("extension", [False, True])
def test_a_step_says_which_queues_moved(
    tmp_path: Path, compiled: bool, extension: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled:
        force_compiled(monkeypatch)
    settings = SETTINGS.replace(kernels=KernelUse.ALWAYS if compiled else KernelUse.NEVER, queue_extension=extension)
    with MessageStore.open(tmp_path, settings) as store:
        seen = Seen()
        store.on_arrival_step(seen)
        messages = [Message(f"t{n % 3}", b"x", tags=f"tag{n % 5}", queue_id=n % 2) for n in range(500)]
        for start in range(0, 500, 100):
            store.append_many(messages[start : start + 100])
        assert store.wait_for_dispatch()
        by_queue: dict[Queue, list[Message]] = defaultdict(list)
        for message in messages:
            by_queue[message.topic, message.queue_id].append(message)
        assert seen.ends == {name: len(own) for name, own in by_queue.items()}
        for name, own in by_queue.items():
            assert seen.offsets[name] == list(range(len(own)))
            assert seen.tags[name] == [string_hash(message.tags or "") for message in own]
            assert seen.properties[name] == [message.property_bytes() for message in own]
            assert store.read_raw(*name, seen.ends[name] - 1).count == 1
        assert len(seen.times) == 500
        assert 1 <= seen.steps <= 500


def test_records_without_queue_entries_move_nothing(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SETTINGS) as store:
        seen, each = Seen(), list[Arrival]()
        store.on_arrival_step(seen)
        store.on_arrival(each.append)
        store.append(Message("orders", b"x", sys_flag=PREPARED))
        store.append(Message("orders", b"x"))
        assert store.wait_for_dispatch()
        assert seen.ends == {("orders", 0): 1}
        assert len(each) == 2  # Every record is announced, as in RocketMQ.


def test_light_queues_move_as_well(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SETTINGS.replace(multi_dispatch=True, light_queues=True)) as store:
        seen = Seen()
        store.on_arrival_step(seen)
        for _ in range(3):
            store.append(Message("orders", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}, queue_id=1))
        assert store.wait_for_dispatch()
        assert seen.ends == {("orders", 1): 3, ("%LMQ%a", 0): 3, ("%LMQ%b", 0): 3}


def test_no_queues_no_moves(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SETTINGS, dispatch="none") as store:
        steps: list[int] = []
        store.on_arrival_step(lambda step: steps.append(len(step.records)))
        store.append(Message("orders", b"x"))
        assert store.wait_for_dispatch()
        assert steps == [1]


def test_a_listener_that_fails_is_logged_once_and_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with MessageStore.open(tmp_path, SETTINGS) as store, caplog.at_level(logging.ERROR):

        def fail(_: ArrivalStep) -> None:
            raise ValueError("no")

        seen = Seen()
        store.on_arrival_step(fail)
        stop = store.on_arrival_step(seen)
        for _ in range(3):
            store.append(Message("orders", b"x"))
            assert store.wait_for_dispatch()
        assert seen.ends == {("orders", 0): 3}
        assert [record.message for record in caplog.records] == ["arrival listener failed queues=1"]
        stop()
        store.append(Message("orders", b"x"))
        assert store.wait_for_dispatch()
        assert seen.ends == {("orders", 0): 3}
    with pytest.raises(StoreClosed):
        store.on_arrival_step(seen)


def test_dispatch_makes_no_pauses_while_one_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "PAUSE_SECONDS", 600.0)
    with MessageStore.open(tmp_path, SETTINGS) as store:
        ends: queue.SimpleQueue[int] = queue.SimpleQueue()
        store.on_arrival_step(lambda step: ends.put(int(step.moved.to_offsets[0])))
        calm = store.hurry_dispatch()
        for n in range(1, 6):
            store.append(Message("orders", b"x"))
            assert ends.get(timeout=20) == n  # Each would have waited for a pause.
        other = store.hurry_dispatch()
        calm()
        calm()  # Once is enough.
        store.append(Message("orders", b"x"))
        assert ends.get(timeout=20) == 6
        other()
        assert not store.engine.dispatcher._hurried_by
        for _ in range(2):  # After the first of these it pauses, if not before.
            store.append(Message("orders", b"x"))
        again = store.hurry_dispatch()  # Ends a pause that is under way.
        while ends.get(timeout=20) < 8:
            pass
        again()
