"""How far one who must not write may believe queue and index files: below which place in the log they have everything.

Queue files, by who vouches for them:

    ours, the state page fits       what the page says was written; after the machine stopped, what was synced
    closed cleanly                  the newest record that queues know: all of it was written before
    RocketMQ, running               the same: it writes entries in the order of the log
    anything else                   nothing: killed, or copied while it ran, some queues may have less than others

Index files:

    ours, closed, or killed with the machine running since      all, if no file of the proof or the page is missing
    ours, otherwise                 the files that were full when the proof was made; pages of the newest may be old
    RocketMQ, closed or running     all: it writes keys in the order of the log
    anything else                   nothing

The state page and the index proof must be read before the files they vouch for: a running store writes files first and
says so afterwards, so files that are read later have at least that. One thread. Reads only.
"""

from collections.abc import Callable
from pathlib import Path

from embermq.files import Files
from embermq.store.index.index_files import IndexFiles
from embermq.store.index.proof import IndexProof
from embermq.store.layout import directory
from embermq.store.layout.owner import lock_holder
from embermq.store.layout.state_page import STATE_FILE as STATE_PAGE
from embermq.store.layout.state_view import PageNumbers


class DerivedTrust:
    """What may be believed of the store at `root`, by the page and the proof that were read before."""

    def __init__(self, files: Files, root: Path, page: PageNumbers | None) -> None:
        """`page` is None if there is none, or if it is about another log."""
        self._files, self._root, self._page = files, root, page
        self._closed = directory.was_closed_cleanly(files, root)

    def queues(self, newest_entry_end: Callable[[], int]) -> tuple[int, int]:
        """Entries of all records below a place are in files; and how many files there are at least.

        `newest_entry_end`: where the newest record ends that queue files know and the log confirms.
        """
        page = self._page
        if page is not None:
            return page.queues_written if self._is_as_written(page) else page.queues_durable, page.queue_files
        return (newest_entry_end() if self._closed or self._is_foreign_and_running() else 0), 0

    def index(self, index: IndexFiles, proof: IndexProof | None, *, is_sound: bool) -> int:
        """Keys of all records below this place are in the files that `index` uses from now on. An index that lacks any
        is of no use to one who cannot mend it: all keys are taken from the log then."""
        page = self._page
        if is_sound and proof is None and (self._closed or (page is None and self._is_foreign_and_running())):
            return index.position
        if is_sound and proof is not None and proof.is_behind(index.state()) and self._has_all_files(index, page):
            return max(index.position, proof.position)
        if proof is not None and not index.restore(proof.state_of_full_files()):
            return index.position
        index.destroy_all()
        return 0

    def _has_all_files(self, index: IndexFiles, page: PageNumbers | None) -> bool:
        """Are those there too that were made after the proof, all their pages as they were written?"""
        if page is None:
            return self._closed
        return self._is_as_written(page) and index.count >= page.index_files

    def _is_as_written(self, page: PageNumbers) -> bool:
        """The machine has not stopped since the page was written: all that was written is there."""
        return self._closed or (page.boot != 0 and page.boot == self._files.boot())

    def _is_foreign_and_running(self) -> bool:
        """Is RocketMQ at work? Queue files of ours are written queue by queue, not in the order of the log."""
        return not self._files.exists(self._root / STATE_PAGE) and lock_holder(self._root) is not None
