"""What a consumer counts, for the questions of administrators (307). The loop's thread only."""

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from embermq.client.consume.handle.workers import HandlerCall

WINDOW_SECONDS = 60.0
_STEP_SECONDS = 5.0


@dataclass(slots=True)
class ConsumedFigures:
    """Messages of one topic: in all, and by steps of a few seconds."""

    consumed: int = 0
    failed: int = 0
    steps: deque[list[float]] = field(default_factory=deque)  # begin, consumed, failed, calls, seconds

    def add(self, now: float, consumed: int, failed: int, calls: int, seconds: float) -> None:
        self.consumed += consumed
        self.failed += failed
        if not self.steps or now - self.steps[-1][0] > _STEP_SECONDS:
            self.steps.append([now, 0, 0, 0, 0.0])
            while now - self.steps[0][0] > WINDOW_SECONDS:
                self.steps.popleft()
        step = self.steps[-1]
        step[1] += consumed
        step[2] += failed
        step[3] += calls
        step[4] += seconds

    def document(self, now: float) -> dict[str, Any]:
        """ConsumeStatus: rates of the last minute."""
        recent = [step for step in self.steps if now - step[0] <= WINDOW_SECONDS]
        consumed, failed, calls, seconds = (sum(step[at] for step in recent) for at in (1, 2, 3, 4))
        span = max(1.0, min(WINDOW_SECONDS, now - recent[0][0])) if recent else 1.0
        return {
            "consumeFailedMsgs": self.failed,
            "consumeFailedTPS": failed / span,
            "consumeOKTPS": consumed / span,
            "consumeRT": 1000 * seconds / calls if calls else 0.0,
            "pullRT": 0.0,
            "pullTPS": consumed / span,
        }


class ConsumerFigures:
    """Figures by topic."""

    def __init__(self) -> None:
        self._topics: dict[str, ConsumedFigures] = {}

    def handled(self, calls: list[HandlerCall]) -> None:
        """Calls of one run; nearly always of one topic."""
        now = time.monotonic()
        by_topic: dict[str, list[HandlerCall]] = {}
        for call in calls:
            by_topic.setdefault(call.messages[0].topic, []).append(call)
        for topic, same in by_topic.items():
            figures = self._topics.get(topic)
            if figures is None:
                figures = self._topics[topic] = ConsumedFigures()
            consumed = sum(len(call.messages) for call in same if call.outcome.is_consumed)
            total = sum(len(call.messages) for call in same)
            figures.add(now, consumed, total - consumed, len(same), sum(call.seconds for call in same))

    def consumed(self, topic: str) -> int:
        return self._topics[topic].consumed if topic in self._topics else 0

    def documents(self) -> dict[str, dict[str, Any]]:
        now = time.monotonic()
        return {topic: figures.document(now) for topic, figures in self._topics.items()}
