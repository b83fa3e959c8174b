"""Even parts: the one place that cuts a range of a log, or of anything counted, into parts of about equal length. Pure.

How many parts there are follows from who works on them (`slice_count`), where they begin from arithmetic alone
(`even_edges`), and in a log from its records (`record_starts`): a part of a log begins where a record begins.
"""

from collections.abc import Callable


def slice_bytes(length: int, workers: int, least: int, most: int) -> int:
    """How long parts are that keep so many workers busy, within these bounds."""
    return min(max(-(-length // workers), least), most)


def slice_count(length: int, workers: int, least: int, most: int) -> int:
    """How many parts a range is cut into so that each worker has one, unless that makes them too long or too short."""
    return max(1, -(-length // slice_bytes(length, workers, least, most)))


def even_edges(start: int, end: int, count: int) -> list[int]:
    """count + 1 places from start to end; the parts between them differ by one at most."""
    return [start + (end - start) * number // count for number in range(count + 1)]


def record_starts(start: int, end: int, count: int, align: Callable[[int], int]) -> list[int]:
    """Where about `count` even parts of [start, end) begin: `start`, and behind it only where records begin.

    `align` answers the first record at or after a place, or anything from `end` on if there is none. `start` is not
    moved: whether a record begins there is for the caller to know.
    """
    starts = [start]
    for edge in even_edges(start, end, count)[1:-1]:
        aligned = align(edge)
        if starts[-1] < aligned < end:
            starts.append(aligned)
    return starts
