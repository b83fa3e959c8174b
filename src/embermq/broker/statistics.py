"""Statistics of a broker: messages, bytes and latencies by topic, queue and group, over a minute, an hour and a day.

What is counted is kept once, in its finest form: puts by topic and queue, deliveries by topic, group and queue,
messages given back by topic and group. RocketMQ's names (TOPIC_PUT_NUMS, GROUP_GET_SIZE, ...) are sums over these, made
when they are asked for. A count costs two look-ups and a few additions.

Totals only grow. Each window keeps some earlier totals (every 10 s, 10 min, 1 h); a figure is what came since the
oldest of them. The number of series is bounded; beyond it no new series is made, and only the sums of the whole
broker go on. The loop's thread only.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from embermq.clock import Clock

K = TypeVar("K")

SERIES_MAX = 20_000
SAMPLE_SECONDS = 10.0
# How many earlier totals each window keeps, and every how many samples it takes one.
_KEPT = (6, 6, 24)
_EVERY = (1, 60, 360)
_SERIES_PER_STEP = 500

MESSAGES, BYTES, TIMES, LATENCY_MS = range(4)


class PeriodTotals(msgspec.Struct, frozen=True):
    """One window of a figure."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0  # a time: of one put, of one pull

    def document(self) -> dict[str, float]:
        return {"avgpt": self.avgpt, "sum": self.sum, "tps": self.tps}


class Figure(msgspec.Struct, frozen=True):
    """What the three windows say."""

    minute: PeriodTotals = PeriodTotals()
    hour: PeriodTotals = PeriodTotals()
    day: PeriodTotals = PeriodTotals()

    def document(self) -> dict[str, dict[str, float]]:
        """As the answer to VIEW_BROKER_STATS_DATA has it."""
        return {
            "statsDay": self.day.document(),
            "statsHour": self.hour.document(),
            "statsMinute": self.minute.document(),
        }


class Series:
    """Totals that grow, and some earlier ones."""

    __slots__ = ("behind_bytes", "behind_ms", "earlier", "totals")

    def __init__(self, now: float) -> None:
        self.totals = [0, 0, 0, 0]
        start = (now, (0, 0, 0, 0))
        self.earlier: list[list[tuple[float, tuple[int, ...]]]] = [[start], [start], [start]]
        self.behind_bytes = self.behind_ms = 0  # of deliveries: how far the last one was behind

    def add(self, messages: int, size: int, latency_ms: int = 0, times: int = 1) -> None:
        totals = self.totals
        totals[MESSAGES] += messages
        totals[BYTES] += size
        totals[TIMES] += times
        totals[LATENCY_MS] += latency_ms

    def note(self, window: int, now: float) -> None:
        kept = self.earlier[window]
        kept.append((now, tuple(self.totals)))
        if len(kept) > _KEPT[window]:
            del kept[0]

    @property
    def is_quiet(self) -> bool:
        """Nothing came for a whole day."""
        days = self.earlier[2]
        return len(days) == _KEPT[2] and days[0][1] == tuple(self.totals)


class Mornings(msgspec.Struct):
    """Messages put and delivered since the start, as they were at the last two midnights."""

    put_today_morning: int = 0
    got_today_morning: int = 0
    put_yesterday_morning: int = 0
    got_yesterday_morning: int = 0

    def begin_day(self, put: int, got: int) -> None:
        self.put_yesterday_morning, self.put_today_morning = self.put_today_morning, put
        self.got_yesterday_morning, self.got_today_morning = self.got_today_morning, got


