"""Samples of queue files: how large records are, how many a tag leaves, and whether the files are complete enough.

A few reads of some entries each, on the driver, while planning. What is found only decides which way to read is
cheaper and where to cut, never which rows there are.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from embermq.format.java import string_hash
from embermq.inspect import even_edges
from embermq.spark.planning.plan import QueueRequest, SizeSample
from embermq.spark.planning.stores import StorePlace
from embermq.spark.reading.queue_files import QueueEntryFiles

_READS_IN_ALL = 1024  # over all queues of a store
_READS_MAX = 16  # of one queue
_ENTRIES_PER_READ = 32
_LAG_ENTRIES_MAX = 10_000
_EXTENSION_ADDRESS_MAX = -(1 << 31) - 1  # tag codes up to here are addresses of an extension entry

TagCodes = NDArray[np.int64]


def sampled(
    place: StorePlace, requests: Sequence[QueueRequest], tags: frozenset[str] | None
) -> tuple[tuple[QueueRequest, ...], str]:
    """The needs, with sizes and shares; and why queue files are of no use, if so."""
    codes = None if tags is None else tag_codes(tags)
    reads = min(_READS_MAX, max(1, _READS_IN_ALL // max(1, len(requests))))
    found, lag = [], 0
    for request in requests:
        files = QueueEntryFiles(place.path, request.topic, request.queue_id)
        lag += request.end - files.known_end(request.start, request.end)
        found.append(_sample(request, files, reads, codes))
    total = sum(request.count for request in requests)
    if lag > _LAG_ENTRIES_MAX or lag * 10 > total:
        return tuple(found), f"queue files lack {lag:,} of {total:,} entries"
    return tuple(found), ""


def _sample(request: QueueRequest, files: QueueEntryFiles, reads: int, codes: TagCodes | None) -> QueueRequest:
    sizes: list[SizeSample] = []
    matching = seen = 0
    for at in sorted(set(even_edges(request.start, request.end, reads)[:-1])):
        entries = files.entries(at, min(at + _ENTRIES_PER_READ, request.end))
        entries = entries[entries["size"] > 0]
        if len(entries):
            sizes.append(SizeSample(at, float(entries["size"].mean())))
            seen += len(entries)
            matching += len(entries) if codes is None else int(can_match(entries["tag_code"], codes).sum())
    # A tag that no sample has may still be there: never count on less than one of what was seen.
    share = max(matching, 1) / seen if seen else 1.0
    return replace(request, sizes=tuple(sizes), wanted_share=share)


def tag_codes(tags: frozenset[str]) -> TagCodes:
    """The hashes of tags, as entries have them."""
    return np.array(sorted(string_hash(tag) for tag in tags), np.int64)


def can_match(stored: NDArray[np.integer], wanted: TagCodes) -> NDArray[np.bool_]:
    """Entries whose tag can be one of the wanted ones: by hash, or not known since the code is an address."""
    codes = stored.astype(np.int64)
    return np.isin(codes, wanted) | (codes <= _EXTENSION_ADDRESS_MAX)
