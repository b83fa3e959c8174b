"""Which entries of a read may match its filter: the first stage of a filter, asked once for all entries if possible.

In a queue with an extension each tag code costs a look into another file. There the filter is asked about a portion of
the entries at a time, and about no more than the reader comes to.
"""

import numpy as np
from numpy.typing import NDArray

from embermq.errors import StoreError
from embermq.format.queue_extension import is_address
from embermq.store.queues.consume_queue import ConsumeQueue
from embermq.store.queues.filters import Extensions, MessageFilter
from embermq.store.queues.pending_entries import Entries

EXTENDED_PORTION = 32
_NO_MASK: NDArray[np.uint8] = np.empty(0, np.uint8)


class EntryMatches:
    """For one read, on one thread."""

    def __init__(self, queue: ConsumeQueue, entries: Entries, wanted: MessageFilter | None) -> None:
        self._extension, self._entries, self._wanted = queue.extension, entries, wanted
        self.mask = _NO_MASK if wanted is None else np.zeros(len(entries), np.uint8)
        self.asked = len(entries) if wanted is None else 0  # The filter was asked about the entries below this one.

    def may_match(self, i: int) -> bool:
        """May the message of entry i match?"""
        if self._wanted is None:
            return True
        while i >= self.asked:
            self.ask()
        return bool(self.mask[i])

    def ask(self) -> None:
        """Ask about the next portion."""
        assert self._wanted is not None
        start = self.asked
        if self._extension is None:
            self.mask = self._answer(self._tag_codes(start, len(self._entries)), None).view(np.uint8)
            self.asked = len(self._entries)
            return
        end = min(start + EXTENDED_PORTION, len(self._entries))
        tag_codes = self._tag_codes(start, end)
        extensions = [self._extension.find(code) for code in tag_codes.tolist()]
        is_unknown = np.zeros(end - start, np.bool_)
        for i, entry in enumerate(extensions):
            if entry is not None:
                tag_codes[i] = entry.tag_code
            else:
                is_unknown[i] = is_address(int(tag_codes[i]))  # The extension that it leads to is gone.
        self.mask[start:end] = self._answer(tag_codes, extensions) | is_unknown
        self.asked = end

    def _answer(self, tag_codes: NDArray[np.int64], extensions: Extensions | None) -> NDArray[np.bool_]:
        assert self._wanted is not None
        answer = np.ascontiguousarray(self._wanted.matches_entry(tag_codes, extensions), np.bool_)
        if answer.shape != tag_codes.shape:
            raise StoreError(f"{self._wanted!r} answered {answer.shape} when asked about {len(tag_codes)} entries")
        return answer

    def _tag_codes(self, start: int, end: int) -> NDArray[np.int64]:
        return self._entries["tag_code"][start:end].astype(np.int64)