class Statistics:
    """The counts of one broker."""

    def __init__(self, clock: Clock, cluster: str, series_max: int = SERIES_MAX) -> None:
        self._clock, self._cluster, self._room = clock, cluster, series_max
        self.mornings = Mornings()
        self._puts: dict[str, dict[int, Series]] = {}
        self._gets: dict[tuple[str, str], dict[int, Series]] = {}
        self._backs: dict[tuple[str, str], dict[int, Series]] = {}
        now = clock.monotonic()
        self._all_puts, self._all_gets = Series(now), Series(now)
        self._overflow = Series(now)
        self._samples = 0
        self._day = self._today()
        self._sources: list[Callable[[], None]] = []

    @property
    def put_total(self) -> int:
        """Messages since the start."""
        self._collect()
        return self._all_puts.totals[MESSAGES]

    @property
    def got_total(self) -> int:
        return self._all_gets.totals[MESSAGES]

    # -- counting ----------------------------------------------------------------------------------------------

    def collects_from(self, collect: Callable[[], None]) -> None:
        """Register counts that are kept elsewhere: before a figure is made, `collect` adds them by `put`."""
        self._sources.append(collect)

    def _collect(self) -> None:
        for collect in self._sources:
            collect()

    def put(self, topic: str, queue_id: int, messages: int, size: int, sends: int = 1) -> None:
        """Messages were stored by one send, or by so many."""
        everything = self._all_puts.totals
        everything[MESSAGES] += messages
        everything[TIMES] += sends
        try:
            series = self._puts[topic][queue_id]
        except KeyError:
            series = self._new(self._puts, topic, queue_id)
        series.add(messages, size, times=sends)

    def got(self, topic: str, group: str, queue_id: int, messages: int, size: int, latency_ms: int) -> Series:
        """Messages were delivered by one pull."""
        everything = self._all_gets.totals
        everything[MESSAGES] += messages
        everything[TIMES] += 1
        try:
            series = self._gets[topic, group][queue_id]
        except KeyError:
            series = self._new(self._gets, (topic, group), queue_id)
        series.add(messages, size, latency_ms)
        return series

    def given_back(self, topic: str, group: str) -> None:
        """A consumer gave a message back."""
        try:
            series = self._backs[topic, group][0]
        except KeyError:
            series = self._new(self._backs, (topic, group), 0)
        series.add(1, 0)

    def _new(self, table: dict[K, dict[int, Series]], key: K, queue_id: int) -> Series:
        if self._room <= 0:
            return self._overflow
        self._room -= 1
        made = Series(self._clock.monotonic())
        table.setdefault(key, {})[queue_id] = made
        return made

    # -- forgetting --------------------------------------------------------------------------------------------

    def forget_topic(self, topic: str) -> None:
        self._collect()
        self._room += len(self._puts.pop(topic, ()))
        for table in (self._gets, self._backs):
            for key in [key for key in table if key[0] == topic]:
                self._room += len(table.pop(key))

    def forget_group(self, group: str) -> None:
        for table in (self._gets, self._backs):
            for key in [key for key in table if key[1] == group]:
                self._room += len(table.pop(key))

    # -- time goes on ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take samples, for ever; in steps that hold up the loop for moments only."""
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            for _ in self.sample():
                await asyncio.sleep(0)

    def sample(self) -> Iterator[None]:
        """Keep the totals of now for the windows; a step at a time."""
        self._samples += 1
        self._collect()
        if (today := self._today()) != self._day:
            self._day = today
            self.mornings.begin_day(self.put_total, self.got_total)
        due = [window for window, every in enumerate(_EVERY) if self._samples % every == 0]
        now = self._clock.monotonic()
        for number, series in enumerate([self._all_puts, self._all_gets, *self._series()]):
            for window in due:
                series.note(window, now)
            if number % _SERIES_PER_STEP == _SERIES_PER_STEP - 1:
                yield
        if 2 in due:
            self._drop_quiet()

    def _series(self) -> Iterator[Series]:
        for family in (*self._puts.values(), *self._gets.values(), *self._backs.values()):
            yield from family.values()

    def _drop_quiet(self) -> None:
        self._room += _without_quiet(self._puts) + _without_quiet(self._gets) + _without_quiet(self._backs)

    def _today(self) -> tuple[int, int]:
        local = time.localtime(self._clock.now_ms() / 1000)
        return local.tm_year, local.tm_yday

    # -- asking ------------------------------------------------------------------------------------------------

    def group_tps(self, topic: str, group: str) -> float:
        """Messages a second that a group got of a topic in the last minute."""
        return self._figure(self._gets.get((topic, group), {}).values(), MESSAGES).minute.tps

    def figure(self, name: str, key: str) -> Figure | None:
        """A figure under RocketMQ's name and key; None if nothing was counted under them."""
        number = _NUMBERS.get(name)
        if number is None:
            return None
        self._collect()
        series = self._find(name, key)
        if not series:
            return None
        if name == "GROUP_GET_FALL_SIZE":
            return _moment(series[0].behind_bytes)
        if name == "GROUP_GET_FALL_TIME":
            return _moment(series[0].behind_ms)
        return self._figure(series, number)

    def _find(self, name: str, key: str) -> list[Series]:
        parts = key.split("@")
        match name, parts:
            case ("BROKER_PUT_NUMS", [self._cluster]):
                return [self._all_puts]
            case ("BROKER_GET_NUMS", [self._cluster]):
                return [self._all_gets]
            case ("TOPIC_PUT_NUMS" | "TOPIC_PUT_SIZE", [topic]):
                return list(self._puts.get(topic, {}).values())
            case ("QUEUE_PUT_NUMS" | "QUEUE_PUT_SIZE", [topic, queue_id]):
                return _one(self._puts.get(topic), queue_id)
            case ("GROUP_GET_NUMS" | "GROUP_GET_SIZE", [topic, group]):
                return list(self._gets.get((topic, group), {}).values())
            case ("SNDBCK_PUT_NUMS", [topic, group]):
                return list(self._backs.get((topic, group), {}).values())
            case ("QUEUE_GET_NUMS" | "QUEUE_GET_SIZE", [topic, queue_id, group]):
                return _one(self._gets.get((topic, group)), queue_id)
            case ("GROUP_GET_LATENCY" | "GROUP_GET_FALL_SIZE" | "GROUP_GET_FALL_TIME", [queue_id, topic, group]):
                return _one(self._gets.get((topic, group)), queue_id)
        return []

    def _figure(self, series: Iterable[Series], number: int) -> Figure:
        listed, now = list(series), self._clock.monotonic()
        return Figure(*(_window(listed, window, number, now) for window in range(3)))


