"""What a round of checks does about an undecided half message: facts, and rules of which the first that holds decides.
Pure.

RocketMQ stores a half message anew each time it is asked about, to keep the count of checks in it; here the count is
kept beside it (saved_state.py), and nothing is stored for a check.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

from embermq.broker.transactions.half_messages import CHECK_TIMES, IMMUNITY_SECONDS, PREPARED_QUEUE_OFFSET
from embermq.model.message import StoredMessage

HOUR_MS = 3_600_000


class CheckDecision(Enum):
    """What is done about a half message."""

    FORGET = auto()  # its record is gone
    FINISH = auto()  # it is a copy of one that was decided
    GIVE_UP = auto()
    WAIT = auto()  # not yet; go on with the next
    STOP = auto()  # not yet, nor any of those behind it
    CHECK = auto()  # ask its producer


class Limits(NamedTuple):
    """The settings of the checks."""

    timeout_ms: int  # transactionTimeOut
    checks_max: int  # transactionCheckMax
    reserved_hours: int  # fileReservedTime


class Facts(NamedTuple):
    """All that a decision depends on."""

    is_gone: bool
    is_copy_of_decided: bool
    is_worn_out: bool
    is_newer_than_round: bool
    is_immune: bool
    is_young: bool


RULES: tuple[tuple[str, Callable[[Facts], bool], CheckDecision], ...] = (
    ("its record has left the log", lambda facts: facts.is_gone, CheckDecision.FORGET),
    ("it is a copy of one that was decided", lambda facts: facts.is_copy_of_decided, CheckDecision.FINISH),
    ("it was checked too often, or is too old", lambda facts: facts.is_worn_out, CheckDecision.GIVE_UP),
    ("it was stored after this round began", lambda facts: facts.is_newer_than_round, CheckDecision.STOP),
    ("its own time before the first check is not over", lambda facts: facts.is_immune, CheckDecision.WAIT),
    ("it is younger than transactionTimeOut", lambda facts: facts.is_young, CheckDecision.STOP),
    ("otherwise", lambda facts: True, CheckDecision.CHECK),
)


def decide(facts: Facts) -> CheckDecision:
    """What the first rule that holds says."""
    return next(decision for _why, holds, decision in RULES if holds(facts))


def facts_of(
    half: StoredMessage | None, checks: int, decided_before: frozenset[int], began_ms: int, now_ms: int, limits: Limits
) -> Facts:
    """The facts about a half message. `decided_before`: offsets of decided half messages that were not counted."""
    if half is None:
        return Facts(True, False, False, False, False, False)
    properties = half.properties
    age = now_ms - half.born_timestamp
    immunity_ms = _immunity_ms(properties.get(IMMUNITY_SECONDS), limits.timeout_ms)
    original = _number(properties.get(PREPARED_QUEUE_OFFSET))
    return Facts(
        is_gone=False,
        is_copy_of_decided=original is not None and original in decided_before,
        is_worn_out=total_checks(half, checks) >= limits.checks_max or age > limits.reserved_hours * HOUR_MS,
        is_newer_than_round=half.store_timestamp >= began_ms,
        is_immune=immunity_ms is not None and age < immunity_ms,
        is_young=immunity_ms is None and 0 <= age < limits.timeout_ms,
    )


def total_checks(half: StoredMessage, checks: int) -> int:
    """How often a half message was asked about: here, and by a broker that stored the count in it."""
    return (_number(half.properties.get(CHECK_TIMES)) or 0) + checks


def _immunity_ms(text: str | None, timeout_ms: int) -> int | None:
    """How long a producer asked not to be asked; None if it did not say."""
    if text is None:
        return None
    seconds = _number(text)
    return timeout_ms if seconds is None else seconds * 1000


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 19 else None
