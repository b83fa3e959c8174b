"""The life of a transaction: its states, what can happen in each, and what the broker does then. Pure.

The page docs/transactions.md is made from this table, and there is a test for each row.
"""

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """What a broker knows of a half message."""

    NONE = "none"  # there is no such half message
    UNDECIDED = "undecided"
    DECIDED = "decided"  # committed, rolled back or given up: which, the broker does not keep


class Event(StrEnum):
    """What can happen to it."""

    SENT = "half message sent"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"  # the producer does not know yet
    CHECK_DUE = "check due"
    GIVEN_UP = "checked too often, or too old"
    EXPIRED = "its record left the log"
    RESUMED = "check resumed"


class Write(StrEnum):
    """A record that is stored."""

    HALF = "half"
    FINAL = "final"
    OP = "op"
    GIVEN_UP = "given up"


class Step(NamedTuple):
    """What an event leads to."""

    state: State
    writes: tuple[Write, ...]
    answer: str  # the response code, or what else leaves the broker


TRANSITIONS: dict[tuple[State, Event], Step] = {
    (State.NONE, Event.SENT): Step(State.UNDECIDED, (Write.HALF,), "0, with the place of the half record"),
    (State.NONE, Event.COMMIT): Step(State.NONE, (), "1"),
    (State.NONE, Event.ROLLBACK): Step(State.NONE, (), "1"),
    (State.UNDECIDED, Event.COMMIT): Step(State.DECIDED, (Write.FINAL, Write.OP), "0"),
    (State.UNDECIDED, Event.ROLLBACK): Step(State.DECIDED, (Write.OP,), "0"),
    (State.UNDECIDED, Event.UNKNOWN): Step(State.UNDECIDED, (), "none"),
    (State.UNDECIDED, Event.CHECK_DUE): Step(State.UNDECIDED, (), "39 to one producer of the group"),
    (State.UNDECIDED, Event.GIVEN_UP): Step(State.DECIDED, (Write.GIVEN_UP, Write.OP), "none"),
    (State.UNDECIDED, Event.EXPIRED): Step(State.NONE, (), "none"),
    (State.DECIDED, Event.COMMIT): Step(State.DECIDED, (), "0, with a remark"),
    (State.DECIDED, Event.ROLLBACK): Step(State.DECIDED, (), "0, with a remark"),
    (State.DECIDED, Event.UNKNOWN): Step(State.DECIDED, (), "none"),
    (State.DECIDED, Event.RESUMED): Step(State.UNDECIDED, (Write.HALF,), "0"),
}
