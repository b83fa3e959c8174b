"""Spark's long messages as errors of ours: the one that a worker raised, if there is one; else the cause, in a line.

The processes that plan and work can only send their text to the driver, and the JVM wraps it: so the cause is looked
for in text. SQLSTATE says whose fault it is: some of its classes are about the SQL, that is the user's. Driver side.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from embermq import errors
from embermq.errors import EmberError, OptionInvalid, StoreError

_OURS = re.compile(r"embermq\.errors\.(\w+): (.+)")
_RAISED = re.compile(r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)", re.MULTILINE)
_TOLD = re.compile(r"\[([A-Z][A-Z0-9_.]*)\] (.*?)\s*SQLSTATE: (\w{5})( \(line \d+, pos \d+\))?", re.DOTALL)
_THROWN = re.compile(r"^(?:Caused by)?: ([\w.$]+): (\S.*)$", re.MULTILINE)
# Not supported, too many rows, data, syntax and names, limits, raise_error.
_OF_SQL = ("0A", "21", "22", "42", "54", "P0")
_OF_FILES = ("PATH_NOT_FOUND",)  # Counted among the names, but those of files are ours.
_CAUSE_MAX = 600


@dataclass(frozen=True, slots=True)
class Cause:
    """Why Spark could not do something, and whether that is the SQL's fault."""

    text: str
    is_sql: bool = False


def error_in(text: str) -> EmberError | None:
    """The error of ours that a message of Spark's speaks of; None if it speaks of none."""
    found = _OURS.search(text)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or kind is None:
        return None
    error: EmberError = kind.__new__(kind)
    Exception.__init__(error, found[2].strip())
    return error


def cause_in(text: str) -> Cause:
    """What a message of Spark's says beneath its wrappings, in one line."""
    if raised := _RAISED.findall(text):  # By a worker in Python; the last is the one that was not caught.
        return Cause(_line(raised[-1]))
    reported = [(one, _is_of_sql(one[1], one[3])) for one in _TOLD.finditer(text)]
    for one, is_sql in sorted(reported, key=lambda pair: not pair[1]):  # What only says that a task failed comes after.
        first = one[2].partition("\n")[0]  # What follows is advice.
        return Cause(_line(f"[{one[1]}] {first}{one[4] or ''}"), is_sql)
    if thrown := _THROWN.findall(text):
        return Cause(_line(f"{thrown[-1][0].rpartition('.')[2]}: {thrown[-1][1]}"))
    return Cause(_line(next(filter(str.strip, text.splitlines()), "no reason is given")))


def _is_of_sql(condition: str, state: str) -> bool:
    return state.startswith(_OF_SQL) and condition not in _OF_FILES


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _CAUSE_MAX else f"{line[:_CAUSE_MAX]} …"


@contextmanager
def our_errors(option: str | None = None, value: str | None = None) -> Iterator[None]:
    """Inside, an error of Spark's that speaks of one of ours is raised as that one, any other as one line.

    That is a StoreError, or, where SQL is at fault that the user gave as `option`, an OptionInvalid.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as problem:
        text = str(problem)
        if (ours := error_in(text)) is not None:
            raise ours from None
        cause = cause_in(text)
        if option is not None and cause.is_sql:
            raise OptionInvalid(option, cause.text, value=value) from None
        raise StoreError(f"Spark: {cause.text}") from problem
