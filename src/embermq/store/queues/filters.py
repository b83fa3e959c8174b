"""Filters: which messages of a queue a reader wants, asked in two stages.

    matches_entry    may the messages of these queue entries match? Asked of many at once, with nothing read but the
                     entries: tag codes and, where the queue has an extension, filter bits. May say yes too often.
    matches_record   does this message match? Asked of those that are left, with the properties of the record.

TagFilter is the subscription `paid || sent`: by hash first, by text second, because hashes collide. GroupFilter is a
condition on the properties that is registered for a consumer group: FilterBits evaluates it when a message is
dispatched and writes bits to the extension of its queue, by which the first stage passes over most of the rest.
PropertyFilter is such a condition without a group: nothing is known of a message before its properties are read.

An entry whose tag code or extension is gone is never passed over: the store does not ask about it. Any thread.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from embermq.columns import C_STORE_TIME, Needles, RecordColumns
from embermq.format.java import string_hash
from embermq.format.queue_extension import BloomFilter, ExtensionEntry, may_contain
from embermq.model.properties import property_value, tag_texts

log = logging.getLogger(__name__)

Extensions = Sequence[ExtensionEntry | None]


class MessageFilter(Protocol):
    """Two questions. Both must give the same answer whenever they are asked."""

    def matches_entry(self, tag_codes: NDArray[np.int64], extensions: Extensions | None) -> NDArray[np.bool_]:
        """For each entry: may its message match? `extensions` has the extension entry of each, None for one that has
        none; it is None for a queue without extension."""
        ...

    def matches_record(self, properties: bytes) -> bool:
        """Does a message with this property string match?"""
        ...


class TagFilter:
    """Messages with one of some tags."""

    def __init__(self, tags: frozenset[str]) -> None:
        self.tags = tags
        self._codes = np.array(sorted({string_hash(tag) for tag in tags}), np.int32)

    def __repr__(self) -> str:
        return f"TagFilter({' || '.join(sorted(self.tags))})"

    def matches_entry(self, tag_codes: NDArray[np.int64], extensions: Extensions | None) -> NDArray[np.bool_]:
        codes = tag_codes.astype(np.int32)  # The low 32 bits: what a consumer compares.
        if len(self._codes) == 1:
            same: NDArray[np.bool_] = codes == self._codes[0]
            return same
        return np.isin(codes, self._codes)

    def matches_record(self, properties: bytes) -> bool:
        tag = property_value(properties, b"TAGS")
        return tag is not None and self.matches_tag(tag)

    def matches_tag(self, tag: bytes) -> bool:
        """The same, with the tag at hand."""
        return tag.decode("utf-8", "replace") in self.tags


class PropertyFilter:
    """Messages whose properties meet a condition."""

    def __init__(self, condition: Callable[[bytes], bool], needles: tuple[bytes, ...] = ()) -> None:
        """`condition` takes a property string and raises nothing; embermq.sql92 makes such ones. Where it holds, the
        property string contains one of the `needles`, if there are any."""
        self._condition = condition
        self.needles = Needles.of(needles)

    def matches_entry(self, tag_codes: NDArray[np.int64], extensions: Extensions | None) -> NDArray[np.bool_]:
        return np.ones(len(tag_codes), np.bool_)

    def matches_record(self, properties: bytes) -> bool:
        return self._condition(properties)


class GroupFilter:
    """Messages of a topic whose properties meet the condition of a consumer group."""

    def __init__(
        self,
        topic: str,
        group: str,
        condition: Callable[[bytes], bool],
        *,
        needles: tuple[bytes, ...] = (),
        registered_ms: int = 0,
        bloom: BloomFilter | None = None,
    ) -> None:
        """`condition` takes a property string; where it raises, the message does not match. `needles` as above. Bits of
        messages that were stored at or before `registered_ms` say nothing: the filter was not known then."""
        self.topic, self.group = topic, group
        self.needles = Needles.of(needles)
        self._condition, self._registered_ms = condition, registered_ms
        bloom = bloom if bloom is not None else BloomFilter.sized()
        self.bits = bloom.bits
        self.key = f"{group}#{topic}"
        self.positions = bloom.positions(self.key)

    def __repr__(self) -> str:
        return f"GroupFilter({self.key})"

    def matches_entry(self, tag_codes: NDArray[np.int64], extensions: Extensions | None) -> NDArray[np.bool_]:
        may_match = np.ones(len(tag_codes), np.bool_)
        for i, entry in enumerate(extensions or ()):
            if entry is not None and entry.store_time > self._registered_ms and 8 * len(entry.bitmap) == self.bits:
                may_match[i] = may_contain(entry.bitmap, self.positions)
        return may_match

    def matches_record(self, properties: bytes) -> bool:
        try:
            return self._condition(properties) is True
        except Exception as problem:
            log.debug("filter failed group=%s topic=%s error=%s", self.group, self.topic, problem)
            return False


class FilterBits:
    """The filters registered now, as the `bit_map_for` of a store: bits of the groups whose filter a record matches.

    Filters come and go while the store runs. A record of a topic without filters has no bits.
    """

    def __init__(self, bloom: BloomFilter | None = None) -> None:
        self.bloom = bloom if bloom is not None else BloomFilter.sized()
        self._lock = threading.Lock()
        self._filters: dict[str, tuple[GroupFilter, ...]] = {}  # By topic; replaced, never changed.
        self.newest_ms = 0  # Store time of the newest record that bits were asked for.

    def register(self, filter: GroupFilter) -> Callable[[], None]:
        """Compute bits for a filter from now on, in place of an earlier one of its group; the answer ends it again."""
        if filter.bits != self.bloom.bits:
            raise ValueError(f"{filter!r} was made for {filter.bits} bits, this store has {self.bloom.bits}")
        with self._lock:
            others = tuple(one for one in self._filters.get(filter.topic, ()) if one.group != filter.group)
            self._filters = {**self._filters, filter.topic: (*others, filter)}

        def remove() -> None:
            with self._lock:
                left = tuple(one for one in self._filters.get(filter.topic, ()) if one is not filter)
                kept = {topic: filters for topic, filters in self._filters.items() if topic != filter.topic}
                self._filters = {**kept, filter.topic: left} if left else kept

        return remove

    def __call__(self, batch: RecordColumns, i: int) -> bytes:
        """The bits of record i; b"" if its topic has no filters."""
        self.newest_ms = max(self.newest_ms, int(batch.rows[i, C_STORE_TIME]))
        registered = self._filters
        filters = registered.get(batch.topic(i)) if registered else None
        if not filters:
            return b""
        properties = batch.properties(i)
        raw = bytearray(self.bloom.bits // 8)
        for one in filters:
            if one.matches_record(properties):
                for position in one.positions:
                    raw[position // 8] |= 1 << position % 8
        return bytes(raw)


def as_filter(wanted: "str | MessageFilter | None") -> MessageFilter | None:
    """A tag expression (`paid || sent`; `*` and nothing mean all) or a filter, as a filter; None for all."""
    if wanted is None:
        return None
    if not isinstance(wanted, str):
        return wanted
    tags = tag_texts(wanted)
    return None if tags is None else TagFilter(tags)
