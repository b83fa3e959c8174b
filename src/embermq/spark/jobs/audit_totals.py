"""What the pieces of a log counted, put together in the order of the log; and which silences are worth telling.

A topic was silent when it had no message for at least a minute and for at least 20 times its usual gap. The usual
gap is the one for which half of the rest of the topic's time passed in gaps no longer than it: what a random moment
meets. So a topic that is filled once an hour is not silent in between, and one that has a message a second is after a
minute. Gaps are grouped by powers of two, and the longer side counts. Topics of fewer than 50 messages have no
rhythm.

Driver side. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from embermq.spark.jobs.audit_tally import OTHER_TAGS, SILENCE_MIN_MS, CountKey, Gap, PieceTally, Rhythm

USUAL_TIMES = 20
MESSAGES_MIN = 50
COUNTS_MAX = 200_000  # rows of topic, tag and hour; then tags are no longer distinguished
GAPS_MAX = 256  # of each topic, the longest


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

    def silences(self) -> Iterator[tuple[str, Gap, int]]:
        """Topic, gap, and the topic's usual gap in milliseconds."""
        for topic, rhythm in sorted(self.rhythms.items()):
            if rhythm.messages < MESSAGES_MIN:
                continue
            for gap in rhythm.longest:
                usual_ms = usual_gap_ms(rhythm, gap)
                if gap.length_ms >= max(SILENCE_MIN_MS, USUAL_TIMES * usual_ms):
                    yield topic, gap, usual_ms


def usual_gap_ms(rhythm: Rhythm, besides: Gap) -> int:
    """What a gap of this topic is like for one who looks at a random moment of its time, this gap left out."""
    rest = rhythm.class_ms.copy()
    rest[besides.length_ms.bit_length()] -= besides.length_ms
    reached = np.cumsum(rest)
    return 1 << int(np.searchsorted(reached, reached[-1] / 2))


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
