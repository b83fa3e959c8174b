"""Which hashes are there more than once, among millions. Plain twin of columns/compiled/repeats.py."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from embermq.columns.plain.text_hashes import Hashes

Pairs = NDArray[np.int64]  # a row for each: a hash, and whatever belongs to it


def repeated(blocks: Sequence[Pairs]) -> Hashes:
    """Those hashes of all blocks that are there twice or more, in order, each once."""
    if not blocks:
        return np.empty(0, np.uint64)
    ordered = np.sort(np.concatenate([block[:, 0] for block in blocks]).view(np.uint64))
    found: Hashes = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    return found
