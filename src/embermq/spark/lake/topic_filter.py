"""Which topics a lake, or statistics, are about: names and patterns, chosen once for a place. Pure.

    TopicFilter.of(["orders*", "returns"], ["*-test"])      these, without those

In a pattern `*` stands for any text and `?` for one character; it must match the whole name, and case matters.
Readers of a lake need it: messages that were left out are only in the log, also in ranges that the lake has.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from embermq.columns import NO_SLOT, QueueSlots, RecordColumns
from embermq.errors import OptionInvalid


class TopicFilter(msgspec.Struct, frozen=True):
    """Without `include` all topics are meant."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @classmethod
    def of(cls, include: Sequence[str], exclude: Sequence[str]) -> "TopicFilter":
        """From words as they were given, each a name, a pattern, or several with commas between. The order they
        come in does not matter, so it is not kept."""
        return cls(_words("topic", include), _words("exclude", exclude))

    @property
    def is_everything(self) -> bool:
        return not self.include and not self.exclude

    def wants(self, topic: str) -> bool:
        chosen = not self.include or any(_matcher(one).search(topic) for one in self.include)
        return chosen and not any(_matcher(one).search(topic) for one in self.exclude)

    def __str__(self) -> str:
        if self.is_everything:
            return "all topics"
        without = f" without {', '.join(self.exclude)}" if self.exclude else ""
        return f"topics {', '.join(self.include) or '*'}{without}"


EVERYTHING = TopicFilter()


def _words(option: str, given: Sequence[str]) -> tuple[str, ...]:
    words = sorted({word.strip() for one in given for word in one.split(",")})
    if words and not words[0]:
        raise OptionInvalid(option, "a topic or pattern is empty; write names with one comma between", value=given[0])
    return tuple(words)


def as_regex(pattern: str) -> str:
    """A pattern as a regular expression, for Python and Java, that is to be found in a name."""
    parts = [".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern)]
    return f"(?s)^{''.join(parts)}$"


@cache
def _matcher(pattern: str) -> re.Pattern[str]:
    return re.compile(as_regex(pattern))


def rows_of(wanted: TopicFilter) -> Callable[[RecordColumns, NDArray[np.int64]], NDArray[np.int64]]:
    """(records, rows) -> those of the rows whose topic is wanted; a name is looked at once."""
    if wanted.is_everything:
        return lambda records, rows: rows
    slots = QueueSlots(lambda topic, _queue_id: wanted.wants(topic))

    def chosen(records: RecordColumns, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        kept: NDArray[np.int64] = rows[slots.route(records)[rows] != NO_SLOT]
        return kept

    return chosen
