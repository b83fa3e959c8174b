"""Readers that are interrupted while they open: between two of their looks at the disk the writer appends, writes queue
files, deletes old files or a topic. Whatever it does, each queue that a reader shows must be an unbroken row.

`interrupt` lets one reader after another look beside the same writer, each interrupted at another place, or again and
again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from embermq import Message, MessageStore
from embermq.inspect.snapshot import Survey
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
        ROOT,
        files=LossyFiles(),
        flush=flush,
        segment_bytes=4096,
        queue_file_bytes=20 * 16,
        index_slots_max=16,
        index_entries_max=60,
        queue_flush_interval_ms=3_600_000,
        kernels=KernelUse.NEVER,
        delayed_delivery=False,
    )


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
        self.store.engine.services.housekeeping.write_out()

    def append_and_write_out(self) -> None:
        self.append(2)
        self.write_out()

    def make_durable(self) -> None:
        self.append(1)
        self.store.engine.services.housekeeping.make_durable()

    def expire(self) -> None:
        """Old files go, all but a few."""
        self.append_and_write_out()
        self.store.flush()
        while len(self.store.engine.log.segments) > 4:
            self.store.engine.log.segments.delete_first()
        queues, index = self.store.engine.queues, self.store.engine.index
        assert queues is not None
        assert index is not None
        queues.correct_min(self.store.min_physical)
        for queue in queues.all():
            queue.let_go_before(self.store.min_physical)
        index.let_go_before(self.store.min_physical)
        self.store.engine.services.housekeeping.make_durable()
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


@dataclass(frozen=True, slots=True)
class Rows:
    """What a reader shows of a queue: its bounds, and offset and body of each message."""

    low: int
    high: int
    messages: list[tuple[int, bytes]]


Shown = dict[tuple[str, int], Rows]


def by_opening(builder: StoreBuilder) -> Shown:
    """By opening the store read-only, each fetch begun where the one before ended; keys are asked for as well."""
    shown = {}
    with builder.open(read_only=True) as reader:
        for topic, queue_id in QUEUES:
            low, high = reader.min_offset(topic, queue_id), reader.max_offset(topic, queue_id)
            at, found = low, []
            while at < high:
                outcome = reader.fetch(topic, queue_id, at)
                found += [(one.queue_offset, one.body) for one in outcome.messages]
                assert outcome.next_offset > at
                at = outcome.next_offset
            shown[topic, queue_id] = Rows(low, high, found)
            for offset, _ in (*found[:2], *found[-5:]):
                keys = [one.queue_offset for one in reader.find(topic, f"{topic}{queue_id}-{offset}")]
                assert offset in keys, (topic, queue_id, offset)
    return shown


def by_survey(builder: StoreBuilder) -> Shown:
    """By a look from outside, as Spark and the tools do it. Records that have expired by the end are passed over: their
    files may go between the reading of two of them."""
    survey = Survey.open(ROOT, files=builder.files)
    read = {}
    for key, span in survey.queues().items():
        places = [int(entry["physical_offset"]) for entry in survey.entries(*key, span.min_offset, span.max_offset)]
        read[key] = span, [(place, survey._log.frame_at(place)) for place in places]
    log_min = min(int(entry.name) for entry in builder.files.list_directory(ROOT / "commitlog"))
    shown = {}
    for key, (span, frames) in read.items():
        gone = sum(place < log_min for place, _ in frames)
        found = [(frame.queue_offset, bytes(frame.body)) for _, frame in frames[gone:] if frame is not None]
        shown[key] = Rows(span.min_offset + gone, span.max_offset, found)
    return shown


def check(shown: Shown, before: Bounds, lives: range) -> None:
    """Each queue is an unbroken row, of one life of its topic, and has at least what there was `before`."""
    for (topic, queue_id), end in before.items():
        rows = shown.get((topic, queue_id), Rows(0, 0, []))
        where = (topic, queue_id, rows.low, rows.high)
        offsets = [offset for offset, _ in rows.messages]
        assert offsets == list(range(rows.low, rows.high)), (where, offsets)
        of_life = {int(body.split()[-1]) for _, body in rows.messages}
        assert len(of_life) <= 1, (where, of_life)
        assert [body for _, body in rows.messages] == [b"%d of %d" % (n, *of_life) for n in offsets]
        if topic == "B" and len(lives) > 1:  # It was deleted meanwhile: an old one, the new one, or none.
            assert of_life <= set(lives), (where, of_life)
        else:
            assert rows.high >= end, (where, end)


def interrupt(
    look: Callable[[StoreBuilder], Shown], name: str, flush: FlushDisk, *, openings: int, again: bool = False
) -> None:
    """Let about so many readers look, each interrupted before another one of its looks; with `again`, before every
    look that has this number or a multiple of it."""
    builder = plan(flush)
    files = builder.files
    with builder.open() as store:
        writer = Writer(store)
        writer.append(20)
        writer.write_out()
        writer.append(3)  # In no queue file yet.
        through, counter = InterruptedFiles.around(files)
        look(builder.on(through))
        total = len(counter.calls)
        for at in range(1, total + 1, max(1, total // openings)):
            before, life = dict(writer.next), writer.life
            through, _ = InterruptedFiles.around(files, at, lambda: ACTIONS[name](writer), again=again)
            shown = look(builder.on(through))
            check(shown, before, range(life, writer.life + 1))
            if writer.next["A", 0] > 60:
                writer.expire()
            writer.append(1)
