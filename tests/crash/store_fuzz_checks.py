"""What a damaged store must still answer, compared with the truth.

    Expected      which records are intact in their own place of the log, and so must be delivered
    Answers       everything an open store delivers: by queue, by key, by id, by scan
    Failures      what was not as it must be; a round goes on after one

A record is intact if the file of its own name holds its bytes at its place. Exempt is what no store can know: past the
flushed position of a store that was not closed, what follows a damaged place is a tail that was never confirmed; and
the parts of its queues and index that had no checksum yet.
"""

import signal
import stat
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TypeVar

from embermq import MessageStore, StoredMessage
from embermq.errors import EmberError
from embermq.store.layout.deleted_topics import DELETED_TOPICS_FILE as DELETED_TOPICS
from embermq.store.log.damage import FILLER_TOPIC
from tests.crash.store_fuzz_truth import Record, Truth

R = TypeVar("R")
SECONDS_MAX = 60.0  # For one operation of a store that is read in milliseconds.
_SHOWN_MAX = 6


class TookTooLong(BaseException):
    """The time limit of an operation; no handler of ours may swallow it."""


@dataclass(slots=True)
class Failures:
    """What went wrong in a round."""

    found: dict[str, list[str]] = field(default_factory=dict)  # By kind.
    compared: int = 0  # messages

    def add(self, kind: str, text: object) -> None:
        self.found.setdefault(kind, []).append(str(text))

    @property
    def texts(self) -> list[str]:
        """One line a kind: the first of them, and how many there are."""
        return [
            f"{kind}: {texts[0]}{f' (and {len(texts) - 1} more)' if texts[1:] else ''}"
            for kind, texts in self.found.items()
        ]

    def run(self, name: str, call: Callable[[], R], *, may_refuse: bool = False) -> R | None:
        """Call it within the time limit. Its answer; None if it failed. A refusal is an error of ours, in one line."""
        try:
            with time_limit(SECONDS_MAX):
                return call()
        except EmberError as problem:
            if not may_refuse or "\n" in str(problem):
                self.add(f"{name} refused", f"{type(problem).__name__}: {problem}")
        except TookTooLong as problem:
            self.add(f"{name} hangs", "".join(traceback.format_tb(problem.__traceback__)[-4:]))
        except Exception as problem:
            where = "".join(traceback.format_exception(problem)[-5:])
            self.add(f"{name} raised", f"{type(problem).__name__}: {problem}\n{where}")
        return None


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """TookTooLong in the main thread after so long, also out of a system call that waits."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TookTooLong(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Expected:
    """What must be delivered of a store after its files were changed."""

    def __init__(self, truth: Truth, root: Path) -> None:
        self.truth, self.root = truth, root
        self._logs: dict[int, bytes] = {}
        self.intact = {one.start for one in truth.records if self._has(one.start, one.raw)}
        limit = self._confirmed_end()
        self.required = [one for one in truth.records if one.start in self.intact and one.start < limit]
        note = root / DELETED_TOPICS
        template = truth.template / "store" / DELETED_TOPICS
        self.knows_deletions = not truth.deletes or _bytes_of(note) == _bytes_of(template)
        self.odd_logs = self._odd_log_files()
        self.index_unproven = not truth.clean and self._is_index_changed()
        self.unproven_queues = self._changed_queues() if truth.trusting and not truth.clean else set()
        self.may_refuse = self._has_odd_kinds()
        self.rebuild_may_refuse = self.may_refuse or not self.required or self._has_links()

    def _has(self, start: int, raw: bytes) -> bool:
        size = self.truth.settings.segment_bytes
        at = start % size
        if start - at not in self._logs:
            self._logs[start - at] = _bytes_of(self.root / "commitlog" / f"{start - at:020d}") or b""
        return self._logs[start - at][at : at + len(raw)] == raw

    def _confirmed_end(self) -> int:
        """Where a tail begins that nobody confirmed, behind a damaged place of a store that was not closed."""
        truth = self.truth
        if truth.clean:
            return truth.log_end
        blank_sizes = {at: truth.settings.segment_bytes - at % truth.settings.segment_bytes for at in truth.blanks}
        damaged = [one.start for one in truth.records if one.start not in self.intact]
        damaged += [at for at, size in blank_sizes.items() if not self._has(at, size.to_bytes(4, "big"))]
        return min((at for at in damaged if at >= truth.flushed), default=truth.log_end)

    def _has_odd_kinds(self) -> bool:
        """Is something that is no directory where one must be, or no file where log files are?"""
        for name in ("commitlog", "consumequeue", "consumequeue_ext", "index", "config", "quarantine"):
            path = self.root / name
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                return True
        lock = self.root / "lock"
        is_odd = any((self.root / name).is_symlink() or not (self.root / name).is_file() for name in self.odd_logs)
        return is_odd or ((lock.is_symlink() or lock.exists()) and not stat.S_ISREG(lock.lstat().st_mode))

    def _odd_log_files(self) -> set[str]:
        """What has the name of a log file and is none, or is longer: left to the operator, and reported by `verify`."""
        logs = self.root / "commitlog"
        size = self.truth.settings.segment_bytes
        found = sorted(logs.iterdir()) if logs.is_dir() else []
        return {
            f"commitlog/{path.name}"
            for path in found
            if path.name.isdigit()
            and (int(path.name) % size or not stat.S_ISREG(path.lstat().st_mode) or path.stat().st_size > size)
        }

    def _is_index_changed(self) -> bool:
        """Of a store that was not closed: what came to the index since it was last synced has no checksum yet. Flipped
        bits there may hide keys until the scrub, or a rebuild, makes the file again."""
        template = self.truth.template / "store"
        names = [path.relative_to(template) for path in (template / "index").iterdir()]
        return any(_bytes_of(self.root / name) not in (None, _bytes_of(template / name)) for name in names)

    def _changed_queues(self) -> set[tuple[str, int]]:
        """Likewise: a queue file that is not full has no checksum, and a start after a kill believes it, but for what
        the end of the log tells."""
        template = self.truth.template / "store"
        found = set()
        for path in (template / "consumequeue").glob("*/*/*"):
            if _bytes_of(self.root / path.relative_to(template)) not in (None, path.read_bytes()):
                found.add((path.parts[-3], int(path.parts[-2])))
        return found

    def _has_links(self) -> bool:
        """Are there links below directories that a rebuild replaces? It refuses to."""
        tops = [self.root / name for name in ("consumequeue", "consumequeue_ext", "index")]
        return any(path.is_symlink() for top in tops for path in top.rglob("*"))

    def queues(self) -> dict[tuple[str, int], list[Record]]:
        """What each queue must deliver."""
        found: dict[tuple[str, int], list[Record]] = defaultdict(list)
        for one in self.required:
            if one.queued and not one.deleted:
                found[one.queue].append(one)
        return found

    def keys(self) -> dict[tuple[str, str], list[Record]]:
        found: dict[tuple[str, str], list[Record]] = defaultdict(list)
        for one in self.required:
            for key in one.keys if one.indexed else ():
                found[one.message.topic, key].append(one)
        return found


def _bytes_of(path: Path) -> bytes | None:
    """Of a plain file; None if there is none."""
    if path.is_symlink() or not path.is_file():
        return None
    return path.read_bytes()


@dataclass(slots=True)
class Answers:
    """What an open store delivers."""

    queues: dict[tuple[str, int], list[StoredMessage]] = field(default_factory=dict)
    keys: dict[tuple[str, str], list[StoredMessage]] = field(default_factory=dict)
    scanned: list[StoredMessage] = field(default_factory=list)
    got: list[StoredMessage | None] = field(default_factory=list)  # By id, of each required record.


def ask(store: MessageStore, expected: Expected, failures: Failures, name: str) -> Answers:
    """Everything a store can be asked for."""
    answers = Answers()
    truth = expected.truth
    queues = {one.queue for one in truth.records if one.queued}
    topics = failures.run(f"{name} topics", store.topics) or {}
    queues |= {(topic, queue_id) for topic, ids in topics.items() for queue_id in ids}
    for topic, queue_id in sorted(queues):
        found = failures.run(f"{name} fetch", partial(fetch_all, store, topic, queue_id))
        answers.queues[topic, queue_id] = found or []
    keys = sorted({(one.message.topic, key) for one in truth.records for key in one.keys})
    found_keys = failures.run(f"{name} find", lambda: {key: store.find(*key) for key in keys})
    answers.keys = found_keys or {}
    answers.scanned = failures.run(f"{name} scan", lambda: list(store.scan())) or []
    ids = [one.message.message_id for one in expected.required]
    answers.got = failures.run(f"{name} get", lambda: [store.get(one) for one in ids]) or []
    return answers


class NoProgress(Exception):
    """A fetch that leads nowhere."""


def fetch_all(store: MessageStore, topic: str, queue_id: int) -> list[StoredMessage]:
    """What a consumer gets that reads a queue from its beginning."""
    delivered: list[StoredMessage] = []
    at, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    while at < end:
        outcome = store.fetch(topic, queue_id, at, max_messages=1 + 31 * (at % 3))
        delivered += outcome.messages
        if outcome.next_offset <= at:
            raise NoProgress(f"{topic}-{queue_id} at {at} of {end}: {outcome.status} {outcome.next_offset}")
        at = outcome.next_offset
    return delivered


class Check:
    """Compares answers with what must be."""

    def __init__(self, expected: Expected, failures: Failures, name: str, *, complete: bool) -> None:
        self.expected, self.failures, self.name, self.complete = expected, failures, name, complete
        self.added: dict[int, StoredMessage] = {}  # Appended by the round itself.

    def answers(self, answers: Answers) -> None:
        for queue, messages in answers.queues.items():
            self._queue(queue, messages)
        for key, messages in answers.keys.items():
            self._true("find", messages, key)
            bad = [one for one in messages if key[1] not in (*one.keys, one.unique_key) or one.topic != key[0]]
            if bad:
                self._tell("find", "answers other keys", bad, key)
        self._true("scan", [one for one in answers.scanned if not is_filler(one)])
        got = [one for one in answers.got if one is not None]
        self._true("get", got)
        if self.complete:
            self._complete(answers)

    def _queue(self, queue: tuple[str, int], messages: list[StoredMessage]) -> None:
        self._true("fetch", messages, queue)
        guests = [one for one in messages if (one.topic, one.queue_id) != queue]
        if guests:
            self._tell("fetch", "delivers of another queue", guests, queue)
        offsets = [one.queue_offset for one in messages]
        if offsets != sorted(set(offsets)):
            self._tell("fetch", "is out of order", offsets, queue)
        if self.expected.knows_deletions:
            gone = [one for one in messages if (known := self._known(one)) is not None and known.deleted]
            if gone:
                self._tell("fetch", "delivers of a deleted topic", gone, queue)

    def _known(self, message: StoredMessage) -> Record | None:
        return self.expected.truth.by_start.get(message.physical_offset)

    def _true(self, call: str, messages: list[StoredMessage], of: object = "") -> None:
        """Every message is one that was written, byte for byte."""
        self.failures.compared += len(messages)
        for one in messages:
            known = self._known(one)
            if self.added.get(one.physical_offset) != one and (known is None or known.message != one):
                self._tell(call, "delivers a wrong message", [one], of)

    def _complete(self, answers: Answers) -> None:
        expected = self.expected
        for queue, records in expected.queues().items():
            is_unproven = queue in expected.unproven_queues and self.name in ("read-only", "opened")
            if not is_unproven and (expected.knows_deletions or queue[0] not in _deleted_topics(expected.truth)):
                self._all("fetch", records, answers.queues.get(queue, []), queue)
        if answers.keys and not (expected.index_unproven and self.name in ("read-only", "opened")):
            for key, records in expected.keys().items():
                self._all("find", records, answers.keys.get(key, []), key)
        self._all("scan", expected.required, answers.scanned)
        missing = [one for one, got in zip(expected.required, answers.got, strict=False) if got is None]
        if missing:
            self._tell("get", "misses intact messages", [one.message for one in missing])

    def _all(self, call: str, records: list[Record], messages: list[StoredMessage], of: object = "") -> None:
        delivered = {one.physical_offset for one in messages}
        missing = [one.message for one in records if one.start not in delivered]
        if missing:
            self._tell(call, "misses intact messages", missing, of)

    def _tell(self, call: str, what: str, items: list[StoredMessage] | list[int], of: object = "") -> None:
        shown = [
            one if isinstance(one, int) else (one.topic, one.queue_id, one.queue_offset, one.physical_offset)
            for one in items[:_SHOWN_MAX]
        ]
        self.failures.add(f"{self.name} {call} {what}", f"{of} {len(items)}: {shown}")


def _deleted_topics(truth: Truth) -> set[str]:
    return {one.message.topic for one in truth.records if one.deleted}


def is_filler(message: StoredMessage) -> bool:
    return message.topic == FILLER_TOPIC[: len(message.topic)]


def check_same(reader: Answers, writer: Answers, failures: Failures, *, keys: bool) -> None:
    """A reader may end earlier than an opening for writing, and never skips."""
    for queue, messages in reader.queues.items():
        own = writer.queues.get(queue, [])
        if messages != own[: len(messages)]:
            failures.add("read-only fetch differs", f"{queue} {_difference(messages, own)}")
    for key, messages in reader.keys.items() if keys else ():
        own = writer.keys.get(key, [])
        if messages != own[: len(messages)]:
            failures.add("read-only find differs", f"{key} {_difference(messages, own)}")


def _difference(messages: list[StoredMessage], own: list[StoredMessage]) -> str:
    read, written = ([one.physical_offset for one in some] for some in (messages, own))
    skipped = [at for at in written if at not in read and read and at < read[-1]]
    return f"skipped {skipped[:_SHOWN_MAX]}, only read {[at for at in read if at not in written][:_SHOWN_MAX]}"
