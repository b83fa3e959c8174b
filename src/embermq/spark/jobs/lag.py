"""How far consumers are behind: what groups have consumed, as the broker writes it down, against what queues hold.

Read from config/consumerOffset.json, so it is as old as the broker's last save (5 s there). Driver side; no Spark.
"""

from dataclasses import dataclass

from embermq.errors import StoreError
from embermq.format.config_json import parse_config
from embermq.inspect import Survey
from embermq.spark.planning.stores import StorePlace
from embermq.store.tables import CONSUMER_OFFSETS

_FILE = CONSUMER_OFFSETS.file


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
        document = parse_config(text)
        progress = CONSUMER_OFFSETS.table_of(document)
        if CONSUMER_OFFSETS.key not in document:
            raise ValueError(f"there is no {CONSUMER_OFFSETS.key}")
        if progress.faults:
            raise ValueError(progress.faults[0])
    except (ValueError, OSError) as problem:
        raise StoreError(f"{place.shown}: config/{_FILE}: no consumer offsets can be read from it: {problem}") from None
    spans = survey.queues()
    found = []
    for (topic, group), offsets in sorted(progress.value.items()):
        for queue_id, consumed in sorted(offsets.items()):
            span = spans.get((topic, queue_id))
            end = span.max_offset if span is not None else consumed
            found.append(Lag(place.broker_name, group, topic, queue_id, consumed, end))
    return found
