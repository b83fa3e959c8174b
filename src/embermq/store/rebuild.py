"""Rebuild: queues and index made again from the log, aside, compared with it, and swapped in.

    build      below embermq.rebuild/new, by the sinks that live dispatch feeds: byte for byte the same files
    compare    every unit and every key with its record (verify.py)
    ready      the journal says that what is to come can be finished by anybody
    swap       proofs are withdrawn; the old directory moves to embermq.rebuild/old, the new one into its place
    prove      proofs about the new files; then the rest of embermq.rebuild goes

Killed at any step, the same call goes on from there: while building, from the last portion that was synced. Opened
in between, a store whose queues are just not there derives them itself, and a later call begins anew.

The store must not be open for writing elsewhere; its lock is held. With `into` nothing is written into the store,
not even a lock, and the new directories are the result. One thread; scanning uses a second one.
"""

import errno
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from embermq.clock import Clock, SystemClock
from embermq.errors import StoreError, StorePathInvalid
from embermq.files.files import Files, Lock, RealFiles
from embermq.files.trees import remove_tree
from embermq.format.names import parse_segment_name
from embermq.settings import StoreSettings
from embermq.store import directory
from embermq.store.bulk import KEYS, ODD
from embermq.store.bulk_turn import NAME as TURN
from embermq.store.bulk_turn import end_turn
from embermq.store.damage import Damage
from embermq.store.index_proof import IndexProof, drop_index_proof, save_index_proof
from embermq.store.inventory import NAME as INVENTORY
from embermq.store.inventory import Inventory, load_inventory, save_inventory
from embermq.store.rebuild_build import NEW, Build, Built
from embermq.store.rebuild_journal import NAME as JOURNAL
from embermq.store.rebuild_journal import WORK, Family, Journal, load_journal, save_journal
from embermq.store.state_page import load_state_page
from embermq.store.writer import LMQ_PREFIX

log = logging.getLogger(__name__)

OLD = "old"
# All that an earlier call can have left where it worked.
_OUR_NAMES = frozenset((NEW, OLD, JOURNAL, JOURNAL + ".tmp", TURN, KEYS))
_NOT_PERMITTED = (errno.EACCES, errno.EPERM, errno.EROFS)
_DIRECTORIES = {
    Family.QUEUES: (directory.CONSUME_QUEUE, directory.CONSUME_QUEUE_EXT),
    Family.INDEX: (directory.INDEX,),
}

Progress = Callable[[str, int, int], None]  # What is being done, bytes of log done, and of all.
# Who builds: for the store at a path, below another path.
MakeBuild = Callable[[Path, Path, StoreSettings, tuple[Family, ...], Files, Clock], Build]


@dataclass(slots=True)
class Rebuilt:
    """What was made."""

    path: Path
    target: Path
    families: tuple[Family, ...]
    log_min: int
    log_end: int
    records: int
    queues: int
    units: int
    index_entries: int
    resumed_at: int | None  # The place in the log where an earlier call had come to.
    seconds: float
    damages: list[Damage] = field(default_factory=list)
    torn_tail: list[Damage] = field(default_factory=list)  # What a crash left; the next start cuts it off.


def rebuild(
    path: str | Path, settings: StoreSettings | None = None, *, queues: bool = True, index: bool = True,
    into: str | Path | None = None, files: Files | None = None, clock: Clock | None = None,
    progress: Progress | None = None, make_build: MakeBuild = Build,
) -> Rebuilt:  # fmt: skip
    """Make queues, index or both again from the log of the store at `path`; `make_build` says who builds.

    StorePathInvalid if there is no store, no log, or no permission, or if `into` exists or lies in the store;
    StoreLocked if somebody has it open; StoreError if what was built does not agree with the log, in which case
    nothing is swapped.
    """
    root = Path(path).expanduser().absolute()
    families = tuple(family for family, wanted in ((Family.QUEUES, queues), (Family.INDEX, index)) if wanted)
    assert families
    settings, files = settings or StoreSettings(), files or RealFiles()
    directory.check_directory(files, root, read_only=True, has_log_elsewhere=bool(settings.commit_log_paths))
    work = _Rebuild(root, settings, families, files, clock or SystemClock(), progress or _no_progress, make_build)
    try:
        work.check_log()
        return work.beside(Path(into).expanduser().absolute()) if into is not None else work.in_place()
    except OSError as problem:
        where = Path(str(problem.filename or root))
        if problem.errno in _NOT_PERMITTED:
            raise StorePathInvalid(where, f"{problem.strerror}; check its owner and mode") from problem
        raise StoreError(f"{where}: {problem.strerror or problem}; the same call goes on from here") from problem


