"""Deriving queues and index of a log that another process writes (a store open with dispatch="none"), or none.

    with Follower.open(root) as follower:
        follower.advance(end)        # read the log up to there, feed queues and index
        follower.make_durable()      # sync them, then write down how far they are

The very sinks the live dispatcher feeds are fed here, in the same order, so the files come out the same. What was
made durable is written down in `embermq.follower.json`; after a kill at any moment the next follower cuts the index
back to that, replays the queues from there, and arrives at the same bytes.

One follower at a time (`embermq.follower.lock`), and none while the store dispatches by itself. One thread.
"""

import logging
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from embermq.clock import Clock, SystemClock
from embermq.columns import C_PHYSICAL, C_SIZE, RecordColumns
from embermq.errors import StoreError, StoreLocked
from embermq.files import Files, Lock, LockHeld, RealFiles
from embermq.inspect import Survey
from embermq.settings import StoreSettings
from embermq.store import Finding
from embermq.store.layout import check_directory, check_lock, load_state_page, lock_holder
from embermq.store.log import DamagedRange
from embermq.store.queues import QueueState
from embermq.store.recovery import DerivedFiles

log = logging.getLogger(__name__)

NAME = "embermq.follower.json"
LOCK_NAME = "embermq.follower.lock"


class FollowerProof(msgspec.Struct, frozen=True):
    """How far queues and index were when they were last synced; `crc` is of this object's JSON with crc 0."""

    position: int
    identity: str  # of the log, as Survey gives it
    queues: dict[str, Any]
    index: dict[str, Any] | None
    crc: int = 0

    def sealed(self) -> "FollowerProof":
        bare = msgspec.structs.replace(self, crc=0)
        return msgspec.structs.replace(bare, crc=zlib.crc32(msgspec.json.encode(bare)))


@dataclass(slots=True)
class FollowerProgress:
    """What one `advance` did."""

    start: int
    end: int
    records: int = 0
    damages: list[DamagedRange] = field(default_factory=list)


