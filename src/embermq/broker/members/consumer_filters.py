"""SQL92 filters of consumer groups: registered by heartbeats, by topic and group, and kept in consumerFilter.json.

    registered    a subscription by expression came in a heartbeat: compiled, with the version its client gave it
    replaced      one with a newer version came. If that does not compile, the old one is removed: it is wanted no more
    dead          the group has no member, or no longer wants the topic; also every filter after a start
    alive again   the group came back with the same version
    removed       dead for a day (filterDataCleanTimeSpan)

With filter bits (enableCalcFilterBitMap, enableConsumeQueueExt) a store evaluates the filters when it dispatches a
message and keeps the answers as bits, for the dead ones too, so that a group that comes back finds them. Bits of
messages that were stored before a filter was registered are not looked at: no answer depends on them.

The loop's thread, but for `bits`, which the dispatcher asks.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from embermq.broker.members.subscriptions import Subscription
from embermq.clock import Clock, SystemClock
from embermq.errors import ExpressionInvalid
from embermq.files import Files, RealFiles
from embermq.format.queue_extension import BloomFilter, ExtensionEntry
from embermq.model.names import is_retry_topic
from embermq.model.properties import property_value
from embermq.remoting import Reply, ResponseCode
from embermq.settings import StoreSettings
from embermq.sql92 import SQL92, Expression, compile_expression, load_grammar
from embermq.store import FilterBits, GroupFilter, MessageFilter, PropertyFilter
from embermq.store.tables import FILTERS, ConfigTable, ConsumerFilter, TopicGroup, bloom_filter_data

log = logging.getLogger(__name__)

FILTERS_MAX, CHARACTERS_MAX = 10_000, 4 << 20
INLINE_MAX = 256
RESTART_MS = (
    30_000  # A filter that was alive at the end of the last run is taken to have died this long before the start.
)


class ConsumerFilters:
    """The filters of one broker."""

    def __init__(self, table: ConfigTable[TopicGroup, ConsumerFilter], settings: StoreSettings, clock: Clock) -> None:
        self._table, self._settings, self._clock = table, settings, clock
        self.bits = FilterBits(BloomFilter.sized(settings.filter_error_percent_max, settings.filter_consumers))
        self._compiled: dict[TopicGroup, GroupFilter] = {}
        self._topics_of: dict[str, set[str]] = {}  # by group
        self._characters = 0  # of all expressions
        self._forget_bits: dict[TopicGroup, Callable[[], None]] = {}
        self._refused: dict[TopicGroup, int] = {}  # The version of the last expression that did not compile.
        self._inline = lru_cache(INLINE_MAX)(_inline_filter)
        self.finding = table.load()
        self._adopt()

    @classmethod
    def load(cls, path: Path, settings: StoreSettings, clock: Clock | None = None, files: Files | None = None) -> Self:
        """The filters of the store in directory `path`: before that is opened, as its `bit_map_for` is `bits`."""
        if settings.filter_properties:
            load_grammar()
        clock = clock or SystemClock()
        return cls(ConfigTable(files or RealFiles(), path, FILTERS, clock), settings, clock)

    @property
    def save(self) -> Callable[[], bool]:
        return self._table.save

    def __len__(self) -> int:
        return len(self._table)

    # -- from the file -----------------------------------------------------------------------------------------------

    def _adopt(self) -> None:
        """Compile what the last run left. No group has a member yet: all of them are dead for the time being."""
        now = self._clock.now_ms()
        for key, entry in self._table.entries().items():
            try:
                expression = _compile(entry.expression, entry.expression_type)
            except ExpressionInvalid as problem:
                log.warning("event=filter_dropped topic=%s group=%s reason=%r", *key, str(problem))
                self._table.remove(key)
                continue
            if entry.dead_time == 0:
                entry = replace(entry, dead_time=max(entry.born_time, now - RESTART_MS))
            if (entry.bits_max, list(entry.bits)) != (self.bits.bloom.bits, self.bits.bloom.positions(_bloom_key(key))):
                entry = self._with_bits(replace(entry, born_time=now, dead_time=max(entry.dead_time, now)))
            self._put(key, entry, expression)

    # -- registrations -----------------------------------------------------------------------------------------------

    def register(self, group: str, subscriptions: Mapping[str, Subscription]) -> None:
        """What a member of a group wants, by topic. Topics that are not among them are no longer wanted."""
        for topic, subscription in subscriptions.items():
            if not subscription.is_tag and subscription.expression:
                self._register(TopicGroup(topic, group), subscription)
        for key in self._keys_of(group):
            if key.topic not in subscriptions or subscriptions[key.topic].is_tag:
                self._let_die(key)

    def unregister(self, group: str) -> None:
        """A group has no member left."""
        for key in self._keys_of(group):
            self._let_die(key)

    def clean(self) -> None:
        """Remove what was dead for long."""
        latest = self._clock.now_ms() - self._settings.filter_dead_ms
        for key, entry in self._table.entries().items():
            if entry.is_dead and entry.dead_time <= latest:
                self._remove(key)

    def _keys_of(self, group: str) -> list[TopicGroup]:
        return [TopicGroup(topic, group) for topic in self._topics_of.get(group, ())]

    def _register(self, key: TopicGroup, wanted: Subscription) -> None:
        known = self._table.get(key)
        if known is not None and wanted.version <= known.client_version:
            if wanted.version == known.client_version and known.is_dead:
                self._table.put(key, replace(known, dead_time=0))
            return
        same = (wanted.expression, wanted.expression_type)
        if known is not None and same == (known.expression, known.expression_type):
            self._table.put(key, replace(known, client_version=wanted.version, dead_time=0))
            return
        if self._refused.get(key) == wanted.version or self._is_full(len(wanted.expression)):
            return
        try:
            expression = _compile(wanted.expression, wanted.expression_type)
        except ExpressionInvalid as problem:
            log.warning("event=filter_refused topic=%s group=%s reason=%r", *key, str(problem))
            self._remove(key)
            if len(self._refused) < FILTERS_MAX:
                self._refused[key] = wanted.version
            return
        self._refused.pop(key, None)
        entry = ConsumerFilter(key.topic, key.group, wanted.expression, SQL92, client_version=wanted.version)
        self._put(key, self._with_bits(entry), expression, is_new=True)

    def _is_full(self, characters: int) -> bool:
        """Whether so long an expression is too much: what is dead is kept for a day, and nothing else bounds that."""
        return len(self._table) >= FILTERS_MAX or self._characters + characters > CHARACTERS_MAX

    def _with_bits(self, entry: ConsumerFilter) -> ConsumerFilter:
        positions = self.bits.bloom.positions(_bloom_key(TopicGroup(entry.topic, entry.consumer_group)))
        others = dict(entry.others) | bloom_filter_data(tuple(positions), self.bits.bloom.bits)
        return replace(entry, others=others)

    def _put(self, key: TopicGroup, entry: ConsumerFilter, expression: Expression, *, is_new: bool = False) -> None:
        for_bits = GroupFilter(key.topic, key.group, expression.matches, bloom=self.bits.bloom)
        self._forget_bits[key] = self.bits.register(for_bits)
        if is_new:  # Born when bits are computed already: what is stored later has them.
            entry = replace(entry, born_time=max(self._clock.now_ms(), self.bits.newest_ms))
        self._compiled[key] = GroupFilter(
            key.topic,
            key.group,
            expression.matches,
            needles=expression.needles,
            registered_ms=entry.born_time,
            bloom=self.bits.bloom,
        )
        self._topics_of.setdefault(key.group, set()).add(key.topic)
        before = self._table.get(key) if is_new else None
        self._characters += len(entry.expression) - (len(before.expression) if before is not None else 0)
        self._table.put(key, entry)

    def _let_die(self, key: TopicGroup) -> None:
        entry = self._table.get(key)
        if entry is not None and not entry.is_dead:
            self._table.put(key, replace(entry, dead_time=max(self._clock.now_ms(), entry.born_time)))

    def _remove(self, key: TopicGroup) -> None:
        entry = self._table.remove(key)
        if entry is None:
            return
        self._characters -= len(entry.expression)
        del self._compiled[key]
        self._forget_bits.pop(key)()
        topics = self._topics_of[key.group]
        topics.discard(key.topic)
        if not topics:
            del self._topics_of[key.group]

    # -- reading -----------------------------------------------------------------------------------------------------

    def find(self, topic: str, group: str) -> GroupFilter | None:
        """The filter a group has registered for a topic."""
        return self._compiled.get(TopicGroup(topic, group))

    def wanted(
        self, subscription: Subscription, group: str, version: int, *, is_inline: bool
    ) -> MessageFilter | Reply | None:
        """The filter of a pull, None for all messages, or a refusal. `version` is the one the pull has; with
        `is_inline` the expression came with it."""
        if subscription.is_tag:
            by_tags = subscription.filter()
            if self._settings.filter_retries and is_retry_topic(subscription.topic):
                return RetryFilter(by_tags, group, self.find)
            return by_tags
        key = TopicGroup(subscription.topic, group)
        if is_inline:
            return self._disabled(subscription) or self._of_pull(key, subscription)
        entry = self._table.get(key)
        if entry is None:
            return _refused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if entry.client_version < version:
            return _refused(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        return self._disabled(subscription) or self._compiled[key]

    def objection(self, subscription: Subscription) -> Reply | None:
        """Why a subscription cannot be served, asked before its consumer starts; None if it can."""
        if subscription.is_tag:
            return None
        refused = self._disabled(subscription)
        if refused is not None:
            return refused
        try:
            _compile(subscription.expression, subscription.expression_type)
        except ExpressionInvalid as problem:
            return _refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(problem))
        return None

    def _disabled(self, subscription: Subscription) -> Reply | None:
        if self._settings.filter_properties:
            return None
        return _refused(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {subscription.expression_type}",
        )

    def _of_pull(self, key: TopicGroup, subscription: Subscription) -> MessageFilter | Reply:
        entry = self._table.get(key)
        if entry is not None and entry.expression == subscription.expression:
            return self._compiled[key]
        try:
            return self._inline(subscription.expression, subscription.expression_type)
        except ExpressionInvalid as problem:
            return _refused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {problem}"
            )


class RetryFilter:
    """Messages given back by a group, by the filter it has for the topic each of them came from."""

    def __init__(
        self, by_tags: MessageFilter | None, group: str, find: Callable[[str, str], MessageFilter | None]
    ) -> None:
        self._by_tags, self._group, self._find = by_tags, group, find

    def matches_entry(
        self, tag_codes: NDArray[np.int64], extensions: Sequence[ExtensionEntry | None] | None
    ) -> NDArray[np.bool_]:
        if self._by_tags is None:
            return np.ones(len(tag_codes), np.bool_)
        return self._by_tags.matches_entry(tag_codes, extensions)

    def matches_record(self, properties: bytes) -> bool:
        if self._by_tags is not None and not self._by_tags.matches_record(properties):
            return False
        topic = property_value(properties, b"RETRY_TOPIC")
        wanted = self._find(topic.decode("utf-8", "replace"), self._group) if topic is not None else None
        return wanted is None or wanted.matches_record(properties)


def _compile(expression: str, kind: str) -> Expression:
    if kind != SQL92:
        raise ExpressionInvalid(f"{kind} is no kind of expression; {SQL92} is")
    return compile_expression(expression)


def _inline_filter(expression: str, kind: str) -> PropertyFilter:
    compiled = _compile(expression, kind)
    return PropertyFilter(compiled.matches, compiled.needles)


def _bloom_key(key: TopicGroup) -> str:
    return f"{key.group}#{key.topic}"


def _refused(code: int, remark: str) -> Reply:
    return Reply(code, remark, {})
