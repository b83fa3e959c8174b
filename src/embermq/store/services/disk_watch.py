"""How full the disks of a store are, and what follows for appends: refused while full, taken again when not.

`check` may come from any thread; it takes the put lock for a moment when something changes.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from embermq.errors import DiskFull
from embermq.files import Files, mount_of
from embermq.settings import StoreSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Used space of a store's disks as fractions; None where it could not be found out."""

    log_used: float | None  # of several log directories, the emptiest
    log_directory: Path
    queues_used: float | None


class DiskWatch:
    """Looks at the disks of one store, and tells its writer."""

    def __init__(
        self,
        files: Files,
        log_directories: Sequence[Path],
        queue_directory: Path,
        settings: StoreSettings,
        refuse: Callable[[DiskFull | None], None],
    ) -> None:
        """`refuse` makes the writer refuse appends with this error, or, with None, take them again."""
        self._files, self._log_directories, self._queue_directory = files, log_directories, queue_directory
        self._full_percent, self._refuse = settings.disk_full_percent, refuse
        self._unknown: set[Path] = set()
        self.refusal: DiskFull | None = None

    def look(self) -> DiskUse:
        """How full the disks are now."""
        found = [(self._used(path), path) for path in self._log_directories]
        known = [(used, path) for used, path in found if used is not None]
        log_used, log_directory = min(known, default=(None, self._log_directories[0]))
        return DiskUse(log_used, log_directory, self._used(self._queue_directory))

    def _used(self, directory: Path) -> float | None:
        try:
            used = self._files.usage(directory).used_ratio
        except OSError as problem:
            if directory not in self._unknown:
                self._unknown.add(directory)
                log.warning("disk unknown path=%s error=%s", directory, problem)
            return None
        self._unknown.discard(directory)
        return used

    def check(self) -> DiskUse:
        """Look, and refuse appends while a disk is too full; take them again when there is room."""
        use = self.look()
        refusal = self._refusal_for(use)
        if refusal is not None or self.refusal is not None:
            self._refuse(refusal)
        if (refusal is None) != (self.refusal is None):
            log.warning("appends %s", f"refused: {refusal}" if refusal is not None else "taken again: there is room")
        self.refusal = refusal
        return use

    def _refusal_for(self, use: DiskUse) -> DiskFull | None:
        mark = self._full_percent / 100
        places = ((use.log_used, use.log_directory), (use.queues_used, self._queue_directory))
        for used, directory in places:
            if used is not None and used > mark:
                return DiskFull(
                    f"the disk mounted at {mount_of(directory)} is {used:.0%} full, past the mark of {mark:.0%}"
                    f" (emberDiskFullPercent): no more appends to {directory}; free some space, and they go on"
                )
        return None
