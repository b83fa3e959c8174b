"""Our own errors out of Spark's messages: the processes that plan and work can only send their text to the driver."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from embermq import errors
from embermq.errors import EmberError

_OURS = re.compile(r"embermq\.errors\.(\w+): (.+)")


def error_in(text: str) -> EmberError | None:
    """The error of ours that a message of Spark's speaks of; None if it speaks of none."""
    found = _OURS.search(text)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or kind is None:
        return None
    error: EmberError = kind.__new__(kind)
    Exception.__init__(error, found[2].strip())
    return error


@contextmanager
def our_errors() -> Iterator[None]:
    """Inside, an error of Spark's that speaks of one of ours is raised as that one."""
    try:
        yield
    except PySparkException as problem:
        raise error_in(str(problem)) or problem from None
