"""How replayed messages are marked, and what a replay says it did. Values only."""

from dataclasses import dataclass

from embermq.model.properties import DELAY, KEYS, TAGS, UNIQ_KEY

ORIGIN_TOPIC = "ORIGIN_TOPIC"
ORIGIN_PLACE = "ORIGIN_PLACE"  # broker@physicalOffset: one name for one record
REPLAY_ID = "REPLAY_ID"
NOT_AGAIN = {TAGS, KEYS, UNIQ_KEY, DELAY, "WAIT", "REAL_TOPIC", "REAL_QID"}


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did, or would do."""

    found: int
    skipped: int  # there already, from an earlier run
    appended: int
    seconds: float
    dry_run: bool
