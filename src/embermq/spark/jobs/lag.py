"""How far consumers are behind: what groups have consumed, as the broker writes it down, against what queues hold.

Read from config/consumerOffset.json, so it is as old as the broker's last save (5 s there). Driver side; no Spark.
"""

from dataclasses import dataclass

from embermq.errors import StoreError
from embermq.format.config_json import parse_config, with_integer_keys
from embermq.inspect import Survey
from embermq.spark.planning.stores import StorePlace

_FILE = "consumerOffset.json"


@dataclass(frozen=True, slots=True)
class Lag:
    """One group on one queue; both offsets are next-to-read."""

    broker_name: str
    group: str
    topic: str
    queue_id: int
    consumed: int
    end: int

    @property
    def behind(self) -> int:
        return max(0, self.end - self.consumed)


def find_lags(place: StorePlace, survey: Survey) -> list[Lag]:
    """Every group and queue that has ever been committed; StoreError if the file cannot be read."""
    try:
        text = survey.config_text(_FILE)
        if text is None:
            return []
        table = parse_config(text)["offsetTable"]
        progress = {name: with_integer_keys(offsets) for name, offsets in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as problem:
        raise StoreError(f"{place.shown}: config/{_FILE}: no consumer offsets can be read from it: {problem}") from None
    spans = survey.queues()
    found = []
    for name, offsets in sorted(progress.items()):
        topic, _, group = name.partition("@")
        for queue_id, consumed in sorted(offsets.items()):
            span = spans.get((topic, queue_id))
            end = span.max_offset if span is not None else int(consumed)
            found.append(Lag(place.broker_name, group, topic, queue_id, int(consumed), end))
    return found
