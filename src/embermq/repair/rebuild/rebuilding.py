"""Rebuild: queues and index made again from the log, aside, compared with it, and swapped in.

    build      below embermq.rebuild/new, by the sinks that live dispatch feeds: byte for byte the same files
    compare    every entry and every key with its record (verify.py)
    ready      the journal says that what is to come can be finished by any process
    swap       proofs are withdrawn; the old directory moves to embermq.rebuild/old, the new one into its place
    prove      proofs about the new files; then the rest of embermq.rebuild goes

A directory that is a link is built beside what it leads to, and swapped there (places.py).

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
from embermq.files import Files, Lock, PathKind, RealFiles, remove_tree
from embermq.format.names import parse_segment_name
from embermq.repair.rebuild.build import NEW, Build, Built
from embermq.repair.rebuild.journal import Family, RebuildJournal, load_journal, save_journal
from embermq.repair.rebuild.places import DIRECTORIES, WorkPlace, check_work, find_places
from embermq.repair.rebuild.writer_lock import end_turn
from embermq.settings import StoreSettings
from embermq.store.append import LMQ_PREFIX
from embermq.store.index import drop_index_proof, prove_rebuilt_index
from embermq.store.layout import (
    COMMIT_LOG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    DERIVED,
    Inventory,
    check_directory,
    check_lock,
    clear_misplaced,
    in_rebuild,
    load_inventory,
    load_state_page,
    save_inventory,
    take_directory,
)
from embermq.store.layout import INVENTORY_FILE as INVENTORY
from embermq.store.log import Damage

log = logging.getLogger(__name__)

OLD = "old"
_NOT_PERMITTED = (errno.EACCES, errno.EPERM, errno.EROFS)

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
    queue_entries: int
    index_entries: int
    resumed_at: int | None  # The place in the log where an earlier call had come to.
    seconds: float
    damages: list[Damage] = field(default_factory=list)
    torn_tail: list[Damage] = field(default_factory=list)  # What a crash left; the next start cuts it off.
    kept: list[Path] = field(default_factory=list)  # Not made by a store, and in the way of what was.


def rebuild(
    path: str | Path,
    settings: StoreSettings | None = None,
    *,
    queues: bool = True,
    index: bool = True,
    into: str | Path | None = None,
    files: Files | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
    make_build: MakeBuild = Build,
) -> Rebuilt:
    """Make queues, index or both again from the log of the store at `path`; `make_build` says who builds.

    StorePathInvalid if there is no store, no log, or no permission, or if `into` exists or lies in the store;
    StoreLocked if it is open; StoreError if what was built does not agree with the log, in which case
    nothing is swapped.
    """
    root = Path(path).expanduser().absolute()
    families = tuple(family for family, wanted in ((Family.QUEUES, queues), (Family.INDEX, index)) if wanted)
    assert families
    settings, files = settings or StoreSettings(), files or RealFiles()
    check_directory(files, root, read_only=True, has_log_elsewhere=bool(settings.commit_log_paths))
    work = _Rebuild(root, settings, families, files, clock or SystemClock(), progress or _no_progress, make_build)
    try:
        work.check_log()
        return work.beside(Path(into).expanduser().absolute()) if into is not None else _in_place(work)
    except OSError as problem:
        where = Path(str(problem.filename or root))
        if problem.errno in _NOT_PERMITTED:
            raise StorePathInvalid(where, f"{problem.strerror}; check its owner and mode") from problem
        raise StoreError(f"{where}: {problem.strerror or problem}; call it again to continue") from problem


def _in_place(work: "_Rebuild") -> Rebuilt:
    """Queues and index, together or one after the other: what is built lies on the file system of what it replaces."""
    files, root = work.files, work.root
    lock: Lock = take_directory(files, root)
    try:
        places = find_places(files, root, work.families, work.settings)
        for place in places:
            if not work.of(place.families).is_ready(place):
                work.of(place.families).prepare(place)
        made = [work.of(place.families).in_place(place, lock) for place in places]
        return _together(made)
    finally:
        lock.release()


def _together(made: list[Rebuilt]) -> Rebuilt:
    """One report of one or two rebuilds of the same log."""
    first = made[0]
    for other in made[1:]:
        first.families += other.families
        first.queues += other.queues
        first.queue_entries += other.queue_entries
        first.index_entries, first.seconds = first.index_entries + other.index_entries, first.seconds + other.seconds
        first.records = max(first.records, other.records)
        first.resumed_at = first.resumed_at if other.resumed_at is None else other.resumed_at
        first.kept += other.kept
    return first


def _no_progress(what: str, done: int, total: int) -> None:
    """Ignore progress."""


class _Rebuild:
    """One call."""

    def __init__(
        self,
        root: Path,
        settings: StoreSettings,
        families: tuple[Family, ...],
        files: Files,
        clock: Clock,
        progress: Progress,
        make_build: MakeBuild,
    ) -> None:
        self.root, self.settings, self.families = root, settings, families
        self.files, self._clock, self._progress, self._make_build = files, clock, progress, make_build
        self._began = time.monotonic()

    def check_log(self) -> None:
        """StorePathInvalid if there is no log, though there was one: queues and index would be made from nothing."""
        places = self._log_places()
        listed = [self.files.list_directory(place) for place in places if self.files.exists(place)]
        if any(parse_segment_name(entry.name) is not None for entries in listed for entry in entries):
            return
        derived = [self.root / name for name in _all_directories((Family.QUEUES, Family.INDEX))]
        if not listed or any(self.files.exists(path) and self.files.list_directory(path) for path in derived):
            raise StorePathInvalid(places[0], "there are no log files, and nothing else to make queues and index from")

    def _log_places(self) -> tuple[Path, ...]:
        written = self.settings.commit_log_paths or (self.root / COMMIT_LOG,)
        return (*written, *self.settings.commit_log_read_only_paths)

    # -- beside the store --------------------------------------------------------------------------------------

    def beside(self, target: Path) -> Rebuilt:
        """Into a directory that does not exist yet; it appears when it is complete."""
        if self.files.kind(target) is not None:
            raise StorePathInvalid(target, "exists already; name a directory that does not")
        if not self.files.exists(target.parent):
            raise StorePathInvalid(target.parent, "there is no such directory to put it in")
        place = target.resolve()
        if any(place.is_relative_to(one.resolve()) for one in (self.root, *self._log_places())):
            raise StorePathInvalid(target, "lies in the store, which is only read; name a directory elsewhere")
        partial = target.with_name(target.name + ".partial")
        check_work(self.files, partial, otherwise=", or choose another name")
        journal, built = self._build(partial)
        for name in (NEW, *_all_directories(self.families)):
            self.files.sync_directory(partial / NEW if name == NEW else partial)
        self.files.rename(partial / NEW, target)
        self.files.sync_directory(target.parent)
        kept = remove_tree(self.files, partial, in_rebuild)
        return self._report(journal, target, built, kept)

    # -- in the store --------------------------------------------------------------------------------------------

    def of(self, families: tuple[Family, ...]) -> "_Rebuild":
        """The same call for some of the families."""
        return _Rebuild(self.root, self.settings, families, self.files, self._clock, self._progress, self._make_build)

    def is_ready(self, place: WorkPlace) -> bool:
        """Has an earlier call built all of it, and was ended before all was in place?"""
        journal = load_journal(self.files, place.work) if self.files.kind(place.work) is PathKind.DIRECTORY else None
        return journal is not None and journal.ready and self._fits(journal, place.work)

    def in_place(self, place: WorkPlace, lock: Lock) -> Rebuilt:
        """The store's lock is held, and everything at `place` was checked. StoreError if the lock is lost meanwhile."""
        work = place.work
        clear_misplaced(self.files, self.root, read_only=False)
        journal = load_journal(self.files, work)
        built: Built | None = None
        if journal is None or not journal.ready or not self._fits(journal, work):
            journal, built = self._build(work)
            check_lock(lock)
            journal = self._make_ready(journal, work)
        check_lock(lock)
        self._swap(journal, place)
        check_lock(lock)
        self._prove(journal)
        kept = self._clear(place)
        return self._report(journal, self.root, built, kept)

    def _fits(self, journal: RebuildJournal, work: Path) -> bool:
        """Was the journal written for this log as it is now, and for this call?"""
        build = self._build_in(work)
        try:
            return journal.families == list(self.families) and journal.log == build.log_facts(journal.end)
        finally:
            build.close()

    def _build_in(self, work: Path) -> Build:
        return self._make_build(self.root, work / NEW, self.settings, self.families, self.files, self._clock)

    def _build(self, work: Path) -> tuple[RebuildJournal, Built]:
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
        journal = RebuildJournal(
            families=list(self.families),
            settings=build.fingerprint,
            position=built.end,
            end=built.end,
            log=log_facts,
            queues=built.queues_state,
            index=built.index_state,
        )
        return journal, built

    def _make_ready(self, journal: RebuildJournal, work: Path) -> RebuildJournal:
        """From here on the swap can be finished by any process, whatever becomes of this one."""
        inventory = load_inventory(self.files, self.root)
        journal = msgspec.structs.replace(
            journal, ready=True, inventory=msgspec.to_builtins(inventory) if inventory is not None else None
        )
        save_journal(self.files, work, journal)
        return journal

    def _swap(self, journal: RebuildJournal, place: WorkPlace) -> None:
        self._withdraw_proofs(journal)
        for name, target in place.targets.items():
            self._swap_one(place.work, name, target)

    def _withdraw_proofs(self, journal: RebuildJournal) -> None:
        """No proof covers the queues, or the index, until the new ones are in place."""
        page = load_state_page(self.files, self.root, writable=True)
        if page is not None and Family.QUEUES in self.families:
            page.queues_written = page.queues_durable = 0
            page.sync()
        if Family.INDEX in self.families:
            drop_index_proof(self.files, self.root)
        if self.files.exists(self.root / INVENTORY):
            self.files.remove(self.root / INVENTORY)
            self.files.sync_directory(self.root)

    def _swap_one(self, work: Path, name: str, here: Path) -> None:
        """Whatever step this was at before, it comes to its end."""
        files, new, old = self.files, work / NEW / name, work / OLD / name
        if files.kind(new) is None:
            return  # It is in its place already, or there is none.
        if files.kind(new) is not PathKind.DIRECTORY:
            raise StorePathInvalid(new, "is not the directory that was built; move it away")
        files.make_directory(old.parent)
        if files.exists(here):
            if left := remove_tree(files, old, DERIVED[name]):
                raise StorePathInvalid(left[0], "is in the way, and was not made by a rebuild; move it away")
            self._move(here, old)
        self._move(new, here)

    def prepare(self, place: WorkPlace) -> None:
        """Make sure that nothing lies where we work but what an earlier rebuild left; StorePathInvalid if it does."""
        check_work(self.files, place.work, otherwise="", besides=OLD)
        self._put_back(place)
        check_work(self.files, place.work, otherwise="")

    def _clear(self, place: WorkPlace) -> list[Path]:
        """Remove what was replaced, and where it was built. The answer: files of others that are in the way of ours."""
        self._put_back(place)
        return remove_tree(self.files, place.work, in_rebuild)

    def _put_back(self, place: WorkPlace) -> None:
        """Remove what was replaced. What others had put among those files goes back to where it was, unless a file
        that was made again has its name now."""
        files = self.files
        for name, here in place.targets.items():
            old = place.work / OLD / name
            for left in remove_tree(files, old, DERIVED[name]):
                target = here / left.relative_to(old)
                if left != old and files.kind(target) is None:
                    files.make_directory(target.parent)
                    self._move(left, target)

    def _move(self, source: Path, target: Path) -> None:
        try:
            self.files.rename(source, target)
        except OSError as problem:
            if problem.errno != errno.EXDEV:
                raise
            raise StoreError(f"{source} lies on another file system; use --into, and move it by hand") from problem
        self.files.sync_directory(target.parent)
        self.files.sync_directory(source.parent)

    def _prove(self, journal: RebuildJournal) -> None:
        """Say what is known of the new files, if anything was said of the old ones."""
        if Family.INDEX in self.families:
            prove_rebuilt_index(self.files, self.root, journal.end, journal.index)
        page = load_state_page(self.files, self.root, writable=True)
        if page is not None:
            if Family.QUEUES in self.families:
                page.queues_written = page.queues_durable = journal.end
                page.queue_files = sum(row[6] for row in journal.queues.get("queues", []))
            if Family.INDEX in self.families:
                page.index_files = len(journal.index.get("files", []))
            page.sync()
        if journal.inventory is None:
            return
        inventory = msgspec.convert(journal.inventory, Inventory)
        changes: dict[str, Any] = {}
        if Family.QUEUES in self.families:
            changes["queues"] = journal.queues
        if Family.INDEX in self.families:
            changes["index"] = journal.index
        save_inventory(self.files, self.root, msgspec.structs.replace(inventory, **changes))

    def _report(self, journal: RebuildJournal, target: Path, built: Built | None, kept: list[Path]) -> Rebuilt:
        files = journal.index.get("files", [])
        return Rebuilt(
            path=self.root,
            target=target,
            families=self.families,
            log_min=journal.log["min"],
            log_end=journal.end,
            records=built.records if built is not None else 0,
            queues=len(journal.queues.get("queues", [])),
            queue_entries=sum(row[3] - row[2] for row in journal.queues.get("queues", [])),
            index_entries=sum(row[1] - 1 for row in files),
            resumed_at=journal.end if built is None else built.resumed_at,
            seconds=time.monotonic() - self._began,
            damages=built.damages if built is not None else [],
            torn_tail=built.torn_tail if built is not None else [],
            kept=kept,
        )


def _all_directories(families: tuple[Family, ...]) -> list[str]:
    return [name for family in families for name in DIRECTORIES[family]]


def settings_as_found(files: Files, root: Path) -> dict[str, Any]:
    """Settings, by Python name, that a store shows to have had, besides the sizes of files that are there: what its
    directories show to be on, and the size of queue files if all of them are gone."""
    found: dict[str, Any] = {}
    if files.exists(root / CONSUME_QUEUE_EXT):
        found["queue_extension"] = True
    queues = root / CONSUME_QUEUE
    topics = files.list_directory(queues) if files.exists(queues) else []
    if any(topic.name.startswith(LMQ_PREFIX) for topic in topics):
        found["light_queues"] = found["multi_dispatch"] = True
    inventory = load_inventory(files, root)
    if inventory is not None and not topics and inventory.queues.get("file_bytes"):
        found["queue_file_bytes"] = inventory.queues["file_bytes"]
    return found


__all__ = ["Family", "Rebuilt", "rebuild", "settings_as_found"]
