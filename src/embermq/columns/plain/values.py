"""Lists of texts and of bytes as columns: all values one behind another, where each begins and how long it is.

Only lists of exactly str (or None) or of exactly bytes are taken; for others there is no column (None), and the caller
has to look at what they are.

`join_texts` and `join_bytes` are the plain twins of the kernels of compiled/values.py, which read the objects in place.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embermq.columns.plain.pairs import ValueColumn


def join_bytes(values: Sequence[Any]) -> ValueColumn | None:
    """A column of bytes."""
    if not set(map(type, values)) <= {bytes}:
        return None
    return column_of(b"".join(values), np.fromiter(map(len, values), np.int64, len(values)))


def join_texts(values: Sequence[Any]) -> ValueColumn | None:
    """A column of texts in UTF-8; a row without one (None) has length -1."""
    kinds = set(map(type, values))
    if not kinds <= {str, type(None)}:
        return None
    texts = values if type(None) not in kinds else ["" if text is None else text for text in values]
    joined = "".join(texts)
    try:
        data = joined.encode()
        sizes = map(len, texts) if len(data) == len(joined) else (len(text.encode()) for text in texts)
        column = column_of(data, np.fromiter(sizes, np.int64, len(texts)))
    except UnicodeEncodeError:  # Half a character may have met its other half when the texts were joined.
        return None
    if texts is not values:
        column.lengths[[text is None for text in values]] = -1
    return column


def column_of(data: Any, lengths: NDArray[np.int64]) -> ValueColumn:
    """Values of these lengths that lie one behind another; -1 takes no room."""
    taken = np.maximum(lengths, 0)
    return ValueColumn(data, np.cumsum(taken) - taken, lengths)
