"""All index files of a store: the sink that indexes keys, and the query over them, newest file first.

A file is named by the local time of its birth; a full one is followed by the next, in the middle of a record
if need be. What is already indexed is known from the files themselves: the newest entry's record, and how
many of its keys are there. So a batch may be offered again after an error or a kill, and nothing is there twice.

A file whose bytes are not those that were written (checksums.py) is not believed: what it should say is read from the
log at each query (`search_log`), until it was made again (`rebuild_damaged`, repair.py).

`take`, `truncate_to`, `restore` are for the thread that walks the log; `flush` and `delete_before` may come from
another one. `query`, `walk` and `last_update` are for any thread. A read-only store keeps what it takes in memory.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from embermq.clock import Clock
from embermq.columns import C_KEYS_LEN, C_PHYSICAL, C_SYS_FLAG, C_UNIQ_LEN, RecordColumns
from embermq.files import NO_CHECKSUMS, Checksums, FileDamaged, Files, OpenFiles, entries_of
from embermq.format.index import IndexHeader
from embermq.format.java import index_key_hash
from embermq.format.names import index_name, parse_index_name
from embermq.model.flags import ROLLBACK, TRANSACTION_MASK
from embermq.store.index.index_file import IndexFile
from embermq.store.index.index_state import IndexState, header_numbers, header_of
from embermq.store.index.keys_in_memory import KeysInMemory, overlaps
from embermq.store.index.links import CheckedIndexFile
from embermq.store.layout.directory import QUARANTINE
from embermq.store.sink import Finding

log = logging.getLogger(__name__)

# Places of records of a topic with a key in a range of the log, its end included, ascending.
SearchLog = Callable[[str, str, int, int], list[int]]

INDEX_FAMILY = "index"
QUERY_MAX = 64
# Of fewer rows, making an array takes longer than looking at each.
FEW_ROWS = 16
_NOTHING = -1


class IndexFiles:
    """The index files in `directory`; a Sink."""

    name = INDEX_FAMILY

    def __init__(
        self,
        directory: Path,
        files: Files,
        slots_max: int,
        entries_max: int,
        clock: Clock,
        *,
        read_only: bool = False,
        query_max: int = QUERY_MAX,
        check_writer: Callable[[], None] | None = None,
    ) -> None:
        """`check_writer` raises an OSError when nothing may be written any more."""
        self.directory = directory
        self.position = 0
        self._slots_max, self._entries_max = slots_max, entries_max
        self._query_max = query_max
        self._disk = files
        self._clock = clock
        self._read_only = read_only
        self._check_writer = check_writer
        self._open = OpenFiles(files, read_only=read_only, quarantine=directory.parent / QUARANTINE)
        self._change = threading.RLock()  # Held while files change; readers need no lock.
        self._files: tuple[IndexFile, ...] = ()  # Oldest first; replaced, never changed in place.
        self._stale: list[Path] = []  # Refused by load; gone before anything new is written.
        self.let_go: list[Path] = []  # Their records have left the log; on their way off the disk, oldest first.
        self._newest_physical = _NOTHING  # Record of the newest entry.
        self._in_memory = KeysInMemory()
        self._checksums: dict[str, Checksums] = {}  # By name, as the proof has them; for files that are loaded.
        self.search_log: SearchLog | None = None
        self.on_damage: Callable[[str], None] = _ignore

    # Taking

    def take(self, batch: RecordColumns, end: int) -> None:
        with self._change:
            if len(batch):
                row, key = self._first_new(batch)
                if self._read_only:
                    self._in_memory.take(batch, row, key, self._next_file_begin())
                else:
                    self._put(batch, row, key)
                self._newest_physical = max(self._newest_physical, int(batch.rows[-1, C_PHYSICAL]))
            self.position = end

    def _next_file_begin(self) -> int | None:
        """When the file begins that the next key would go to; None without a file."""
        if not self._files:
            return None
        header = self._files[-1].header()
        return header.end_timestamp if header.count >= self._entries_max else header.begin_timestamp

    def _first_new(self, batch: RecordColumns) -> tuple[int, int]:
        """The first row that is not yet indexed, or not wholly, and how many of its keys are there."""
        physicals = batch.column(C_PHYSICAL)
        newest = self._newest_physical
        if physicals[0] > newest:
            return 0, 0
        row = int(np.searchsorted(physicals, newest))
        if row == len(batch) or physicals[row] != newest:
            return row, 0
        keys = self._in_memory.entries_of(newest)
        for file in reversed(self._files):
            same = file.entries_of_last_record(newest)
            keys += same
            if same < file.header().count - 1:
                break
        return row, keys

    def _put(self, batch: RecordColumns, row: int, key: int) -> None:
        if not self._has_keys(batch, row):
            return
        if self._check_writer is not None:
            self._check_writer()
        self._remove_stale()
        while row < len(batch):
            if not self._files:
                self._create()
            newest = self._files[-1]
            try:
                newest.begin_change()
            except FileDamaged as problem:
                self.note_damage(newest, problem)
                newest = self._create()
            row, key = newest.put(batch, row, key, 0)
            self._newest_physical = max(self._newest_physical, newest.header().end_physical)
            if row < len(batch):
                self._create()

    def _has_keys(self, batch: RecordColumns, row: int) -> bool:
        rows = batch.rows[row:]
        if len(rows) < FEW_ROWS:
            return any(
                (one[C_UNIQ_LEN] >= 0 or one[C_KEYS_LEN] >= 0) and one[C_SYS_FLAG] & TRANSACTION_MASK != ROLLBACK
                for one in rows.tolist()
            )
        keyed = (rows[:, C_UNIQ_LEN] >= 0) | (rows[:, C_KEYS_LEN] >= 0)
        return bool((keyed & (rows[:, C_SYS_FLAG] & TRANSACTION_MASK != ROLLBACK)).any())

    def _create(self) -> IndexFile:
        before = self._files[-1] if self._files else None
        name = self._new_name()
        self._checksums.pop(name, None)  # A file that was removed may have had this name.
        file = self._file(self.directory / name)
        file.create(None if before is None else before.header())
        if before is not None:
            before.kept_header = before.header()
            before.unmap()
        self._files = (*self._files, file)
        return file

    def _file(self, path: Path) -> IndexFile:
        known = self._checksums.get(path.name, NO_CHECKSUMS)
        return IndexFile(path, self._open, self._slots_max, self._entries_max, known)

    def _new_name(self) -> str:
        """Now, or just after the newest file there is: names must ascend, whatever the clock does."""
        name = index_name(self._clock.local_stamp(self._clock.now_ms()))
        names = self._names()
        return name if not names or names[-1] < name else index_name(stamp_after(names[-1]))

    def _names(self) -> list[str]:
        entries = entries_of(self._disk, self.directory)
        return [entry.name for entry in entries if entry.is_file and parse_index_name(entry.name)]

    def flush(self) -> None:
        # Not under the change lock: dispatch goes on while the disk works.
        if not self._read_only:
            self._open.sync()

    def close(self) -> None:
        with self._change:
            try:
                self.flush()
            finally:
                for file in self._files:
                    file.unmap()
                self._open.close()

    # Asking

    def query(self, topic: str, key: str, limit: int | None, begin_ms: int, end_ms: int) -> list[int]:
        """Physical offsets of records that may have this key, newest first; without a limit, all of them.

        Times count in whole seconds. Different keys can share a hash: compare the record's own.
        """
        most = None if limit is None else min(limit, self._query_max)
        key_hash = index_key_hash(topic, key)
        found = self._in_memory.find(key_hash, begin_ms, end_ms)
        files = self._files
        for number in reversed(range(len(files))):
            if most is not None and len(found) >= most:
                break
            try:
                places, is_older = self._places_in(files[number], key_hash, begin_ms, end_ms, most)
            except FileDamaged as problem:
                self.note_damage(files[number], problem)
                places, is_older = self._places_in_log(files, number, topic, key), False
            found += [place for place in places if place not in found] if files[number].damage is not None else places
            if is_older:
                break
        return found if most is None else found[: max(most, 0)]

    def walk(self, topic: str, key: str, end_ms: int) -> Iterator[int]:
        """What `query` gives from the first time on and without a limit, one after another: no more entries are looked
        at than places are asked for. A place may come twice where a file is damaged."""
        key_hash = index_key_hash(topic, key)
        yield from self._in_memory.find(key_hash, 0, end_ms)
        files = self._files
        for number in reversed(range(len(files))):
            file = files[number]
            try:
                header = file.confirmed_header()
                if overlaps(header, 0, end_ms):
                    yield from file.find(header, key_hash, 0, end_ms)
                if file.damage is not None:  # As in _places_in.
                    raise file.damage
            except FileDamaged as problem:
                self.note_damage(file, problem)
                yield from self._places_in_log(files, number, topic, key)

    def _places_in(
        self, file: IndexFile, key_hash: int, begin_ms: int, end_ms: int, most: int | None
    ) -> tuple[list[int], bool]:
        """What one file says, and whether it begins before the time asked for. FileDamaged if it is not believed."""
        header = file.confirmed_header()
        places = []
        if overlaps(header, begin_ms, end_ms):
            for physical_offset in file.find(header, key_hash, begin_ms, end_ms):
                places.append(physical_offset)
                if most is not None and len(places) >= most:
                    break
        if file.damage is not None:  # Found by another one, who may be making it again already.
            raise file.damage
        return places, header.begin_timestamp < begin_ms

    def _places_in_log(self, files: tuple[IndexFile, ...], number: int, topic: str, key: str) -> list[int]:
        """What a file should say, newest first. Its neighbours know which records it is of."""
        damage = files[number].damage
        if self.search_log is None and damage is not None:
            raise damage
        assert self.search_log is not None
        start, end = span_of(files, number, self._newest_physical)
        return self.search_log(topic, key, start, end)[::-1]

    # Damage

    def find_file(self, name: str) -> IndexFile | None:
        return next((file for file in self._files if file.name == name), None)

    def parts(self) -> list[CheckedIndexFile]:
        """The files that are believed, as those who compare them with the log see them."""
        found = []
        for file in self._files:
            opened = self._open.find(file.path) if file.damage is None else None
            if opened is not None:
                found.append(CheckedIndexFile(file.name, opened, file.header(), self._slots_max, self._entries_max))
        return found

    def note_damage(self, file: IndexFile, problem: FileDamaged) -> None:
        """From now on nothing in this file is believed."""
        if file.damage is None:
            if file is self._files[-1]:
                file.kept_header = file.header()  # It may have grown since it was loaded.
            file.damage = problem
            log.error("index file damaged file=%s at=%d", file.name, problem.at)
            self.on_damage(file.name)

    @property
    def damaged(self) -> list[str]:
        """Files that are not believed, and not made again yet."""
        return [file.name for file in self._files if file.damage is not None]

    def begin_repair(self, name: str) -> "RepairSite | None":
        """What is needed to make a damaged file again; None if it is gone, or the one before it is damaged too. The
        newest file gets a successor first, so that it does not grow meanwhile."""
        with self._change:
            files = self._files
            number = next((n for n, file in enumerate(files) if file.name == name and file.damage is not None), None)
            if number is None or (number and files[number - 1].damage is not None):
                return None
            if self._check_writer is not None:
                self._check_writer()
            if number == len(files) - 1:
                self._create()
                files = self._files
            damaged = files[number]
            fresh = IndexFile(damaged.path, self._open, self._slots_max, self._entries_max)
            return RepairSite(damaged, fresh, files[number - 1] if number else None, files[number + 1])

    def finish_repair(self, site: "RepairSite") -> bool:
        """The file was made again: make it durable and use it. False if it was removed meanwhile."""
        self.flush()
        site.fresh.cover(site.fresh.header().count, whole=True)
        site.fresh.kept_header = site.fresh.header()
        site.fresh.unmap()
        with self._change:
            if site.damaged not in self._files:
                return False
            self._files = tuple(site.fresh if file is site.damaged else file for file in self._files)
            return True

    def adopt_checksums(self, known: dict[str, Checksums], state: Any, *, closed: bool) -> None:
        """Checksums of the files with `state`, for those that are loaded from now on. Of the newest file only entries
        have them, unless the store was closed and nothing changed since."""
        self._checksums = dict(known)
        parsed = self._parse(state)
        if parsed is None:
            self._checksums = {}
            return
        for name, *numbers in parsed.files[-1:]:
            file = self._file(self.directory / name)
            if name in known and not (closed and list(header_numbers(file.header())) == numbers):
                self._checksums[name] = file.growing(known[name], numbers[0])

    def trust(self) -> None:
        """All files were compared with the log: checksums may be taken of what lies there."""
        for file in self._files:
            file.is_trusted = True

    def checksums(self, state: Any, *, closing: bool) -> dict[str, Checksums]:
        """Checksums of all files, those of what `state` has and has none yet taken now. After a flush."""
        found: dict[str, Checksums] = {}
        files = self._files
        counts = {name: numbers[0] for name, *numbers in state["files"]}
        for file in files:
            if file.name not in counts:
                continue
            try:
                taken = file.cover(counts[file.name], whole=closing or file is not files[-1])
            except FileDamaged as problem:
                self.note_damage(file, problem)
                continue
            except ValueError:
                continue  # Removed, or cut meanwhile.
            if taken.crcs:
                found[file.name] = taken
        return found

    @property
    def last_update(self) -> tuple[int, int]:
        """Store time and physical offset of the newest indexed record; zeros when there is none."""
        if self._in_memory.newest is not None:
            return self._in_memory.newest
        files = self._files
        if not files:
            return 0, 0
        header = files[-1].header()
        return header.end_timestamp, header.end_physical

    @property
    def count(self) -> int:
        """Number of files."""
        return len(self._files)

    # Loading

    def load(self, state: Any = None) -> list[Finding]:
        """Find the files; the first that cannot be used ends the index, and the rest comes from the log.
        Changes nothing on disk. `state` is what state() gave at a clean close."""
        with self._change:
            files: list[IndexFile] = []
            findings: list[Finding] = []
            names = self._names()
            for number, name in enumerate(names):
                file = self._file(self.directory / name)
                reason = file.problem()
                if reason is None and files and file.header().begin_physical < files[-1].header().end_physical:
                    reason = "begins before the end of the file before it"
                if reason is not None:
                    findings.append(Finding(INDEX_FAMILY, name, reason, _end_of(files)))
                    self._stale = [self.directory / stale for stale in names[number:]]
                    break
                files.append(file)
            self._use(files)
            self.position = max(self._newest_physical, 0)
            return findings + (self.matches(state) if state is not None and not findings else [])

    def _use(self, files: list[IndexFile]) -> None:
        self._files = tuple(files)
        ends = [header.end_physical for header in (file.header() for file in files[-2:]) if header.count > 1]
        self._newest_physical = max(ends, default=_NOTHING)

    def state(self) -> dict[str, Any]:
        """What a start can compare the files with, and `restore` cut them back to; take it after flush()."""
        with self._change:
            rows = [[file.name, *header_numbers(file.header())] for file in self._files]
            return {"slots_max": self._slots_max, "entries_max": self._entries_max, "files": rows}

    def matches(self, state: Any) -> list[Finding]:
        """How the files differ from a state()."""
        known = self._parse(state)
        if known is None:
            return [Finding(INDEX_FAMILY, "", "the recorded state cannot be read", 0)]
        replay_from = 0
        here = {file.name: file for file in self._files}
        for name, *numbers in known.files:
            file = here.pop(name, None)
            if file is None:
                return [Finding(INDEX_FAMILY, name, "is missing", replay_from)]
            if list(header_numbers(file.header())) != numbers:
                return [Finding(INDEX_FAMILY, name, "is not as it was closed", replay_from)]
            replay_from = numbers[4]
        return [Finding(INDEX_FAMILY, name, "is not in the recorded state", replay_from) for name in sorted(here)[:1]]

    def _parse(self, state: Any) -> IndexState | None:
        try:
            known = msgspec.convert(state, IndexState)
        except msgspec.ValidationError:
            return None
        same = (known.slots_max, known.entries_max) == (self._slots_max, self._entries_max)
        return known if same else None

    def restore(self, state: Any) -> list[Finding]:
        """Cut back to a state() whose entries are known to be durable, and compute the newest file's slots
        again. A file that cannot be brought there ends the index; walk the log from the finding's place."""
        with self._change:
            known = self._parse(state)
            if known is None:
                return [Finding(INDEX_FAMILY, "", "the recorded state cannot be read", 0)]
            present = set(self._names())
            files: list[IndexFile] = []
            findings: list[Finding] = []
            for number, (name, *numbers) in enumerate(known.files):
                file = self._file(self.directory / name)
                is_newest = number == len(known.files) - 1
                reason = self._bring_to(file, header_of(numbers), is_newest) if name in present else "is missing"
                if reason is not None:
                    findings.append(Finding(INDEX_FAMILY, name, reason, _end_of(files)))
                    break
                files.append(file)
            kept = {file.name for file in files}
            self._stale = [self.directory / name for name in sorted(present - kept)]
            self._use(files)
            if not self._read_only:
                self._remove_stale()
            self.position = max(self._newest_physical, 0)
            return findings

    def _bring_to(self, file: IndexFile, header: IndexHeader, is_newest: bool) -> str | None:
        """Make a file what `header` says it was; the reason when its entries do not allow that."""
        if not is_newest:
            return file.problem() or (
                None if header_numbers(file.header()) == header_numbers(header) else "has another header"
            )
        opened = self._open.find(file.path)
        if opened is None or opened.size != file.file_bytes:
            return "has the wrong length"
        if header.count > 1:
            entries = file.entries(1, header.count)
            physicals = entries["physical_offset"].astype(np.int64)
            try:
                file.blocks.confirm(0, file.file_bytes)
            except FileDamaged:
                return "its entries are not those that were written"
            if (entries["key_hash"] < 0).any() or (entries["seconds"] < 0).any():
                return "its entries are none"
            if not (physicals[0] == header.begin_physical and physicals[-1] == header.end_physical):
                return "its entries are not those it had"
            if (np.diff(physicals) < 0).any():
                return "its entries are out of order"
        if not self._read_only:
            file.cut(header)
            file.is_trusted = True  # Entries with checksums were compared, the others are in order, slots are new.
        return None

    # Cutting and deleting

    def truncate_to(self, physical_offset: int) -> None:
        with self._change:
            assert not self._read_only
            self._remove_stale()
            while self._files:
                newest = self._files[-1]
                header = newest.header()
                if header.count > 1 and header.end_physical < physical_offset:
                    break
                kept = newest.header_before(physical_offset) if header.count > 1 else header
                if kept.count > 1:
                    newest.cut(kept)
                    break
                self._files = self._files[:-1]
                self._open.remove(newest.path)
            self._use(list(self._files))
            self.position = min(self.position, physical_offset)

    def let_go_before(self, log_min: int) -> int:
        """Take files all of whose records have left the log out of the set, never the newest; answers how many.
        They lie on the disk until `remove_let_go`: the proof of the files must know of fewer before."""
        gone = 0
        with self._change:
            while len(self._files) > 1 and self._files[0].header().end_physical < log_min:
                oldest, *rest = self._files
                self._files = tuple(rest)
                self.let_go.append(oldest.path)
                gone += 1
        return gone

    def remove_let_go(self) -> int:
        """Delete what was let go, oldest first; answers how many. After an OSError the rest is still there."""
        removed = 0
        with self._change:
            while self.let_go:
                self._open.remove(self.let_go[0])
                self._open.sync_directory(self.directory)
                del self.let_go[0]
                removed += 1
        return removed

    def delete_before(self, log_min: int) -> int:
        """Delete files all of whose records have left the log, never the newest; answers how many."""
        self.let_go_before(log_min)
        return self.remove_let_go()

    def _remove_stale(self) -> None:
        for path in reversed(self._stale):
            self._open.remove(path)
        self._stale = []

    def destroy_all(self) -> None:
        with self._change:
            files, self._files = self._files, ()
            if not self._read_only:
                self._remove_stale()
                for file in reversed(files):
                    self._open.remove(file.path)
            self._newest_physical = _NOTHING
            self._in_memory = KeysInMemory()
            self._checksums = {}
            self.position = 0


class RepairSite(NamedTuple):
    """A damaged file, the one to be made in its place, and its neighbours."""

    damaged: IndexFile
    fresh: IndexFile
    before: IndexFile | None
    after: IndexFile


def _end_of(files: list[IndexFile]) -> int:
    return files[-1].header().end_physical if files else 0


def span_of(files: tuple[IndexFile, ...], number: int, newest_physical: int) -> tuple[int, int]:
    """The first and last place in the log that a file can have keys of, by what its sound neighbours say."""
    before = [file for file in files[:number] if file.damage is None]
    after = [file.header() for file in files[number + 1 :] if file.damage is None]
    start = before[-1].header().end_physical if before else 0
    return start, next((header.begin_physical for header in after if header.count > 1), newest_physical)


def _ignore(name: str) -> None:
    """Files are not made again."""


def stamp_after(stamp: str) -> str:
    """17 digits one millisecond later; of digits that are no time, the next number."""
    try:
        later = datetime.strptime(stamp[:14], "%Y%m%d%H%M%S") + timedelta(milliseconds=int(stamp[14:]) + 1)
    except (ValueError, OverflowError):
        return f"{int(stamp) + 1:017d}"
    return later.strftime("%Y%m%d%H%M%S") + f"{later.microsecond // 1000:03d}"
