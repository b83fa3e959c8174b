"""A history of sends and deliveries, and what must hold of it whatever happened meanwhile.

    history = History()
    history.sent("o-1", ("orders", 0), 7)                    after the acknowledgement
    with history.handling("consumer-1", ("orders", 0), 7, "o-1"):
        ...                                                  delivered, and consumed unless this raises
    history.check()                                          everything, or an AssertionError that names what is wrong

A stream is what has an order: a queue, a shard of one key. A position is a number that grows along it. Each event gets
the next number of one counter, so that "before" means the same for all threads. The rules:

    unconsumed   sent and acknowledged, and consumed by none
    strangers    consumed, and never sent: not even tried (`trying` notes a send whose answer was lost)
    out_of_order the first consumption of a position came after that of a later position of its stream
    two_owners   two owners handled messages of one stream at the same time
    repeated     consumed more than once: allowed at least once, not exactly once

Any thread.
"""

import contextlib
import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

SHOWN = 5


@dataclass
class Handling:
    """One message in one handler; `end` is None while it runs and after its owner died."""

    owner: str
    stream: Hashable
    position: int
    key: Hashable
    begin: int
    end: int | None = None
    consumed: bool = False


@dataclass
class History:
    """What was sent and what was handled, in one order."""

    sends: dict[Hashable, tuple[Hashable, int] | None] = field(default_factory=dict)
    tried: set[Hashable] = field(default_factory=set)
    handlings: list[Handling] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._next = itertools.count()
        self._lock = threading.Lock()

    # -- noting --------------------------------------------------------------------------------------------------

    def trying(self, key: Hashable) -> None:
        """A send begins: the message may arrive even if its acknowledgement does not."""
        with self._lock:
            self.tried.add(key)

    def sent(self, key: Hashable, stream: Hashable = None, position: int = -1) -> None:
        """A send was acknowledged; where it went, if that is known."""
        with self._lock:
            self.tried.add(key)
            self.sends[key] = None if position < 0 else (stream, position)

    def begin(self, owner: str, stream: Hashable, position: int, key: Hashable) -> Handling:
        with self._lock:
            one = Handling(owner, stream, position, key, next(self._next))
            self.handlings.append(one)
            return one

    def finish(self, one: Handling, *, consumed: bool = True) -> None:
        with self._lock:
            one.end, one.consumed = next(self._next), consumed

    @contextlib.contextmanager
    def handling(self, owner: str, stream: Hashable, position: int, key: Hashable) -> Iterator[None]:
        """A message is handled inside the block, and consumed unless it raises."""
        one = self.begin(owner, stream, position, key)
        try:
            yield
        except BaseException:
            self.finish(one, consumed=False)
            raise
        self.finish(one)

    def delivered(self, owner: str, stream: Hashable, position: int, key: Hashable) -> None:
        """A message was taken and consumed in one step."""
        self.finish(self.begin(owner, stream, position, key))

    # -- asking --------------------------------------------------------------------------------------------------

    def consumed(self) -> list[Handling]:
        """In the order in which they were finished."""
        with self._lock:
            done = [one for one in self.handlings if one.consumed]
        return sorted(done, key=lambda one: one.end or 0)

    def consumed_keys(self) -> set[Hashable]:
        with self._lock:
            return {one.key for one in self.handlings if one.consumed}

    def unconsumed(self) -> list[Hashable]:
        keys = self.consumed_keys()
        with self._lock:
            return [key for key in self.sends if key not in keys]

    def strangers(self) -> list[Hashable]:
        with self._lock:
            return [one.key for one in self.handlings if one.key not in self.tried]

    def repeated(self) -> dict[Hashable, int]:
        counted = Counter(one.key for one in self.consumed())
        return {key: count for key, count in counted.items() if count > 1}

    def out_of_order(self) -> list[tuple[Handling, Handling]]:
        """Pairs of handlings of one stream: the earlier one consumed a later position first."""
        furthest: dict[Hashable, Handling] = {}
        seen: set[tuple[Hashable, int]] = set()
        found = []
        for one in self.consumed():
            place = (one.stream, one.position)
            if place in seen:
                continue
            seen.add(place)
            last = furthest.get(one.stream)
            if last is not None and one.position < last.position:
                found.append((last, one))
            else:
                furthest[one.stream] = one
        return found

    def two_owners(self) -> list[tuple[Handling, Handling]]:
        """Pairs of handlings of one stream by different owners that ran at the same time. One that never ended (its
        owner died inside) is left out: when it stopped is not known."""
        with self._lock:
            ended = [one for one in self.handlings if one.end is not None]
        by_stream: dict[Hashable, list[Handling]] = defaultdict(list)
        for one in sorted(ended, key=lambda one: one.begin):
            by_stream[one.stream].append(one)
        found = []
        for handlings in by_stream.values():
            last_of: dict[str, Handling] = {}  # by owner: the handling that ends last
            for one in handlings:
                for owner, other in last_of.items():
                    if owner != one.owner and (other.end or 0) > one.begin:
                        found.append((other, one))
                known = last_of.get(one.owner)
                if known is None or (known.end or 0) < (one.end or 0):
                    last_of[one.owner] = one
        return found

    def check(self, *, ordered: bool = True, single_owner: bool = True, exactly_once: bool = False) -> None:
        """Every rule that is asked for; the assertion names the first few offenders."""
        problems = []
        if lost := self.unconsumed():
            problems.append(f"{len(lost)} of {len(self.sends)} sent messages were not consumed: {lost[:SHOWN]}")
        if strange := self.strangers():
            problems.append(f"{len(strange)} messages were delivered that were never sent: {strange[:SHOWN]}")
        if ordered and (broken := self.out_of_order()):
            problems.append(f"{len(broken)} messages out of order: {broken[:SHOWN]}")
        if single_owner and (both := self.two_owners()):
            problems.append(f"{len(both)} times two owners at once: {both[:SHOWN]}")
        if exactly_once and (again := self.repeated()):
            problems.append(f"{len(again)} messages were consumed more than once: {list(again.items())[:SHOWN]}")
        assert not problems, "\n".join(problems)
