"""consumerFilter.json: the SQL filters that consumer groups have registered, by topic and group.

    {"filterDataByTopic":{"<topic>":{"groupFilterData":{"<group>":{...}},"topic":"<topic>"}}}

`dead` in the file is derived: a filter is dead when it was unregistered after it was last registered. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from embermq.files import Decoded
from embermq.store.tables.config_table import TableFormat
from embermq.store.tables.entry_codec import decode_entry, encode_entry
from embermq.store.tables.offsets import TopicGroup

_GROUPS = "groupFilterData"
_DEAD = "dead"
_BLOOM = "bloomFilterData"


@dataclass(frozen=True, slots=True)
class ConsumerFilter:
    """One filter; times in ms. `bloom_filter_data` has `bitNum` and `bitPos`, the bits that stand for it."""

    topic: str
    consumer_group: str
    expression: str
    expression_type: str = "SQL92"
    born_time: int = 0
    dead_time: int = 0
    client_version: int = 0
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_dead(self) -> bool:
        return self.dead_time >= self.born_time

    @property
    def bits(self) -> tuple[int, ...]:
        """The positions of this filter's bits in the queue extension; none if it has no such bits."""
        return tuple(self.others.get(_BLOOM, {}).get("bitPos", ()))

    @property
    def bits_max(self) -> int:
        """How many bits a record has in the queue extension by the settings that `bits` was computed with."""
        return int(self.others.get(_BLOOM, {}).get("bitNum", 0))


def bloom_filter_data(bits: tuple[int, ...], bits_max: int) -> dict[str, Any]:
    """What a filter with these bits has in its `others`."""
    return {_BLOOM: {"bitNum": bits_max, "bitPos": list(bits)}}


def _decode(table: dict[Any, Any]) -> Decoded[dict[TopicGroup, ConsumerFilter]]:
    found: Decoded[dict[TopicGroup, ConsumerFilter]] = Decoded({})
    for topic, document in table.items():
        groups = document.get(_GROUPS, {}) if isinstance(document, dict) else None
        if not isinstance(groups, dict):
            found.faults.append(f"{topic} has no {_GROUPS}")
            continue
        for group, one in groups.items():
            try:
                found.value[TopicGroup(str(topic), str(group))] = _decode_one(str(topic), str(group), one)
            except ValueError as problem:
                found.faults.append(f"{topic} {group} {problem}")
    return found


def _decode_one(topic: str, group: str, document: Any) -> ConsumerFilter:
    if isinstance(document, dict):
        document = {"topic": topic, "consumerGroup": group} | document
        document.pop(_DEAD, None)
    entry = decode_entry(ConsumerFilter, document)
    bloom = entry.others.get(_BLOOM, {})
    positions = bloom.get("bitPos", []) if isinstance(bloom, dict) else None
    if not isinstance(positions, list) or any(type(one) is not int for one in [*positions, bloom.get("bitNum", 0)]):
        raise ValueError(f"has {_BLOOM} = {bloom!r}")
    return entry


def _encode(entries: Mapping[TopicGroup, ConsumerFilter]) -> dict[Any, Any]:
    topics: dict[Any, Any] = {}
    for (topic, group), entry in entries.items():
        document = encode_entry(entry) | {_DEAD: entry.is_dead}
        of_topic = topics.setdefault(topic, {_GROUPS: {}, "topic": topic})
        of_topic[_GROUPS][group] = dict(sorted(document.items()))
    return topics


FILTERS: TableFormat[TopicGroup, ConsumerFilter] = TableFormat(
    "consumerFilter.json", "filterDataByTopic", _decode, _encode
)
