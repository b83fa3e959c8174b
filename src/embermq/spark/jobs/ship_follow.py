"""Ship for as long as it is wanted: whole log files and the tail, round after round, behind brokers that write.

    for done in keep_shipping(spark, ["/data/broker-a"], "s3://bucket/logs", every_seconds=10):
        print(done.bytes, done.lag_bytes)

A round looks at the stores first, and at the target only if there is something new. What passes (no answer, an answer
of the 5xx kind, a log file that retention took just now) is reported and retried, after pauses that grow up to a
minute; for as long as it takes, once the target has answered at all. Whatever else is wrong ends it: another log, a
gap, a target that is not ours. `stop` asks it to end; the objects in hand are the last, and
a manifest names them. Parts of tails are joined on the way (ship_pieces.py). Driver side, one thread.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql import SparkSession

from embermq.clock import Clock
from embermq.errors import OptionInvalid, PlaceUnavailable
from embermq.spark.jobs.cluster_tasks import ProgressReport
from embermq.spark.jobs.ship import naming_the_target, shipments_to
from embermq.spark.jobs.ship_store import Shipment, Shipped, Stop

EVERY_SECONDS = 10.0
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 1.0, 60.0
FIRST_TRIES = 4  # of a target that has never answered: its address may be wrong
CONFIG_EVERY_MS = 60_000
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class FollowRound:
    """What one round did."""

    number: int
    shipped: tuple[Shipped, ...]  # stores of which something was new
    objects: int
    bytes: int
    records: int
    damaged_bytes: int
    seconds: float
    lag_bytes: int  # of all logs together, what is not shipped now
    failure: str | None = None  # what passes, in a line; tried again in
    pause_seconds: float = 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0


def keep_shipping(
    spark: SparkSession,
    paths: Iterable[str],
    target: str,
    *,
    every_seconds: float = EVERY_SECONDS,
    ignore_data_loss: bool = False,
    stop: Stop | None = None,
    on_progress: ProgressReport | None = None,
    clock: Clock | None = None,
) -> Iterator[FollowRound]:
    """Ship what is new every so often, until `stop()`. A Round each time, also when nothing was new or a try failed.

    Raises what `ship` raises, but for what passes.
    """
    if not every_seconds > 0:
        raise OptionInvalid("every_seconds", "must be more than 0", value=every_seconds)
    with naming_the_target():
        shipments = shipments_to(spark, paths, target, on_progress, clock)
    return _rounds(shipments, every_seconds, ignore_data_loss, stop or _go_on)


def _go_on() -> bool:
    """Never stop; but unlike `never` of a run that ends by itself, it may be killed any time."""
    return False


def _rounds(
    shipments: list[Shipment], every_seconds: float, ignore_data_loss: bool, stop: Stop
) -> Iterator[FollowRound]:
    number = failures = 0
    has_answered = False
    while not stop():
        number, began = number + 1, time.monotonic()
        done: list[Shipped] = []
        failure: PlaceUnavailable | None = None
        try:
            with naming_the_target():
                _one_round(shipments, ignore_data_loss, stop, done)
            has_answered, failures = True, 0
        except PlaceUnavailable as problem:
            failure, failures = problem, failures + 1
            if not has_answered and failures >= FIRST_TRIES:
                raise
        took = time.monotonic() - began
        pause = max(0.0, every_seconds - took)
        if failure is not None:
            pause = min(PAUSE_SECONDS * 2 ** min(failures - 1, 30), PAUSE_SECONDS_MAX)
        yield _round(number, done, took, sum(one.lag_bytes for one in shipments), failure, pause)
        _wait(pause, stop)


def _one_round(shipments: list[Shipment], ignore_data_loss: bool, stop: Stop, done: list[Shipped]) -> None:
    due = [one for one in shipments if one.is_behind()]
    for one in due:
        one.prepare(ignore_data_loss)
    for one in due:
        figures = one.ship(True, stop=stop, config_every_ms=CONFIG_EVERY_MS)
        if figures.objects:
            done.append(figures)
    for one in due:
        one.look()


def _round(
    number: int, done: list[Shipped], seconds: float, lag_bytes: int, failure: PlaceUnavailable | None, pause: float
) -> FollowRound:
    return FollowRound(
        number,
        tuple(done),
        sum(one.objects for one in done),
        sum(one.bytes for one in done),
        sum(one.records for one in done),
        sum(one.damaged_bytes for one in done),
        seconds,
        lag_bytes,
        None if failure is None else str(failure),
        pause if failure is not None else 0.0,
    )


def _wait(seconds: float, stop: Stop) -> None:
    """In small steps: a signal sets a flag and ends no sleep."""
    end = time.monotonic() + seconds
    while not stop() and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK_SECONDS))
