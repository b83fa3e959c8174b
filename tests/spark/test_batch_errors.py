"""Errors of ours inside Spark's processes: the message alone is asked for, and only there."""

import os
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from embermq.errors import DataLost, EmberError
from embermq.spark.runtime.error_rendering import clear_errors, clear_iterator, inside_spark_process

HIDE = "SPARK_HIDE_TRACEBACK"


@pytest.fixture(autouse=True)
def not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set and unset, so that whatever a test leaves behind goes with it."""
    monkeypatch.setenv(HIDE, "")
    monkeypatch.delenv(HIDE)


def called_by(function_name: str, module: str, spec: str | None = None) -> Callable[[Callable[[], Any]], Any]:
    """A caller of this name in a module of this name, perhaps one that was started as a program."""
    made = ModuleType(module)
    made.__dict__["__spec__"] = SimpleNamespace(name=spec) if spec else None
    exec(f"def {function_name}(inner):\n    return inner()", made.__dict__)
    caller: Callable[[Callable[[], Any]], Any] = made.__dict__[function_name]
    return caller


@clear_errors
def lose() -> None:
    raise DataLost("gone")


@clear_iterator
def lose_later() -> Iterator[int]:
    yield 1
    raise DataLost("gone")


@clear_errors
def fail() -> None:
    raise ValueError("a mistake of our own")


@pytest.mark.parametrize(
    ("name", "module", "spec", "inside"),
    [
        ("worker_run", "pyspark.sql.worker.utils", None, True),
        ("main", "pyspark.worker", None, True),
        ("main", "__main__", "pyspark.sql.streaming.python_streaming_source_runner", True),
        ("main", "__main__", "embermq.cli", False),
        ("main", "__main__", None, False),
        ("run", "pyspark.sql.session", None, False),
    ],
)
def test_where_the_message_alone_is_asked_for(name: str, module: str, spec: str | None, inside: bool) -> None:
    caller = called_by(name, module, spec)
    assert caller(inside_spark_process) is inside
    with pytest.raises(DataLost, match="gone"):
        caller(lose)
    assert (HIDE in os.environ) is inside


def test_errors_while_an_iterator_is_read() -> None:
    caller = called_by("main", "pyspark.worker")
    rows = lose_later()
    assert next(rows) == 1
    assert HIDE not in os.environ
    with pytest.raises(DataLost):
        caller(lambda: next(rows))
    assert os.environ[HIDE] == "1"


def test_mistakes_of_our_own_keep_their_traceback() -> None:
    caller = called_by("main", "pyspark.worker")
    with pytest.raises(ValueError, match="a mistake of our own") as raised:
        caller(fail)
    assert HIDE not in os.environ
    assert any(entry.name == "fail" for entry in raised.traceback)


def test_no_chain_of_causes() -> None:
    @clear_errors
    def deep() -> None:
        try:
            raise OSError("the disk")
        except OSError as problem:
            raise DataLost("gone") from problem

    with pytest.raises(EmberError) as raised:
        deep()
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


def test_names_and_answers_stay() -> None:
    @clear_errors
    def add(one: int, *, other: int) -> int:
        """Adds."""
        return one + other

    assert (add(1, other=2), add.__name__, add.__doc__) == (3, "add", "Adds.")