def _no_progress(what: str, done: int, total: int) -> None:
    """Nobody looks."""


class _Rebuild:
    """One call."""

    def __init__(
        self, root: Path, settings: StoreSettings, families: tuple[Family, ...], files: Files, clock: Clock,
        progress: Progress, make_build: MakeBuild,
    ) -> None:  # fmt: skip
        self._root, self._settings, self._families = root, settings, families
        self._files, self._clock, self._progress, self._make_build = files, clock, progress, make_build
        self._began = time.monotonic()

    def check_log(self) -> None:
        """StorePathInvalid if there is no log, though there was one: queues and index would be made from nothing."""
        places = self._log_places()
        listed = [self._files.list_directory(place) for place in places if self._files.exists(place)]
        if any(parse_segment_name(entry.name) is not None for entries in listed for entry in entries):
            return
        derived = [self._root / name for name in _all_directories((Family.QUEUES, Family.INDEX))]
        if not listed or any(self._files.exists(path) and self._files.list_directory(path) for path in derived):
            raise StorePathInvalid(places[0], "there are no log files, and nothing else to make queues and index from")

    def _log_places(self) -> tuple[Path, ...]:
        written = self._settings.commit_log_paths or (self._root / directory.COMMIT_LOG,)
        return (*written, *self._settings.commit_log_read_only_paths)

    # -- beside the store --------------------------------------------------------------------------------------

    def beside(self, target: Path) -> Rebuilt:
        """Into a directory that does not exist yet; it appears when it is complete."""
        if self._files.exists(target):
            raise StorePathInvalid(target, "exists already; name a directory that does not")
        if not self._files.exists(target.parent):
            raise StorePathInvalid(target.parent, "there is no such directory to put it in")
        place = target.resolve()
        if any(place.is_relative_to(one.resolve()) for one in (self._root, *self._log_places())):
            raise StorePathInvalid(target, "lies in the store, which is only read; name a directory elsewhere")
        partial = target.with_name(target.name + ".partial")
        self._check_partial(partial)
        journal, built = self._build(partial)
        for name in (NEW, *_all_directories(self._families)):
            self._files.sync_directory(partial / NEW if name == NEW else partial)
        self._files.rename(partial / NEW, target)
        self._files.sync_directory(target.parent)
        remove_tree(self._files, partial)
        return self._report(journal, target, built)

    def _check_partial(self, partial: Path) -> None:
        """StorePathInvalid if somebody else's things lie where we work: an earlier call's are used or removed."""
        if not self._files.exists(partial):
            return
        if not self._files.stat(partial).is_directory:
            raise StorePathInvalid(partial, "this is a file where we would work; move it away, or choose another name")
        names = [entry.name for entry in self._files.list_directory(partial)]
        foreign = [name for name in names if name not in _OUR_NAMES and not name.startswith(f"{ODD}-")]
        if foreign:
            reason = f"we would work there, and it holds {foreign[0]}; move it away, or choose another name"
            raise StorePathInvalid(partial, reason)

    # -- in the store --------------------------------------------------------------------------------------------

    def in_place(self) -> Rebuilt:
        lock: Lock = directory.take_directory(self._files, self._root)
        try:
            work = self._root / WORK
            journal = load_journal(self._files, work)
            built: Built | None = None
            if journal is None or not journal.ready or not self._fits(journal):
                journal, built = self._build(work)
                journal = self._make_ready(journal, work)
            self._swap(journal, work)
            self._prove(journal)
            remove_tree(self._files, work)
            return self._report(journal, self._root, built)
        finally:
            lock.release()

    def _fits(self, journal: Journal) -> bool:
        """Was the journal written for this log as it is now, and for this call?"""
        build = self._build_in(self._root / WORK)
        try:
            return journal.families == list(self._families) and journal.log == build.log_facts(journal.end)
        finally:
            build.close()

    def _build_in(self, work: Path) -> Build:
        return self._make_build(self._root, work / NEW, self._settings, self._families, self._files, self._clock)

    def _build(self, work: Path) -> tuple[Journal, Built]:
        """Build, and compare what was built."""
        build = self._build_in(work)
        try:
            end_turn(work)  # Tasks of a call that was killed may still be at work.
            built = build.run(work, lambda done, total: self._progress("building", done, total))
            build.tell_tail(built)
            log_facts = build.log_facts(built.end)
            build.compare(work, built.end, lambda done, total: self._progress("comparing", done, total))
        finally:
            build.close()
        journal = Journal(
            families=list(self._families), settings=build.fingerprint, position=built.end, end=built.end, log=log_facts,
            queues=built.queues_state, index=built.index_state,
        )  # fmt: skip
        return journal, built

    def _make_ready(self, journal: Journal, work: Path) -> Journal:
        """From here on the swap can be finished by anybody, whatever becomes of this process."""
        inventory = load_inventory(self._files, self._root)
        journal = msgspec.structs.replace(
            journal, ready=True, inventory=msgspec.to_builtins(inventory) if inventory is not None else None
        )
        save_journal(self._files, work, journal)
        return journal

    def _swap(self, journal: Journal, work: Path) -> None:
        self._withdraw_proofs(journal)
        for family in self._families:
            for name in _DIRECTORIES[family]:
                self._swap_one(work, name)

    def _withdraw_proofs(self, journal: Journal) -> None:
        """Nothing vouches for the queues, or the index, until the new ones are in place."""
        page = load_state_page(self._files, self._root, writable=True)
        if page is not None and Family.QUEUES in self._families:
            page.queues_written = page.queues_durable = 0
            page.sync()
        if Family.INDEX in self._families:
            drop_index_proof(self._files, self._root)
        if self._files.exists(self._root / INVENTORY):
            self._files.remove(self._root / INVENTORY)
            self._files.sync_directory(self._root)

    def _swap_one(self, work: Path, name: str) -> None:
        """Whatever step this was at before, it comes to its end."""
        files, here, new, old = self._files, self._root / name, work / NEW / name, work / OLD / name
        if not files.exists(new):
            return  # It is in its place already, or there is none.
        files.make_directory(old.parent)
        if files.exists(here):
            remove_tree(files, old)
            self._move(here, old)
        self._move(new, here)

    def _move(self, source: Path, target: Path) -> None:
        try:
            self._files.rename(source, target)
        except OSError as problem:
            if problem.errno != errno.EXDEV:
                raise
            raise StoreError(f"{source} lies on another file system; use --into, and move it by hand") from problem
        self._files.sync_directory(target.parent)
        self._files.sync_directory(source.parent)

    def _prove(self, journal: Journal) -> None:
        """Say what is known of the new files, if anything was said of the old ones."""
        if Family.INDEX in self._families:
            save_index_proof(self._files, self._root, IndexProof(journal.end, journal.index))
        page = load_state_page(self._files, self._root, writable=True)
        if page is not None:
            if Family.QUEUES in self._families:
                page.queues_written = page.queues_durable = journal.end
                page.queue_files = sum(row[6] for row in journal.queues.get("queues", []))
            if Family.INDEX in self._families:
                page.index_files = len(journal.index.get("files", []))
            page.sync()
        if journal.inventory is None:
            return
        inventory = msgspec.convert(journal.inventory, Inventory)
        changes: dict[str, Any] = {}
        if Family.QUEUES in self._families:
            changes["queues"] = journal.queues
        if Family.INDEX in self._families:
            changes["index"] = journal.index
        save_inventory(self._files, self._root, msgspec.structs.replace(inventory, **changes))

    def _report(self, journal: Journal, target: Path, built: Built | None) -> Rebuilt:
        files = journal.index.get("files", [])
        return Rebuilt(
            path=self._root, target=target, families=self._families, log_min=journal.log["min"], log_end=journal.end,
            records=built.records if built is not None else 0, queues=len(journal.queues.get("queues", [])),
            units=sum(row[3] - row[2] for row in journal.queues.get("queues", [])),
            index_entries=sum(row[1] - 1 for row in files),
            resumed_at=journal.end if built is None else built.resumed_at, seconds=time.monotonic() - self._began,
            damages=built.damages if built is not None else [],
            torn_tail=built.torn_tail if built is not None else [],
        )  # fmt: skip


def _all_directories(families: tuple[Family, ...]) -> list[str]:
    return [name for family in families for name in _DIRECTORIES[family]]


def settings_as_found(files: Files, root: Path) -> dict[str, Any]:
    """Settings, by Python name, that a store shows to have had, besides the sizes of files that are there: what its
    directories show to be on, and the size of queue files if all of them are gone."""
    found: dict[str, Any] = {}
    if files.exists(root / directory.CONSUME_QUEUE_EXT):
        found["queue_extension"] = True
    queues = root / directory.CONSUME_QUEUE
    topics = files.list_directory(queues) if files.exists(queues) else []
    if any(topic.name.startswith(LMQ_PREFIX) for topic in topics):
        found["light_queues"] = found["multi_dispatch"] = True
    inventory = load_inventory(files, root)
    if inventory is not None and not topics and inventory.queues.get("file_bytes"):
        found["queue_file_bytes"] = inventory.queues["file_bytes"]
    return found


__all__ = ["Family", "Rebuilt", "rebuild", "settings_as_found"]
