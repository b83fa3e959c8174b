"""Readers that are interrupted while they open: between two of their looks at the disk the writer appends, writes queue
files, deletes old files or a topic. Whatever it does, each queue that a reader shows must be an unbroken row.

`interrupt_openings` opens one reader after another beside the same writer, each interrupted at another place, or again
and again.
"""

from collections.abc import Callable
from pathlib import Path

from embermq import Message, MessageStore
from embermq.settings import FlushDisk, KernelUse
from embermq.testing.builder import StoreBuilder
from embermq.testing.lossy_files import LossyFiles
from tests.support.interrupted_files import InterruptedFiles

ROOT = Path("/store")
QUEUES = [("A", 0), ("A", 1), ("B", 0)]

Bounds = dict[tuple[str, int], int]


def plan(flush: FlushDisk = FlushDisk.ASYNC) -> StoreBuilder:
    # Housekeeping must not write out on its own: only the actions of a test do.
    return StoreBuilder(
        ROOT, files=LossyFiles(), flush=flush, segment_bytes=4096, queue_file_bytes=20 * 16, index_slots_max=16,
        index_entries_max=60, queue_flush_interval_ms=3_600_000, kernels=KernelUse.NEVER, delayed_delivery=False,
    )  # fmt: skip


class Writer:
    """The store that is written, and what each queue must show."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.life = 0
        self.next: Bounds = dict.fromkeys(QUEUES, 0)

    def append(self, count: int) -> None:
        for _ in range(count):
            for topic, queue_id in QUEUES:
                number = self.next[topic, queue_id]
                body = b"%d of %d" % (number, self.life if topic == "B" else 0)
                self.store.append(Message(topic, body, queue_id=queue_id, keys=[f"{topic}{queue_id}-{number}"]))
                self.next[topic, queue_id] = number + 1
        self.store.wait_for_dispatch()

    def write_out(self) -> None:
        self.store._housekeeping.write_out()

    def append_and_write_out(self) -> None:
        self.append(2)
        self.write_out()

    def make_durable(self) -> None:
        self.append(1)
        self.store._housekeeping.make_durable()

    def expire(self) -> None:
        """Old files go, all but a few."""
        self.append_and_write_out()
        self.store.flush()
        while len(self.store._log.segments) > 4:
            self.store._log.segments.delete_first()
        queues, index = self.store._queues, self.store._index
        assert queues is not None
        assert index is not None
        queues.correct_min(self.store.min_physical)
        for queue in queues.all():
            queue.let_go_before(self.store.min_physical)
        index.let_go_before(self.store.min_physical)
        self.store._housekeeping.make_durable()
        queues.delete_before(self.store.min_physical)
        index.remove_let_go()

    def delete_topic(self) -> None:
        """B goes and begins again."""
        self.store.delete_topic("B")
        self.life += 1
        self.next["B", 0] = 0
        self.append(2)


ACTIONS: dict[str, Callable[[Writer], None]] = {
    "writes out": Writer.write_out,
    "appends": lambda writer: writer.append(3),
    "appends and writes out": Writer.append_and_write_out,
    "syncs": Writer.make_durable,
    "expires": Writer.expire,
    "deletes a topic": Writer.delete_topic,
}


def delivered(store: MessageStore, topic: str, queue_id: int) -> list[tuple[int, bytes]]:
    """All of a queue, each fetch begun where the one before ended."""
    at, found = store.min_offset(topic, queue_id), []
    while at < store.max_offset(topic, queue_id):
        outcome = store.fetch(topic, queue_id, at)
        found += [(one.queue_offset, one.body) for one in outcome.messages]
        assert outcome.next_offset > at
        at = outcome.next_offset
    return found


def check(reader: MessageStore, before: Bounds, lives: set[int]) -> None:
    """Each queue is an unbroken row, of one life of its topic, and has at least what there was `before`."""
    for (topic, queue_id), end in before.items():
        found = delivered(reader, topic, queue_id)
        offsets = [offset for offset, _ in found]
        low, high = reader.min_offset(topic, queue_id), reader.max_offset(topic, queue_id)
        assert offsets == list(range(low, high)), (topic, queue_id, low, high, offsets)
        of_life = {int(body.split()[-1]) for _, body in found}
        assert len(of_life) <= 1, (topic, queue_id, of_life)
        assert [body for _, body in found] == [b"%d of %d" % (n, *of_life) for n in offsets]
        if topic == "B" and len(lives) > 1:  # It was deleted meanwhile: the old one, the new one, or none.
            assert of_life <= lives
        else:
            assert high >= end, (topic, queue_id, high, end)
        for offset in (*offsets[:2], *offsets[-5:]):
            keys = [one.queue_offset for one in reader.find(topic, f"{topic}{queue_id}-{offset}")]
            assert offset in keys, (topic, queue_id, offset)


def calls_of_an_opening(files: LossyFiles, builder: StoreBuilder) -> int:
    through, counter = InterruptedFiles.around(files)
    with builder.on(through).open(read_only=True):
        return len(counter.calls)


def interrupt_openings(name: str, flush: FlushDisk, *, openings: int, again: bool = False) -> None:
    """Open about so many readers, each interrupted before another one of its looks; with `again`, before every look
    that has this number or a multiple of it."""
    builder = plan(flush)
    files = builder.files
    assert isinstance(files, LossyFiles)
    with builder.open() as store:
        writer = Writer(store)
        writer.append(20)
        writer.write_out()
        writer.append(3)  # In no queue file yet.
        total = calls_of_an_opening(files, builder)
        for at in range(1, total + 1, max(1, total // openings)):
            before, life = dict(writer.next), writer.life
            through, _ = InterruptedFiles.around(files, at, lambda: ACTIONS[name](writer), again=again)
            with builder.on(through).open(read_only=True) as reader:
                check(reader, before, {life, writer.life})
            if writer.next["A", 0] > 60:
                writer.expire()
            writer.append(1)
