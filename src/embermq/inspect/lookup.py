"""Single messages of a store seen from outside: by place, by id, by key. Reads only. One thread.

By key the index is asked; where none can be trusted to know everything, the log is searched: for the bytes of the
key at the speed of memory, and only records in which they occur are looked at.
"""

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from embermq.columns import C_PHYSICAL, C_PROPS_AT, C_PROPS_LEN, C_SYS_FLAG, RecordColumns
from embermq.errors import TopicUnknown
from embermq.format.frame_message import as_message
from embermq.inspect.even_slices import record_starts
from embermq.inspect.snapshot import Survey
from embermq.model.flags import has_index_entry
from embermq.model.hosts import Host
from embermq.model.ids import parse_message_id
from embermq.model.message import StoredMessage
from embermq.store.log import DamagedRange, frame_at, segment_at

FOREVER_MS = 2**63 - 1
# Stores of one host are the rule; looking at a few places finds the others.
_HOST_SAMPLES = 16


@dataclass(frozen=True, slots=True)
class LookupResult:
    """Messages, oldest first, and how they were found."""

    messages: list[StoredMessage]
    by_index: bool


def message_at(survey: Survey, physical_offset: int) -> StoredMessage | None:
    """The message that starts at a place of the log, or None if none does."""
    segment = segment_at(survey.segments, physical_offset)
    if segment is None or physical_offset >= survey.log_end:
        return None
    try:
        file = survey.files.open(segment.path, False)
    except FileNotFoundError:
        return None
    try:
        frame = frame_at(file, segment, physical_offset)
    finally:
        file.close()
    return None if frame is None else as_message(frame)


def find_messages(
    survey: Survey, topic: str, key: str, begin_ms: int = 0, end_ms: int | None = None, limit: int | None = None
) -> LookupResult:
    """Messages of a topic with this key (one of KEYS, or the unique key); with `limit`, the newest ones.

    The times are inclusive.
    """
    after_ms = FOREVER_MS if end_ms is None else end_ms + 1
    places = survey.find_key(topic, key, begin_ms, after_ms)
    by_index = places is not None
    if places is None:
        places = [place for place, found_topic in find_by_reading(survey, key) if found_topic == topic]
    found: list[StoredMessage] = []
    for place in sorted(set(places), reverse=True):
        message = message_at(survey, place)
        if message is None or message.topic != topic or not begin_ms <= message.store_timestamp < after_ms:
            continue
        if has_key(message, key):
            found.append(message)
            if len(found) == limit:
                break
    return LookupResult(found[::-1], by_index)


def has_key(message: StoredMessage, key: str) -> bool:
    return key == message.unique_key or key in message.keys


def find_by_reading(survey: Survey, key: str, start: int | None = None) -> Iterator[tuple[int, str]]:
    """Place and topic of every record that has this key, by reading the log. Rolled-back ones are left out, as in an
    index."""
    pattern = re.compile(re.escape(key.encode()))
    for scanned in survey.scan(survey.log_min if start is None else start, survey.log_end, check_crc=False):
        if isinstance(scanned, DamagedRange):
            continue
        for row in rows_with(scanned, pattern):
            if has_index_entry(int(scanned.rows[row, C_SYS_FLAG])) and key in scanned.keys(row):
                yield int(scanned.rows[row, C_PHYSICAL]), scanned.topic(row)


def rows_with(records: RecordColumns, pattern: re.Pattern[bytes]) -> list[int]:
    """Rows in whose properties a text occurs."""
    hits = np.array([hit.start() for hit in pattern.finditer(records.data.data)], np.int64)
    if not len(hits):
        return []
    starts = records.column(C_PROPS_AT)
    rows = np.searchsorted(starts, hits, "right") - 1
    inside = (rows >= 0) & (hits < starts[rows] + records.column(C_PROPS_LEN)[rows])
    found: list[int] = np.unique(rows[inside]).tolist()
    return found


# -- ids -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IdAnswer:
    """What an id leads to: a message, or None; and whose id it is if it cannot be one of this store."""

    message: StoredMessage | None
    foreign_host: Host | None = None
    own_hosts: tuple[Host, ...] = ()


def message_by_id(survey: Survey, message_id: str) -> IdAnswer:
    """The message with this id; MessageIdInvalid for text that is no id.

    An id holds the host that stored the message. If the record there was stored by another host, or there is none
    and no record looked at has that host, the id comes from another store.
    """
    parsed = parse_message_id(message_id)
    found = message_at(survey, parsed.physical_offset)
    if found is not None and found.store_host == parsed.store_host:
        return IdAnswer(found)
    hosts = store_hosts(survey)
    if found is not None:
        hosts |= {found.store_host}
    if parsed.store_host in hosts or not hosts:
        return IdAnswer(None)
    return IdAnswer(None, parsed.store_host, tuple(sorted(hosts)))


def store_hosts(survey: Survey) -> set[Host]:
    """Hosts that stored messages here, from records all over the log."""
    hosts = set()
    first = survey.record_start(survey.log_min)
    for place in record_starts(first, survey.log_end, _HOST_SAMPLES, survey.record_start):
        message = message_at(survey, place)
        if message is not None:
            hosts.add(message.store_host)
    return hosts


def require_topic(survey: Survey, topic: str) -> None:
    """TopicUnknown, with what could have been meant, if no queue of the store has this topic."""
    topics = {name for name, _ in survey.queues()}
    if topic not in topics:
        raise TopicUnknown(topic, survey.path, nearest_topics(topic, topics))


def nearest_topics(topic: str, topics: Iterable[str]) -> list[str]:
    """Names that could have been meant: similar ones first, or else any."""
    known = sorted(topics)
    near = difflib.get_close_matches(topic, known, n=3, cutoff=0.6)
    return near or known[:3]
