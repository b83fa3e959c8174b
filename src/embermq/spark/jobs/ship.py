"""Ship: the logs of stores to a place far from the broker, where `path` of the format reads them by ranges.

    ship(spark, ["/data/broker-a"], "s3://bucket/logs", tail=True)
    spark.read.format("rocketmq").load("s3://bucket/logs")

Whole log files go as they are, one object each; with `tail` also what the newest one has so far, each run a further
object with what came since. Only what a crash cannot take back is shipped (`Survey.log_end`). Tasks upload, read back
and sum up; the manifest that names the objects comes last. Killed anywhere, the next run goes on after the last
manifest: what no manifest names does not count, and is overwritten or removed. One run at a time for each store; one
that does not end is in ship_follow.py. Driver side, but for `ship_pieces.py`.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from urllib.parse import quote

from pyspark.sql import SparkSession

from embermq.clock import Clock
from embermq.errors import OptionInvalid
from embermq.spark.jobs.cluster_tasks import ProgressReport
from embermq.spark.jobs.ship_store import Shipment, Shipped
from embermq.spark.planning.stores import find_stores
from embermq.spark.shipped.places import Place

__all__ = ["Shipped", "ship"]


def ship(
    spark: SparkSession,
    paths: Iterable[str],
    target: str,
    *,
    tail: bool = False,
    ignore_data_loss: bool = False,
    on_progress: ProgressReport | None = None,
    clock: Clock | None = None,
) -> list[Shipped]:
    """Bring `target` up to date with these stores: a folder each, named after the broker.

    `tail`: also what the log file has that is still written to. StoreReplaced if the target holds another log under
    the name of a broker; DataLost if the log no longer has what comes next, or its end was lost in a crash and written
    again (`ignore_data_loss` goes on with a gap, and ships the rewritten end again).
    """
    with naming_the_target():
        shipments = shipments_to(spark, paths, target, on_progress, clock)
        for one in shipments:
            one.prepare(ignore_data_loss)  # All of them first: a mistake shows before anything is written.
        return [one.ship(tail) for one in shipments]


def shipments_to(
    spark: SparkSession, paths: Iterable[str], target: str, on_progress: ProgressReport | None, clock: Clock | None
) -> list[Shipment]:
    places, root = find_stores(paths), Place(target)
    return [
        Shipment(spark, place, root.child(quote(place.broker_name, safe="")), clock, on_progress) for place in places
    ]


@contextmanager
def naming_the_target() -> Iterator[None]:
    """What is wrong with an address is wrong with the option that it came by."""
    try:
        yield
    except OptionInvalid as problem:
        raise OptionInvalid("to", problem.reason, value=problem.value) from None
