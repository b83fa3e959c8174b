"""The store against a model of it: dicts of lists, and whatever happens in between.

Appends of every kind, reads of every kind, clean and unclean restarts, deleted derived files, and readers beside
the writer, in any order. The model knows nothing of files; after each step both must give the same answers.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from embermq import BatchItem, FetchStatus, Message, MessageBatch, MessageStore, Receipt, StoredMessage
from embermq.model import flags
from embermq.model.properties import SCHEDULE_TOPIC
from embermq.settings import FlushDisk, KernelUse
from embermq.store.log import tail_mark
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from embermq.testing.lossy_files import LossyFiles
from embermq.testing.unsynced import keep_everything

ROOT = Path("/store")
ENTRIES_PER_FILE = 6
SMALL: dict[str, Any] = {
    "segment_bytes": 8192,
    "queue_file_bytes": 20 * ENTRIES_PER_FILE,
    "index_slots_max": 7,
    "index_entries_max": 12,
    "delayed_delivery": False,
    "kernels": KernelUse.NEVER,
}

topics = st.sampled_from(["A", "B", "%RETRY%c"])
queue_ids = st.integers(0, 2)
bodies = st.one_of(st.binary(max_size=40), st.binary(min_size=900, max_size=2500))
keys = st.lists(st.sampled_from(["k1", "k2", "k3", "ключ", "Aa", "BB"]), max_size=3)  # "Aa" and "BB" share a hash.
tags = st.sampled_from([None, "red", "blue", "Aa", "BB"])
kinds = st.sampled_from([0, 0, 0, flags.PREPARED, flags.COMMIT, flags.ROLLBACK])
steps_ms = st.sampled_from([0, 0, 1, 7, 1000, 60_000])


@st.composite
def messages(draw: st.DrawFn) -> Message:
    return Message(
        draw(topics),
        draw(bodies),
        tags=draw(tags),
        keys=draw(keys),
        queue_id=draw(queue_ids),
        sys_flag=draw(kinds),
        flag=draw(st.integers(-5, 5)),
        properties=draw(st.sampled_from([{}, {"UNIQ_KEY": "u1"}, {"a": "b"}])),
    )


class Entry:
    """One message of the model."""

    def __init__(self, message: Message, time_ms: int, topic: str, queue_id: int, queue_offset: int) -> None:
        self.message, self.time_ms = message, time_ms
        self.topic, self.queue_id, self.queue_offset = topic, queue_id, queue_offset
        self.physical_offset = -1

    @property
    def queued(self) -> bool:
        return flags.has_queue_entry(self.message.sys_flag)

    @property
    def keys(self) -> list[str]:
        unique = self.message.properties.get("UNIQ_KEY")
        return list(self.message.keys) + ([unique] if unique else [])

    def matches(self, found: StoredMessage) -> bool:
        message = self.message
        return (
            (found.topic, found.queue_id, found.body, found.tags, found.flag, found.store_timestamp, found.queue_offset)
            == (self.topic, self.queue_id, message.body, message.tags, message.flag, self.time_ms, self.queue_offset)
            and found.keys == list(message.keys)
            and found.physical_offset == self.physical_offset
        )


class StoreModel(RuleBasedStateMachine):
    """A store and its model, step by step."""

    flush = FlushDisk.ASYNC

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.disk = LossyFiles()
        self.log: list[Entry] = []
        self.queues: dict[tuple[str, int], list[Entry]] = defaultdict(list)

    @initialize()
    def open(self) -> None:
        self.store = self.builder.open()

    @property
    def builder(self) -> StoreBuilder:
        return StoreBuilder(ROOT, clock=self.clock, files=self.disk, flush=self.flush, **SMALL)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            with self.builder.open() as again:
                assert again.recovery.clean
                self.compare(again)

    # -- appending ---------------------------------------------------------------------------------------------

    def note(self, message: Message, receipt_offset: int) -> None:
        topic, queue_id = message.topic, message.queue_id
        if message.delay_level and flags.has_queue_entry(message.sys_flag):
            topic, queue_id = SCHEDULE_TOPIC, min(message.delay_level, 18) - 1
        queue = self.queues[topic, queue_id]
        queued = flags.has_queue_entry(message.sys_flag)
        entry = Entry(message, self.clock.now_ms(), topic, queue_id, len(queue) if queued else 0)
        entry.physical_offset = receipt_offset
        assert not self.log or receipt_offset > self.log[-1].physical_offset
        self.log.append(entry)
        if queued:
            queue.append(entry)

    def check_receipt(self, receipt: Receipt) -> None:
        assert receipt.ok
        newest = self.log[-1]
        assert (receipt.queue_offset, receipt.store_timestamp) == (newest.queue_offset, newest.time_ms)

    @rule(message=messages())
    def append(self, message: Message) -> None:
        receipt = self.store.append(message)
        self.note(message, receipt.physical_offset)
        self.check_receipt(receipt)

    @rule(several=st.lists(messages(), max_size=6))
    def append_many(self, several: list[Message]) -> None:
        receipts = self.store.append_many(several)
        assert len(receipts) == len(several)
        for message, receipt in zip(several, receipts, strict=True):
            self.note(message, receipt.physical_offset)
            self.check_receipt(receipt)

    @rule(topic=topics, queue_id=queue_ids, several=st.lists(bodies, min_size=1, max_size=3), tag=tags, own=keys)
    def append_batch(self, topic: str, queue_id: int, several: list[bytes], tag: str | None, own: list[str]) -> None:
        made = [Message(topic, body, queue_id=queue_id, tags=tag, keys=own) for body in several]
        items = [BatchItem(message.body, message.all_properties()) for message in made]
        receipt = self.store.append_batch(MessageBatch(Message(topic, queue_id=queue_id), items))
        assert receipt.message_count == len(made)
        for message, place in zip(made, (receipt.physical_offset, *receipt.later_offsets), strict=True):
            self.note(message, place)

    @rule(message=messages(), level=st.integers(1, 20))
    def append_delayed(self, message: Message, level: int) -> None:
        delayed = Message(
            message.topic,
            message.body,
            tags=message.tags,
            keys=message.keys,
            queue_id=message.queue_id,
            delay_level=level,
        )
        receipt = self.store.append(delayed)
        self.note(delayed, receipt.physical_offset)
        self.check_receipt(receipt)

    @rule(passed_ms=steps_ms)
    def let_time_pass(self, passed_ms: int) -> None:
        self.clock.advance(ms=passed_ms)

    @rule()
    def rest(self) -> None:
        """What housekeeping does when nothing else happens."""
        self.store.flush()
        self.store.wait_for_dispatch()
        self.store.engine.services.housekeeping.make_durable()

    # -- restarts ------------------------------------------------------------------------------------------------

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.builder.open()
        assert self.store.recovery.clean
        assert not self.store.recovery.findings

    @rule(written_out=st.booleans())
    def kill(self, written_out: bool) -> None:
        self.store.wait_for_dispatch()
        if written_out:
            self.store.engine.services.housekeeping.write_out()
        left = self.disk.crash(keep_everything)
        self.store.close()
        self.disk = left
        self.store = self.builder.open()
        assert not self.store.recovery.clean
        assert not self.store.recovery.damages

    @rule(data=st.data(), killed=st.booleans())
    def lose_a_derived_file(self, data: st.DataObject, killed: bool) -> None:
        self.rest()
        left = self.disk.crash(keep_everything)
        self.store.close()
        if killed:
            self.disk = left
        derived = [path for part in ("consumequeue", "index") for path in _paths(self.disk, ROOT / part)]
        if derived:
            self.disk.remove(data.draw(st.sampled_from(derived)))
        self.store = self.builder.open()
        assert self.store.recovery.clean != killed

    @rule()
    def read_beside(self) -> None:
        self.store.wait_for_dispatch()
        self.store.engine.services.housekeeping.write_out()
        with self.builder.open(read_only=True) as reader:
            self.compare(reader)
        copy = self.disk.crash(keep_everything)  # Of the live one the writer's own threads may change something.
        before = {path: copy.read_all(path) for path in _paths(copy, ROOT)}
        with self.builder.on(copy).open(read_only=True) as reader:
            self.compare(reader)
        assert {path: copy.read_all(path) for path in _paths(copy, ROOT)} == before

    # -- answers -------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(self.queues.values()))
    @rule(data=st.data(), count=st.integers(0, 40), wanted=st.sampled_from(["*", "red", "red || Aa", "none"]))
    def fetch(self, data: st.DataObject, count: int, wanted: str) -> None:
        """From any offset, before and after the queue too, with any filter."""
        key = data.draw(st.sampled_from([key for key, queue in self.queues.items() if queue]))
        if key[0] == SCHEDULE_TOPIC:
            wanted = "*"  # The entries of parked messages hold their time in the place of the tag.
        queue = self.queues[key]
        offset = data.draw(st.integers(0, len(queue) + 2))
        outcome = self.store.fetch(*key, offset, count, wanted)
        assert (outcome.min_offset, outcome.max_offset) == (0, len(queue))
        if offset > len(queue):
            assert (outcome.status, outcome.next_offset) == (FetchStatus.OFFSET_OVERFLOW_BADLY, len(queue))
        elif offset == len(queue):
            assert (outcome.status, outcome.next_offset) == (FetchStatus.OFFSET_OVERFLOW_ONE, offset)
        else:
            chosen = None if wanted == "*" else {text.strip() for text in wanted.split("||")}
            looked_at = queue[offset : outcome.next_offset]
            expected = [entry for entry in looked_at if chosen is None or entry.message.tags in chosen]
            assert outcome.next_offset > offset
            assert len(outcome.messages) <= max(1, count)
            assert len(outcome.messages) == len(expected)
            assert all(entry.matches(one) for entry, one in zip(expected, outcome.messages, strict=True))
            found = FetchStatus.FOUND if expected else FetchStatus.NO_MATCHED_MESSAGE
            assert outcome.status is found

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def look_up(self, data: st.DataObject) -> None:
        """By key and time, by id, by place."""
        entry = data.draw(st.sampled_from(self.log))
        times = st.sampled_from([0, entry.time_ms - 1, entry.time_ms, entry.time_ms + 1, self.clock.now_ms()])
        begin_ms, end_ms = data.draw(times), data.draw(times)
        for key in entry.keys:
            expected = [
                other.physical_offset
                for other in self.log
                if other.topic == entry.topic
                and key in other.keys
                and begin_ms <= other.time_ms <= end_ms
                and other.message.sys_flag & flags.TRANSACTION_MASK != flags.ROLLBACK
            ]
            found = self.store.find(entry.topic, key, begin_ms, end_ms)
            assert [one.physical_offset for one in found] == expected
            newest = self.store.find(entry.topic, key, begin_ms, end_ms, limit=2)
            assert [one.physical_offset for one in newest] == expected[-2:]
        stored = self.store.at(entry.physical_offset)
        assert stored is not None
        assert entry.matches(stored)
        by_id = self.store.get(stored.message_id)
        assert by_id is not None
        assert by_id.physical_offset == entry.physical_offset
        assert self.store.at(entry.physical_offset + 1) is None

    @precondition(lambda self: any(self.queues.values()))
    @rule(data=st.data(), shift_ms=st.sampled_from([-100_000, -500, -3, -1, 0, 1, 3, 500, 100_000]))
    def offset_at(self, data: st.DataObject, shift_ms: int) -> None:
        key = data.draw(st.sampled_from([key for key, queue in self.queues.items() if queue]))
        queue = self.queues[key]
        moment = data.draw(st.sampled_from(queue)).time_ms + shift_ms
        assert self.store.offset_at(*key, moment) in nearest(queue, moment)

    # -- always --------------------------------------------------------------------------------------------------

    @invariant()
    def same_ends(self) -> None:
        if hasattr(self, "store"):
            for key, queue in self.queues.items():
                assert self.store.max_offset(*key) == len(queue)

    def compare(self, store: MessageStore) -> None:
        """Everything the model knows."""
        assert [one.physical_offset for one in store.scan()] == [entry.physical_offset for entry in self.log]
        present = {(topic, queue_id) for topic, ids in store.topics().items() for queue_id in ids}
        assert present == {key for key, queue in self.queues.items() if queue}
        for key, queue in self.queues.items():
            at = 0
            while at < len(queue):
                outcome = store.fetch(*key, at)
                assert outcome.status is FetchStatus.FOUND
                assert all(queue[at + i].matches(one) for i, one in enumerate(outcome.messages))
                at = outcome.next_offset
        for topic, key_text in {(entry.topic, key) for entry in self.log for key in entry.keys}:
            expected = [
                entry.physical_offset
                for entry in self.log
                if entry.topic == topic
                and key_text in entry.keys
                and entry.message.sys_flag & flags.TRANSACTION_MASK != flags.ROLLBACK
            ]
            assert [one.physical_offset for one in store.find(topic, key_text)] == expected


def nearest(queue: list[Entry], moment: int) -> set[int]:
    """The documented rule: in the first queue file whose newest message is not older than the moment, else in the
    last, the nearest in time; the older of two equally near; of several of one time any."""
    files = [queue[at : at + ENTRIES_PER_FILE] for at in range(0, len(queue), ENTRIES_PER_FILE)]
    searched = next((file for file in files[:-1] if file[-1].time_ms >= moment), files[-1])
    same = {entry.queue_offset for entry in searched if entry.time_ms == moment}
    if same:
        return same
    best = min(searched, key=lambda entry: (abs(entry.time_ms - moment), entry.time_ms))
    return {entry.queue_offset for entry in searched if entry.time_ms == best.time_ms}


def _paths(disk: LossyFiles, directory: Path) -> list[Path]:
    if not disk.exists(directory):
        return []
    found: list[Path] = []
    for entry in disk.list_directory(directory):
        path = directory / entry.name
        found += [path] if entry.is_file else _paths(disk, path)
    return found


COMMON: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
}


class SyncStoreModel(StoreModel):
    flush = FlushDisk.SYNC


@pytest.mark.parametrize("machine", [StoreModel, SyncStoreModel])
@pytest.mark.parametrize("tail_bytes", [500, 64 << 20], ids=["short tail", "whole tail"])
@pytest.mark.slow(10)
def test_the_store_and_its_model_agree(
    machine: type[StoreModel], tail_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_mark, "TAIL_BYTES", tail_bytes)
    chosen = settings(**COMMON, max_examples=20, stateful_step_count=30, derandomize=True)
    run_state_machine_as_test(machine, settings=chosen)


@pytest.mark.long
@pytest.mark.parametrize("machine", [StoreModel, SyncStoreModel])
@pytest.mark.parametrize("tail_bytes", [500, 64 << 20], ids=["short tail", "whole tail"])
def test_they_agree_for_long(machine: type[StoreModel], tail_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_mark, "TAIL_BYTES", tail_bytes)
    run_state_machine_as_test(machine, settings=settings(**COMMON, max_examples=600, stateful_step_count=60))
