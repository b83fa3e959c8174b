"""The lineage of a message: every record that one sent message became, in the order of the log.

    delayed       SCHEDULE_TOPIC_XXXX (parked)  ->  its own topic (delivered)
    transaction   RMQ_SYS_TRANS_HALF_TOPIC (prepared, prepared again at each check)
                  ->  RMQ_SYS_TRANS_OP_HALF_TOPIC (decided)  ->  its own topic (committed), or nothing (rolled back),
                  or TRANS_CHECK_MAX_TIME_TOPIC (discarded)
    retried       its own topic  ->  SCHEDULE_TOPIC_XXXX (parked)  ->  %RETRY%group  ->  ...  ->  %DLQ%group (dead)

Brokers copy a message's properties from step to step, so the unique key of the client (UNIQ_KEY) names all of them.
Messages without one are tied together by what else the steps share: the property string with REAL_TOPIC in it, the
id of the first message (ORIGIN_MESSAGE_ID), the place of the half message. A decision names the half message by its
queue offset.

Related records are found by the index where one can be trusted, and by reading the log otherwise. Reads only. One
thread.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

import numpy as np

from embermq.columns import C_PHYSICAL, C_QUEUE_ID, C_STORE_TIME, C_TOPIC_AT
from embermq.format.frame import parse_delay_level
from embermq.inspect.dump import text_is
from embermq.inspect.lookup import FOREVER_MS, has_key, message_at, rows_with
from embermq.inspect.snapshot import Survey
from embermq.model import flags
from embermq.model.message import StoredMessage
from embermq.model.properties import DELAY, HALF_TOPIC, OP_TOPIC, REAL_TOPIC, SCHEDULE_TOPIC
from embermq.settings import StoreSettings
from embermq.store.log import DamagedRange

DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
RETRY_PREFIX, DEAD_PREFIX = "%RETRY%", "%DLQ%"
ORIGIN_ID, CHECK_TIMES = "ORIGIN_MESSAGE_ID", "TRANSACTION_CHECK_TIMES"
# A half message that is older is not asked about any more, so no decision comes after that.
DECISION_MS_MAX = 72 * 3_600_000


class StepKind(StrEnum):
    STORED = "stored"
    PARKED = "parked"
    DELIVERED = "delivered"
    PREPARED = "prepared"
    DECIDED = "decided"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    DISCARDED = "discarded"
    RETRIED = "retried"
    DEAD = "dead letter"


@dataclass(frozen=True, slots=True)
class LineageStep:
    """One record of a lineage; `note` says what matters about it in words."""

    kind: StepKind
    message: StoredMessage
    note: str = ""
    due_ms: int | None = None  # Of a parked message.


@dataclass(frozen=True, slots=True)
class Lineage:
    """Everything one message became, oldest first."""

    name: str  # The unique key, or the id of the first record.
    steps: tuple[LineageStep, ...]

    def outcome(self, now_ms: int, consumers: Collection[str] = ()) -> str:
        """Where it stands, in words. `consumers` are the groups that are past the last record."""
        last = self.steps[-1]
        group = last.message.topic.removeprefix(RETRY_PREFIX)
        match last.kind:
            case StepKind.DEAD:
                return f"dead: in {last.message.topic} after {_retries(last.message.reconsume_times - 1)}"
            case StepKind.PARKED if last.due_ms is not None:
                return "waiting until it is due" if last.due_ms > now_ms else "due, and not delivered yet"
            case StepKind.PREPARED:
                return "undecided: the half message was neither committed nor rolled back"
            case StepKind.DISCARDED:
                return "discarded: the half message was never committed or rolled back"
            case StepKind.RETRIED if group in consumers:
                return f"consumed by {group} after {_retries(last.message.reconsume_times)}"
            case StepKind.RETRIED:
                return f"retried in {last.message.topic}: {_retries(last.message.reconsume_times)} so far"
            case StepKind.ROLLED_BACK:
                return "rolled back"
        final = next((step for step in reversed(self.steps) if step.kind not in _UNSEEN), None)
        return "rolled back" if final is None else f"delivered to {final.message.topic}"


# Steps that no consumer sees.
_UNSEEN = (StepKind.DECIDED, StepKind.PREPARED)


def _retries(count: int) -> str:
    return f"{count} retr{'y' if count == 1 else 'ies'}"


# -- finding ---------------------------------------------------------------------------------------------------


def seeds_by_key(survey: Survey, key: str, topic: str | None = None) -> list[StoredMessage]:
    """Every record with this key (a word of KEYS, or the unique key), in any topic or in one, oldest first."""
    topics = [topic] if topic is not None else sorted({name for name, _ in survey.queues()})
    places = _places_by_index(survey, key, topics)
    if places is None:
        places = _places_by_reading(survey, [key.encode()])
    found = (message_at(survey, place) for place in sorted(places))
    wanted = {topic} if topic is not None else None
    return [
        message
        for message in found
        if message is not None and has_key(message, key) and (wanted is None or message.topic in wanted)
    ]


def lineages_of(survey: Survey, seeds: Sequence[StoredMessage], limit: int | None = None) -> list[Lineage]:
    """The lineages that these records belong to, each once, in the order of their beginning; with `limit`, the
    newest."""
    lineages: list[Lineage] = []
    seen: set[int] = set()
    for seed in reversed(seeds):
        if seed.physical_offset in seen:
            continue
        if len(lineages) == limit:
            break
        lineage = _lineage_of(survey, seed)
        seen.update(step.message.physical_offset for step in lineage.steps)
        lineages.append(lineage)
    return sorted(lineages, key=lambda lineage: lineage.steps[0].message.physical_offset)


def _lineage_of(survey: Survey, seed: StoredMessage) -> Lineage:
    related = {seed.physical_offset: seed}
    if seed.topic == OP_TOPIC:
        half = _half_of(survey, seed)
        if half is None:
            return _make_lineage(survey, related)
        related[half.physical_offset] = seed = half
    for message in _relatives(survey, seed):
        related[message.physical_offset] = message
    halves = [one for one in related.values() if one.topic == HALF_TOPIC]
    for message in _decisions(survey, halves):
        related[message.physical_offset] = message
    return _make_lineage(survey, related)


def _relatives(survey: Survey, seed: StoredMessage) -> Iterator[StoredMessage]:
    """Records of the same lineage that carry the message itself."""
    key = seed.unique_key
    if key is not None:
        places = _places_by_index(survey, key, _topics_of_lineage(survey, seed))
        if places is None:
            places = _places_by_reading(survey, [key.encode()])
        is_related: Callable[[StoredMessage], bool] = lambda other: other.unique_key == key  # noqa: E731
    else:
        # No name to look up: read the log for what the steps share.
        origin = seed.properties.get(ORIGIN_ID, seed.message_id)
        patterns = [origin.encode()]
        if REAL_TOPIC in seed.properties:
            patterns.append(seed.property_bytes)
        places = _places_by_reading(survey, patterns)
        places |= {_place_of_id(survey, origin), seed.prepared_transaction_offset if _is_commit(seed) else -1}
        is_related = lambda other: _is_copy(seed, other, origin)  # noqa: E731
    for place in sorted(places):
        message = message_at(survey, place) if place >= 0 else None
        if message is not None and message.topic != OP_TOPIC and is_related(message):
            yield message


def _topics_of_lineage(survey: Survey, seed: StoredMessage) -> list[str]:
    """Topics that can hold a step of this message."""
    own = {seed.topic, *(seed.properties.get(name, seed.topic) for name in (REAL_TOPIC, "RETRY_TOPIC"))}
    everywhere = {SCHEDULE_TOPIC, HALF_TOPIC, DISCARD_TOPIC}
    topics = {topic for topic, _ in survey.queues()}
    return sorted(
        topic for topic in topics if topic in own | everywhere or topic.startswith((RETRY_PREFIX, DEAD_PREFIX))
    )


def _is_commit(message: StoredMessage) -> bool:
    return message.sys_flag & flags.TRANSACTION_MASK == flags.COMMIT


def _is_copy(seed: StoredMessage, other: StoredMessage, origin: str) -> bool:
    """Do two records without a unique key belong to the same message?"""
    if other.unique_key is not None:
        return False
    if origin in (other.properties.get(ORIGIN_ID), other.message_id):
        return True
    if _is_commit(seed) and other.topic == HALF_TOPIC and other.physical_offset == seed.prepared_transaction_offset:
        return True
    same = (seed.property_bytes, seed.body, seed.born_timestamp)
    return REAL_TOPIC in seed.properties and (other.property_bytes, other.body, other.born_timestamp) == same


def _place_of_id(survey: Survey, message_id: str) -> int:
    """The place an id names, or -1."""
    try:
        place = int(message_id[-16:], 16)
    except ValueError:
        return -1
    return place if survey.log_min <= place < survey.log_end else -1


def _places_by_index(survey: Survey, key: str, topics: Iterable[str]) -> set[int] | None:
    places: set[int] = set()
    for topic in topics:
        found = survey.find_key(topic, key, 0, FOREVER_MS)
        if found is None:
            return None
        places.update(found)
    return places


def _places_by_reading(survey: Survey, texts: list[bytes]) -> set[int]:
    """Places of records in whose properties one of these texts occurs."""
    pattern = re.compile(b"|".join(map(re.escape, texts)))
    places: set[int] = set()
    for scanned in survey.scan(survey.log_min, survey.log_end, check_crc=False):
        if not isinstance(scanned, DamagedRange):
            places.update(scanned.rows[rows_with(scanned, pattern), C_PHYSICAL].tolist())
    return places


# -- transactions ----------------------------------------------------------------------------------------------


def _decisions(survey: Survey, halves: list[StoredMessage]) -> Iterator[StoredMessage]:
    """Op messages about these half messages."""
    wanted = {(half.queue_id, str(half.queue_offset)): half.physical_offset for half in halves}
    if not wanted:
        return
    latest = max(half.store_timestamp for half in halves) + DECISION_MS_MAX
    start = min(half.physical_offset for half in halves)
    for scanned in survey.scan(start, survey.log_end, check_crc=False):
        if isinstance(scanned, DamagedRange):
            continue
        for row in np.flatnonzero(text_is(scanned, C_TOPIC_AT, OP_TOPIC.encode())).tolist():
            queue_id, place = int(scanned.rows[row, C_QUEUE_ID]), int(scanned.rows[row, C_PHYSICAL])
            # Newer brokers name several half messages in one decision, with commas between them.
            names = scanned.body(row).decode("utf-8", "replace").split(",")
            if any(wanted.get((queue_id, name), place) < place for name in names):
                message = message_at(survey, place)
                if message is not None:
                    yield message
        if int(scanned.rows[-1, C_STORE_TIME]) > latest:
            return


def _half_of(survey: Survey, op: StoredMessage) -> StoredMessage | None:
    """The half message that an op message decides about."""
    name = op.body.partition(b",")[0]
    if not name.isdigit():
        return None
    entries = survey.entries(HALF_TOPIC, op.queue_id, int(name), int(name) + 1)
    return message_at(survey, int(entries[0]["physical_offset"])) if len(entries) else None


# -- telling ---------------------------------------------------------------------------------------------------


def _make_lineage(survey: Survey, related: dict[int, StoredMessage]) -> Lineage:
    messages = sorted(related.values(), key=attrgetter("physical_offset"))
    names = [one.unique_key for one in messages if one.unique_key is not None]
    return Lineage(names[0] if names else messages[0].message_id, tuple(_step(survey, one) for one in messages))


def _step(survey: Survey, message: StoredMessage) -> LineageStep:
    topic, properties = message.topic, message.properties
    transaction = message.sys_flag & flags.TRANSACTION_MASK
    if topic == SCHEDULE_TOPIC:
        due_ms = _due_ms(survey, message)
        note = f"level {message.queue_id + 1}, for {properties.get(REAL_TOPIC, '?')}"
        return LineageStep(StepKind.PARKED, message, note, due_ms)
    if topic == HALF_TOPIC:
        checks = properties.get(CHECK_TIMES)
        note = f"for {properties.get(REAL_TOPIC, '?')}" + (f", check {checks}" if checks else "")
        return LineageStep(StepKind.PREPARED, message, note)
    if topic == OP_TOPIC:
        return LineageStep(StepKind.DECIDED, message, f"about half message {message.body.decode('utf-8', 'replace')}")
    if topic == DISCARD_TOPIC:
        return LineageStep(StepKind.DISCARDED, message, f"after check {properties.get(CHECK_TIMES, '?')}")
    if topic.startswith(DEAD_PREFIX):
        return LineageStep(StepKind.DEAD, message, f"group {topic.removeprefix(DEAD_PREFIX)}")
    if topic.startswith(RETRY_PREFIX):
        note = f"group {topic.removeprefix(RETRY_PREFIX)}, retry {message.reconsume_times}"
        return LineageStep(StepKind.RETRIED, message, note)
    if transaction == flags.COMMIT:
        return LineageStep(StepKind.COMMITTED, message, f"half message at {message.prepared_transaction_offset:,}")
    if transaction == flags.ROLLBACK:
        return LineageStep(StepKind.ROLLED_BACK, message)
    if transaction == flags.PREPARED:
        return LineageStep(StepKind.PREPARED, message)
    delivered = DELAY in properties and properties.get(REAL_TOPIC) == topic
    return LineageStep(StepKind.DELIVERED if delivered else StepKind.STORED, message)


def _due_ms(survey: Survey, message: StoredMessage) -> int | None:
    """When a parked message is due: its queue entry knows, or else the usual levels tell."""
    at = message.queue_offset
    entries = survey.entries(SCHEDULE_TOPIC, message.queue_id, at, at + 1)
    if len(entries) and int(entries[0]["physical_offset"]) == message.physical_offset:
        due_ms = int(entries[0]["tag_code"])
        if due_ms >= message.store_timestamp:
            return due_ms
    level = parse_delay_level(message.properties.get(DELAY, "").encode()) or message.queue_id + 1
    delays = StoreSettings().delay_ms
    return message.store_timestamp + delays[min(level, len(delays)) - 1] if level > 0 else None
