"""A small store of many kinds of messages, and what it must answer: the starting point of a fuzz round.

Everything follows from a number, the seed: file sizes, flush mode, topics and queues, kinds of messages, a topic that
is deleted, old files that expire, a restart in between, and how the store ends:

    closed      a clean close
    fresh       copied while it is open, just after the last append: what kill -9 leaves
    written     the same after queue entries were written out
    durable     the same after everything was synced

`Truth.records` is the log, record by record, compared with every receipt when it is made. A copy of a store
(`copy_tree`) keeps what its state page proves: the page is given the identity of the copy.
"""

import os
import random
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

from embermq import BatchItem, Message, MessageBatch, MessageStore, Receipt, StoredMessage, StoreSettings
from embermq.files import RealFiles
from embermq.model import flags
from embermq.settings import FlushDisk, KernelUse
from embermq.store.layout.state_page import STATE_FILE as STATE
from embermq.store.log import tail_mark
from embermq.testing.clock import ManualClock

STORE = "store"  # The store below a round's directory.
OUTSIDE = "outside"  # What lies beside it, and is not to be touched.
TOPICS = ("Orders", "Payments", "Audit")
_IDENTITY_AT = (56, 128 + 56)  # In the state page: the number and its inverse.
_MASK = (1 << 64) - 1
_NEVER_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the log: the message as a reader is to get it, and its bytes."""

    message: StoredMessage
    raw: bytes
    queued: bool
    indexed: bool
    deleted: bool  # Its topic was deleted after it: it is in no queue.

    @property
    def start(self) -> int:
        return self.message.physical_offset

    @property
    def end(self) -> int:
        return self.message.end

    @property
    def queue(self) -> tuple[str, int]:
        return self.message.topic, self.message.queue_id

    @property
    def keys(self) -> list[str]:
        unique = self.message.unique_key
        return [*self.message.keys, *([unique] if unique else [])]


@dataclass(frozen=True, slots=True)
class Truth:
    """A store as it was written."""

    seed: int
    template: Path  # Holds STORE and OUTSIDE; copied for each round.
    settings: StoreSettings
    ending: str
    flushed: int
    log_end: int
    records: list[Record]
    blanks: list[int]  # Where log files are closed by a blank.
    trusting: bool  # Starts believe what earlier runs proved, as in a store that is larger than its tail.
    deletes: bool
    by_start: dict[int, Record] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return self.ending == "closed"

    def __str__(self) -> str:
        s = self.settings
        return (
            f"{len(self.records)} records, log {self.records[0].start}..{self.log_end} in files of {s.segment_bytes},"
            f" {s.flush.name}, {self.ending}, flushed to {self.flushed}"
            f"{', trusting' if self.trusting else ''}{', a topic was deleted' if self.deletes else ''}"
            f"{', extension' if s.queue_extension else ''}"
        )


@contextmanager
def tails(trusting: bool) -> Iterator[None]:
    """A start reads the log's tail again, tens of megabytes of it, which here would be everything. Made short, so that
    what the proofs of earlier runs cover is believed in a round as it is in a large store."""
    with mock.patch.object(tail_mark, "TAIL_BYTES", 400 if trusting else tail_mark.TAIL_BYTES):
        yield


def write_truth(directory: Path, seed: int) -> Truth:
    """The store of this seed, in a new directory."""
    return _Writing(directory, seed).run()


class _Writing:
    def __init__(self, directory: Path, seed: int) -> None:
        self.source = random.Random(f"truth {seed}")
        self.directory, self.seed = directory, seed
        self.clock = ManualClock()
        self.settings = StoreSettings(**self._sizes())
        self.ending = self.source.choice(("closed", "closed", "closed", "fresh", "written", "durable"))
        self.trusting = self.source.random() < 0.4
        self.deletes = self.source.random() < 0.3
        self.acknowledged: dict[int, tuple[int, bytes]] = {}  # Place -> queue offset and body.
        self.deleted: dict[str, int] = {}
        self.number = 0

    def _sizes(self) -> dict[str, Any]:
        source = self.source
        slots, entries = source.choice(((16, 40), (64, 200), (50, 1000)))
        return {
            "segment_bytes": source.choice((8192, 16384, 16384, 65536)),
            "queue_file_bytes": 20 * source.choice((8, 32, 100)),
            "index_slots_max": slots,
            "index_entries_max": entries,
            "flush": source.choice((FlushDisk.SYNC, FlushDisk.ASYNC)),
            "queue_extension": source.random() < 0.2,
            "queue_extension_file_bytes": 2000,
            "delayed_delivery": False,
            "sync_flush_timeout_ms": 600_000,
            "kernels": KernelUse.NEVER,
            "disk_full_percent": 100,
            # Nothing happens by time: the same seed gives the same files.
            "flush_interval_ms": _NEVER_MS,
            "flush_thorough_interval_ms": _NEVER_MS,
            "queue_flush_interval_ms": _NEVER_MS,
            "queue_flush_thorough_interval_ms": _NEVER_MS,
        }

    def run(self) -> Truth:
        root = self.directory / "writing"
        with tails(self.trusting):
            steps = self.source.randrange(25, 65)
            restart = self.source.randrange(steps) if self.source.random() < 0.4 else -1
            drop = steps * 2 // 3 if self.deletes else -1
            expire = steps * 3 // 4 if self.source.random() < 0.25 else -1
            flush = self.source.randrange(2 * steps)
            store = self._open(root)
            for step in range(steps):
                self._append(store)
                store.wait_for_dispatch()
                if step == flush:
                    store.flush()
                if step == steps - 3:  # As every second: the last appends alone are not written out.
                    store.engine.services.housekeeping.write_out()
                if step == restart:
                    store.close()
                    store = self._open(root)
                if step == drop:
                    self._drop_topic(store)
                if step == expire:
                    store.wait_for_dispatch()
                    store.delete_expired(before_ms=self.clock.now_ms() - 20_000)
            return self._end(store, root)

    def _open(self, root: Path) -> MessageStore:
        return MessageStore.open(root, self.settings, clock=self.clock)

    def _end(self, store: MessageStore, root: Path) -> Truth:
        store.wait_for_dispatch()
        if self.ending == "durable":
            store.flush()
            store.engine.services.housekeeping.make_durable()
        elif self.ending == "written":
            store.engine.services.housekeeping.write_out()
        messages = list(store.scan())
        flushed, log_end = store.flushed_offset, store.max_physical
        template = self.directory / "template"
        if self.ending == "closed":
            store.close()
            copy_tree(root, template / STORE)
        else:
            copy_tree(root, template / STORE)
            store.close()
        shutil.rmtree(root)
        self._settle_next_file(template / STORE / "commitlog", log_end)
        records = self._records(messages, template / STORE)
        truth = Truth(
            self.seed,
            template,
            self.settings,
            self.ending,
            log_end if self.ending == "closed" else flushed,
            log_end,
            records,
            self._blanks(messages),
            self.trusting,
            bool(self.deleted),
        )
        truth.by_start.update((one.start, one) for one in records)
        return truth

    def _settle_next_file(self, logs: Path, log_end: int) -> None:
        """Files are made ahead in the background: the seed says whether there is one."""
        if self.ending == "closed":
            return
        for path in logs.iterdir():
            if int(path.name) >= log_end:
                path.unlink()
        if self.source.random() < 0.5:
            size = self.settings.segment_bytes
            (logs / f"{-(-log_end // size) * size:020d}").write_bytes(bytes(size))

    # -- messages --------------------------------------------------------------------------------------------

    def _message(self, **changes: Any) -> Message:
        source, n = self.source, self.number
        self.number += 1
        body = b"%d|" % n + source.randbytes(source.choice((0, 20, 100, 100, 300, 1500)))
        keys = () if source.random() < 0.15 else (f"id{n}", f"shared{n % 7}")
        properties = {"UNIQ_KEY": f"U{n}"} if n % 3 == 0 else {"p": "x" * (1 + n % 40)}
        fields: dict[str, Any] = {
            "topic": source.choice(TOPICS),
            "body": body,
            "keys": keys,
            "properties": properties,
            "tags": source.choice((None, "paid", "sent")),
            "queue_id": source.randrange(3),
        }
        return Message(**(fields | changes))

    def _append(self, store: MessageStore) -> None:
        source = self.source
        self.clock.advance(ms=source.randrange(2000))
        kind = source.choice(("one", "one", "one", "many", "batch", "delayed", "prepared", "rolled back", "run"))
        if kind == "many":
            messages = [self._message() for _ in range(source.randrange(2, 7))]
            self._heard(messages, store.append_many(messages))
        elif kind == "run" and source.random() < 0.3:
            messages = [self._message() for _ in range(40)]
            self._heard(messages, store.append_many(messages))
        elif kind == "batch":
            self._append_batch(store)
        else:
            flag = {"prepared": flags.PREPARED, "rolled back": flags.ROLLBACK}.get(kind, 0)
            message = self._message(sys_flag=flag, delay_level=1 + self.number % 3 if kind == "delayed" else 0)
            self._heard([message], [store.append(message)])

    def _append_batch(self, store: MessageStore) -> None:
        messages = [self._message() for _ in range(3)]
        items = [BatchItem(one.body, one.all_properties()) for one in messages]
        header = Message(messages[0].topic, queue_id=messages[0].queue_id)
        receipt = store.append_batch(MessageBatch(header, items))
        assert receipt.ok, receipt
        for at, (place, one) in enumerate(zip((receipt.physical_offset, *receipt.later_offsets), items, strict=True)):
            self.acknowledged[place] = receipt.queue_offset + at, one.body

    def _heard(self, messages: list[Message], receipts: Any) -> None:
        for message, receipt in zip(messages, receipts, strict=True):
            assert isinstance(receipt, Receipt)
            assert receipt.ok, receipt
            self.acknowledged[receipt.physical_offset] = receipt.queue_offset, message.body

    def _drop_topic(self, store: MessageStore) -> None:
        topic = self.source.choice(TOPICS)
        store.delete_topic(topic)
        self.deleted[topic] = store.max_physical

    # -- what was written --------------------------------------------------------------------------------------

    def _records(self, messages: list[StoredMessage], root: Path) -> list[Record]:
        found = {one.physical_offset: (one.queue_offset, one.body) for one in messages}
        first = messages[0].physical_offset
        expected = {at: reported for at, reported in self.acknowledged.items() if at >= first}
        assert {at: body for at, (_, body) in found.items()} == {at: body for at, (_, body) in expected.items()}
        size = self.settings.segment_bytes
        files = {int(path.name): path.read_bytes() for path in (root / "commitlog").iterdir()}
        records = []
        for one in messages:
            at = one.physical_offset % size
            raw = files[one.physical_offset - at][at : at + one.size]
            records.append(
                Record(
                    one,
                    raw,
                    flags.has_queue_entry(one.sys_flag),
                    one.sys_flag & flags.TRANSACTION_MASK != flags.ROLLBACK,
                    one.physical_offset < self.deleted.get(one.topic, 0),
                )
            )
        return records

    def _blanks(self, messages: list[StoredMessage]) -> list[int]:
        size = self.settings.segment_bytes
        pairs = pairwise(messages)
        return [one.end for one, other in pairs if one.end % size and one.end // size != other.physical_offset // size]


# -- copies --------------------------------------------------------------------------------------------------------


def copy_tree(source: Path, target: Path) -> None:
    """A copy that keeps links, pipes and times, and that the state page of the store in it is about."""
    target.mkdir(parents=True)
    for item in os.scandir(source):
        copy = target / item.name
        mode = item.stat(follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            copy.symlink_to(os.readlink(item.path))
        elif stat.S_ISDIR(mode):
            copy_tree(Path(item.path), copy)
        elif stat.S_ISFIFO(mode):
            os.mkfifo(copy)
        else:
            shutil.copy2(item.path, copy)
            if item.name == STATE:
                _adopt_page(Path(item.path), copy)


def _adopt_page(source: Path, copy: Path) -> None:
    """Make the state page say that it belongs to the copy, if it said so of its source."""
    files = RealFiles()
    old, new = files.identity(source), files.identity(copy)
    data = bytearray(copy.read_bytes())
    for at, before, after in zip(_IDENTITY_AT, (old, ~old & _MASK), (new, ~new & _MASK), strict=True):
        if data[at : at + 8] == before.to_bytes(8, "little"):
            data[at : at + 8] = after.to_bytes(8, "little")
    times = source.stat()
    copy.write_bytes(data)
    os.utime(copy, ns=(times.st_atime_ns, times.st_mtime_ns))


def snapshot(directory: Path) -> dict[str, tuple[str, bytes]]:
    """Every name below a directory: what it is, and its bytes."""
    found: dict[str, tuple[str, bytes]] = {}
    for parent, directories, names in os.walk(directory):
        for name in (*directories, *names):
            path = Path(parent, name)
            key, mode = str(path.relative_to(directory)), path.lstat().st_mode
            if stat.S_ISLNK(mode):
                found[key] = "link", os.fsencode(os.readlink(path))
            elif stat.S_ISDIR(mode):
                found[key] = "directory", b""
            elif stat.S_ISREG(mode):
                found[key] = "file", path.read_bytes()
            else:
                found[key] = "other", b""
    return found