class DerivedFollower:
    """Queues and index of one store, fed from outside."""

    def __init__(
        self, root: Path, settings: StoreSettings, files: Files, clock: Clock, lock: Lock, survey: Survey
    ) -> None:
        """Use `open`."""
        self.root = root
        self._files, self._lock, self._survey = files, lock, survey
        derived = DerivedFiles(root, settings, files, clock, read_only=False)
        self.queues = derived.queues(lambda: self._survey.log_min)
        self.index = derived.index() if settings.index else None
        self._delay_ms = settings.delay_ms
        self._replay_from: int | None = None
        self.position = 0  # Everything below was taken.

    @classmethod
    def open(
        cls,
        path: str | Path,
        settings: StoreSettings | None = None,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        survey: Survey | None = None,
    ) -> "DerivedFollower":
        """Take over where the last follower stopped, or begin with the log. `settings` give the file sizes; `survey` is
        that of an earlier follower of this process, which knows where the log ended then.

        StoreError if the store derives by itself, StoreLocked if another follower is at work.
        """
        root, disk = Path(path).expanduser().absolute(), files or RealFiles()
        check_directory(disk, root, read_only=True, has_log_elsewhere=False)
        check_not_deriving(disk, root)
        try:
            lock = disk.lock(root / LOCK_NAME)
        except LockHeld as held:
            raise StoreLocked(root, held.pid, held.command) from None
        try:
            if survey is None:
                survey = Survey.open(root, files=disk)
            else:
                assert survey.path == root, (survey.path, root)
                survey.refresh()
            follower = cls(root, settings or StoreSettings(), disk, clock or SystemClock(), lock, survey)
            follower._resume()
        except BaseException:
            lock.release()
            raise
        return follower

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- taking over -------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        proof = self._load_proof()
        findings = self.queues.load()
        if proof is not None:
            findings += self._entries_lost_since(proof)
        if self.index is not None:
            self.index.load()
            findings += self.index.restore(proof.index) if proof is not None else []
        if proof is None or findings:
            for finding in findings:
                log.warning("derived again family=%s where=%s reason=%s", finding.family, finding.where, finding.reason)
            self._drop_proof()
            if self.index is not None:
                self.index.destroy_all()
        start = proof.position if proof is not None and not findings else 0
        self.position = self._replay_from = max(start, self._survey.log_min)
        self.queues.begin_replay()

    def _entries_lost_since(self, proof: FollowerProof) -> list[Finding]:
        """A queue may well go further than the proof: its entries were written, and will be written again."""
        known = QueueState.parse(proof.queues, self.queues.file_bytes)
        if known is None:
            return [Finding(self.queues.name, "", "was derived with another file size", 0)]
        return [
            Finding(self.queues.name, row.where, "has lost entries", 0)
            for key, row in known.items()
            if (queue := self.queues.find(*key)) is None
            or queue.max_offset < row.max_offset
            or min(queue.file_starts, default=0) > row.first_file
        ]

    def _load_proof(self) -> FollowerProof | None:
        path = self.root / NAME
        if not self._files.exists(path):
            return None
        try:
            proof = msgspec.json.decode(self._files.read_all(path), type=FollowerProof)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if proof.sealed() != proof or proof.position > self._survey.log_end:
            return None
        if (proof.index is None) != (self.index is None) or not self._survey.same_log_as(proof.identity):
            return None
        return proof

    def _drop_proof(self) -> None:
        if self._files.exists(self.root / NAME):
            self._files.remove(self.root / NAME)
            self._files.sync_directory(self.root)

    @property
    def survey(self) -> Survey:
        """For the next follower of this process."""
        return self._survey

    # -- following ---------------------------------------------------------------------------------------------

    @property
    def log_end(self) -> int:
        """How far the log may be read now."""
        self._survey.refresh()
        return self._survey.log_end

    def advance(self, end: int | None = None) -> FollowerProgress:
        """Take every record from the position up to `end` (of a record; the default is all there is)."""
        check_lock(self._lock)
        limit = self.log_end if end is None else min(end, self.log_end)
        self.position = max(self.position, self._survey.log_min)
        progress = FollowerProgress(self.position, max(limit, self.position))
        for item in self._survey.scan(self.position, limit, check_crc=False, delay_ms=self._delay_ms):
            if isinstance(item, DamagedRange):
                progress.damages.append(item)
            else:
                progress.records += len(item)
                self._take(item)
        self.position = progress.end
        if self._replay_from is not None:
            self.queues.finish_replay(self._replay_from, self.position)
            self.queues.correct_min(self._survey.log_min)
            self._replay_from = None
        return progress

    def _take(self, batch: RecordColumns) -> None:
        end = int(batch.rows[-1, C_PHYSICAL] + batch.rows[-1, C_SIZE])
        self.queues.take(batch, end)
        if self.index is not None:
            self.index.take(batch, end)

    def make_durable(self) -> None:
        """Sync queues and index, then say how far they are. OSError if a sync fails, StoreError if the lock was lost;
        nothing is said then."""
        assert self._replay_from is None, "advance first"
        index = self.index.state() if self.index is not None else None
        self.queues.flush()
        if self.index is not None:
            self.index.flush()
        check_lock(self._lock)
        proof = FollowerProof(self.position, self._survey.identity, self.queues.state(), index).sealed()
        self._files.replace_file(self.root / NAME, msgspec.json.encode(proof))

    def close(self) -> None:
        """Let go of files and lock. What was not made durable will be taken again."""
        try:
            self.queues.close()
            if self.index is not None:
                self.index.close()
        finally:
            self._lock.release()


def check_not_deriving(files: Files, root: Path) -> None:
    """StoreError if the store is open with dispatch: it writes these very files itself then."""
    if lock_holder(root) is None:
        return
    page = load_state_page(files, root, writable=False)
    if page is None or not page.log_only:
        raise StoreError(
            f"{root} is open in another process that derives queues and index itself;"
            ' open it there with dispatch="none", or close it'
        )
