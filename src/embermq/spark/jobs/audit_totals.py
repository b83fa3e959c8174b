"""What the pieces of a log counted, put together in the order of the log; and which silences are worth telling.

A topic was silent when it had no message for at least a minute and for at least 20 times its usual gap. The usual
gap is the one for which half of the rest of the topic's time passed in gaps no longer than it: what a random moment
meets. Up to 16 silences are left out of that time, so that several outages do not make each other usual. Gaps most of
which are alike are the topic's rhythm: one that is filled once an hour is not silent in between, and one that has a
message a second is after a minute. Gaps are grouped by powers of two, and the longer side counts. Topics of fewer than
50 messages have no rhythm. The time since the last message is a gap as well.

Driver side. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from embermq.spark.jobs.audit_tally import OTHER_TAGS, SILENCE_MIN_MS, CountKey, Gap, PieceTally, Rhythm

USUAL_TIMES = 20
MESSAGES_MIN = 50
COUNTS_MAX = 200_000  # rows of topic, tag and hour; then tags are no longer distinguished
GAPS_MAX = 256  # of each topic, the longest
SILENCES_MAX = 16  # of each topic
_ALIKE = 1.5  # Lengths within this factor of each other.
_RHYTHM_MIN = 3  # So few gaps are no rhythm, however alike they are.


@dataclass(slots=True)
class Totals:
    """All of a log."""

    step_ms: int
    counts: dict[CountKey, tuple[int, int]] = field(default_factory=dict)
    volume: dict[int, tuple[int, int]] = field(default_factory=dict)
    rhythms: dict[str, Rhythm] = field(default_factory=dict)

    def add(self, tally: PieceTally) -> None:
        """The piece that comes next in the log."""
        for (topic, tag, hour), (messages, octets) in tally.counts.items():
            key = topic, tag, hour
            if key not in self.counts and len(self.counts) >= COUNTS_MAX:
                key = topic, OTHER_TAGS, hour
            before = self.counts.get(key, (0, 0))
            self.counts[key] = before[0] + messages, before[1] + octets
        for step, (messages, octets) in tally.volume.items():
            before = self.volume.get(step, (0, 0))
            self.volume[step] = before[0] + messages, before[1] + octets
        for topic, rhythm in tally.rhythms.items():
            known = self.rhythms.get(topic)
            self.rhythms[topic] = rhythm if known is None else _joined(known, rhythm)

    def topics(self) -> dict[str, tuple[int, int]]:
        """Messages and bytes of each topic, largest first."""
        found: dict[str, tuple[int, int]] = {}
        for (topic, _, _), (messages, octets) in self.counts.items():
            before = found.get(topic, (0, 0))
            found[topic] = before[0] + messages, before[1] + octets
        return dict(sorted(found.items(), key=lambda item: (-item[1][1], item[0])))

    def silences(self, until_ms: int, end: int) -> Iterator[tuple[str, Gap, int]]:
        """Topic, gap, and the topic's usual gap in milliseconds. A gap that lasts until `until_ms`, the end of what was
        looked at, comes first and has the place of the log's `end`."""
        for topic, rhythm in sorted(self.rhythms.items()):
            if rhythm.messages < MESSAGES_MIN:
                continue
            current = Gap(rhythm.last_ms, max(until_ms, rhythm.last_ms), end)
            found, usual_ms = _standing_out(rhythm.class_ms, rhythm.longest, current)
            for gap in sorted(found, key=lambda gap: (gap is not current, gap.place)):
                yield topic, gap, usual_ms


def _standing_out(class_ms: NDArray[np.int64], longest: list[Gap], current: Gap) -> tuple[list[Gap], int]:
    """As many of the longest gaps as are silences, and the usual gap besides them."""
    times = class_ms.copy()
    times[current.length_ms.bit_length()] += current.length_ms
    gaps = sorted(
        (gap for gap in (*longest, current) if gap.length_ms >= SILENCE_MIN_MS), key=lambda gap: -gap.length_ms
    )
    for count in range(min(len(gaps), SILENCES_MAX), 0, -1):
        group = gaps[:count]
        usual_ms = usual_gap_ms(times, group)
        if group[-1].length_ms >= USUAL_TIMES * usual_ms and not _is_rhythm(group):
            return group, usual_ms
    return [], 0


def usual_gap_ms(class_ms: NDArray[np.int64], besides: list[Gap]) -> int:
    """What a gap of this topic is like for one who looks at a random moment of its time, some gaps left out."""
    rest = class_ms.copy()
    for gap in besides:
        rest[gap.length_ms.bit_length()] -= gap.length_ms
    reached = np.cumsum(rest)
    return 1 << int(np.searchsorted(reached, reached[-1] / 2))


def _is_rhythm(gaps: list[Gap]) -> bool:
    """Are most of these gaps, longest first, alike?"""
    usual = gaps[len(gaps) // 2].length_ms
    alike = sum(1 for gap in gaps if usual <= _ALIKE * gap.length_ms and gap.length_ms <= _ALIKE * usual)
    return alike >= _RHYTHM_MIN and 2 * alike > len(gaps)


def _joined(first: Rhythm, then: Rhythm) -> Rhythm:
    """The same topic in a piece and the next one that has it."""
    between = Gap(first.last_ms, then.first_ms, then.first_place)
    class_ms = first.class_ms + then.class_ms
    longest = [*first.longest, *then.longest]
    if between.length_ms > 0:
        class_ms[between.length_ms.bit_length()] += between.length_ms
    if between.length_ms >= SILENCE_MIN_MS:
        longest.append(between)
    if len(longest) > 2 * GAPS_MAX:
        longest = sorted(longest, key=lambda gap: -gap.length_ms)[:GAPS_MAX]
    return Rhythm(
        first.messages + then.messages,
        first.first_ms,
        first.first_place,
        then.last_ms,
        class_ms,
        sorted(longest, key=lambda gap: gap.place),
    )
