"""The state page of a store seen from outside: its numbers at one moment, if they can be believed.

A running store changes a number and its inverse one after the other, and its process may be held up in between for
as long as the system likes; a reader that took such a page for a damaged one would show what is not durable yet. So a
page that belongs here and does not agree with itself is looked at again for a while before it counts for nothing.

One thread at a time. Reads only.
"""

from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from embermq.files import DirectoryEntry, Files
from embermq.store.layout.state_page import PAGE_BYTES, STATE_FILE, StatePage, load_state_page

_PATIENCE_SECONDS = 1.0
_POLL_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class PageNumbers:
    """What a page said. Numbers only grow while a store runs: an older one is true, and modest."""

    epoch: int
    flushed: int
    queues_written: int
    queues_durable: int
    queue_files: int
    index_files: int
    boot: int
    sync_flush: int
    tail_mark: int


class PageReader:
    """Reads the page of one store, as often as asked."""

    def __init__(self, root: Path, files: Files) -> None:
        self._root, self._files = root, files
        self._given_up = b""  # What a page looked like that did not become whole.

    def read(self) -> PageNumbers | None:
        """The numbers now; None if there is no page, or none that counts."""
        deadline = monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                page = load_state_page(self._files, self._root, writable=False)
                if page is not None:
                    return PageNumbers(*(getattr(page, name) for name in PageNumbers.__dataclass_fields__))
                content = self._content_if_ours()
            except FileNotFoundError:  # Being made anew just now.
                return None
            if content is None or content == self._given_up:
                return None
            if monotonic() > deadline:
                self._given_up = content
                return None
            sleep(_POLL_SECONDS)

    def _content_if_ours(self) -> bytes | None:
        """The bytes of a page that was made for this directory."""
        path = self._root / STATE_FILE
        if not self._files.exists(path) or not _may_be_page(self._files.stat(path)):
            return None
        file = self._files.open(path, False)
        page = StatePage(file, False)
        return file.pread(PAGE_BYTES, 0) if page.identity == self._files.identity(path) else None


def _may_be_page(found: DirectoryEntry) -> bool:
    return found.is_file and found.size == PAGE_BYTES
