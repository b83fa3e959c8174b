"""Spark has enough rows: the worker that has more ends, and nothing is printed."""

import gc
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from embermq.spark.runtime import cancelled_tasks as hung_up
from embermq.spark.runtime.cancelled_tasks import silent_end
from tests.support.orders import orders

JOB = textwrap.dedent("""
    import sys
    import embermq.spark

    spark = embermq.spark.session("enough", "local[1]")
    ways = {
        "table": lambda store: embermq.spark.table(spark, store),
        "scan": lambda store: embermq.spark.scan(spark, store),
        "load": spark.read.format("rocketmq").load,
    }
    for word in sys.argv[1:]:
        way, _, store = word.partition("=")
        frame = ways[way](store)
        print(len(frame.limit(5).collect()), frame.limit(7).count())
    spark.range(3).count()
    spark.stop()
""")


WAYS = ("table", "scan", "load")


# A worker that Spark has hung up on is gone, and each query starts one more.
@pytest.mark.parametrize(
    "reads",
    [
        ["table=large", "scan=large", "load=small"],
        pytest.param(
            [f"{way}={store}" for store in ("large", "small", "small") for way in WAYS], marks=pytest.mark.long
        ),
    ],
    ids=["short", "every way"],
)
@pytest.mark.slow(40)
def test_nothing_is_printed(make_store: Callable[..., Path], reads: list[str]) -> None:
    """Far more rows than a socket holds: the worker is still writing when Spark hangs up. And few, which are written
    before it does."""
    large = make_store(orders(6_000, body_bytes=1500), "large", segment_bytes=32 << 20)
    small = make_store(orders(600), "small")
    words = [word.replace("large", str(large)).replace("small", str(small)) for word in reads]
    done = subprocess.run([sys.executable, "-c", JOB, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["5", "7"] * len(reads)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


# --- the signal --------------------------------------------------------------------------------------


@pytest.fixture
def in_a_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = signal.getsignal(signal.SIGPIPE)
    monkeypatch.setattr(hung_up, "inside_spark_process", lambda: True)
    yield
    if hung_up._Borrowed.last is not None:
        hung_up._Borrowed.last.give_back()
    assert signal.getsignal(signal.SIGPIPE) is before


def rows(count: int) -> Generator[int, None, None]:
    with silent_end():
        yield from range(count)


def test_elsewhere_the_signal_is_left_alone() -> None:
    before = signal.getsignal(signal.SIGPIPE)
    for _ in rows(2):
        assert signal.getsignal(signal.SIGPIPE) is before


@pytest.mark.usefixtures("in_a_worker")
def test_read_to_the_end() -> None:
    before = signal.getsignal(signal.SIGPIPE)
    gc.collect()
    for _ in rows(2):
        assert signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL
    gc.collect()  # As a worker does between two tasks.
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL
    gc.collect(0)  # The next one is at work.
    assert signal.getsignal(signal.SIGPIPE) is before
    callbacks = list(gc.callbacks)
    gc.collect()
    assert gc.callbacks == callbacks


@pytest.mark.usefixtures("in_a_worker")
def test_one_task_after_another() -> None:
    """The second begins before the signal was given back, and gives back what the first one found."""
    before, callbacks = signal.getsignal(signal.SIGPIPE), list(gc.callbacks)
    for _ in range(3):
        assert list(rows(2)) == [0, 1]
        gc.collect()
        assert signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL
    gc.collect(0)
    assert signal.getsignal(signal.SIGPIPE) is before
    assert gc.callbacks == callbacks


@pytest.mark.usefixtures("in_a_worker")
def test_an_error_is_for_spark_to_tell() -> None:
    before = signal.getsignal(signal.SIGPIPE)
    with pytest.raises(ValueError, match="bad row"), silent_end():
        raise ValueError("bad row")
    assert signal.getsignal(signal.SIGPIPE) is before


@pytest.mark.usefixtures("in_a_worker")
def test_given_up_in_the_middle() -> None:
    reading = rows(2)
    next(reading)
    reading.close()
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL
