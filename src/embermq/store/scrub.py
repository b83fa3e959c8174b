"""The scrub: a thread that mends what is derived, while the store is open.

Look-ups that find an index file damaged (checksums.py) answer from the log and wake this thread, which makes the file
again (index_repair.py) and has that proven. `stop` ends it at once, but for the file it is at.
"""

import logging
import threading

from embermq.store.housekeeping import Housekeeping
from embermq.store.index_files import IndexFiles
from embermq.store.index_repair import repair_index
from embermq.store.index_search import KeySearch

log = logging.getLogger(__name__)


class Scrub:
    """The thread, and what it does. `mend` may be called by any thread."""

    def __init__(self, index: IndexFiles | None, search: KeySearch, housekeeping: Housekeeping) -> None:
        self._index, self._search, self._housekeeping = index, search, housekeeping
        self._stopping = False
        self._wake = threading.Event()
        self._one_at_a_time = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="embermq-scrub", daemon=True)
        if index is not None:
            index.on_damage = self._note_damage
            if index.damaged:
                self._wake.set()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _note_damage(self, name: str) -> None:
        self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._stopping:
                return
            try:
                self.mend()
            except OSError as problem:
                log.error("scrub failed error=%s", problem)
            except Exception:  # A mistake of ours must not end the thread.
                log.exception("scrub failed")

    def mend(self) -> list[str]:
        """Make index files again that are known to be damaged; their names."""
        with self._one_at_a_time:
            mended = repair_index(self._index, self._search) if self._index is not None else []
            if mended:
                self._housekeeping.make_durable()
            return mended