_NUMBERS = {
    "BROKER_PUT_NUMS": MESSAGES,
    "BROKER_GET_NUMS": MESSAGES,
    "TOPIC_PUT_NUMS": MESSAGES,
    "TOPIC_PUT_SIZE": BYTES,
    "QUEUE_PUT_NUMS": MESSAGES,
    "QUEUE_PUT_SIZE": BYTES,
    "GROUP_GET_NUMS": MESSAGES,
    "GROUP_GET_SIZE": BYTES,
    "SNDBCK_PUT_NUMS": MESSAGES,
    "QUEUE_GET_NUMS": MESSAGES,
    "QUEUE_GET_SIZE": BYTES,
    "GROUP_GET_LATENCY": LATENCY_MS,
    "GROUP_GET_FALL_SIZE": BYTES,
    "GROUP_GET_FALL_TIME": LATENCY_MS,
}
NAMES = tuple(_NUMBERS)


def _window(series: list[Series], window: int, number: int, now: float) -> PeriodTotals:
    if not series:
        return PeriodTotals()
    began = min(one.earlier[window][0][0] for one in series)
    total = sum(one.totals[number] - one.earlier[window][0][1][number] for one in series)
    times = sum(one.totals[TIMES] - one.earlier[window][0][1][TIMES] for one in series)
    return PeriodTotals(total, total / max(now - began, 1.0), total / times if times else 0.0)


def _moment(value: int) -> Figure:
    """A figure that is not a sum: what was seen last."""
    return Figure(*(PeriodTotals(value),) * 3)


def _one(family: dict[int, Series] | None, queue_id: str) -> list[Series]:
    found = family.get(int(queue_id)) if family is not None and queue_id.isdecimal() else None
    return [] if found is None else [found]


def _without_quiet(table: dict[K, dict[int, Series]]) -> int:
    """Drop the series to which nothing came for a day; how many."""
    dropped = 0
    for key, family in list(table.items()):
        for queue_id in [queue_id for queue_id, series in family.items() if series.is_quiet]:
            del family[queue_id]
            dropped += 1
        if not family:
            del table[key]
    return dropped
