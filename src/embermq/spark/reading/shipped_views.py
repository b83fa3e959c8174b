"""Live stores and their shipped copies as one table: what a log has comes from it, what lies before it from the copy.

The border is a place in the log, fixed when the table is made: where the live log begins. Both sides get it
(endingPhysicalOffset, startingPhysicalOffset), so that no row comes twice; and the live side must still have it when a
query runs, so that none is missing: what retention takes in between is a DataLost, and a table that is made again has
those rows from the copy. Driver side.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from embermq.errors import DataLost, OptionInvalid, StoreReplaced
from embermq.inspect import LogMatch
from embermq.spark.planning.stores import StorePlace, find_stores
from embermq.spark.reading.tables import table
from embermq.spark.shipped.places import shown
from embermq.spark.shipped.surveys import ShippedSurvey


def with_copies(
    spark: SparkSession,
    places: Sequence[StorePlace],
    shipped: str,
    *,
    topics: Sequence[str] | None = None,
    include_system: bool = False,
    fail_on_data_loss: bool = True,
    options: Mapping[str, object] | None = None,
) -> list[DataFrame]:
    """Frames that together have every message of these stores and of what was shipped to `shipped`, each once.

    A broker that was shipped and is not among the stores is answered from its copy alone. OptionInvalid if a store has
    no copy there, StoreReplaced if the copy is that of another store, DataLost if neither has what lies between.
    """
    copies = copies_at(shipped)
    names = ", ".join(sorted(copies))
    given: dict[str, Any] = {
        **(options or {}),
        "includeSystemTopics": include_system,
        "failOnDataLoss": fail_on_data_loss,
    }
    frames = []
    for place in places:
        copy = copies.pop(place.broker_name, None)
        if copy is None:
            raise OptionInvalid(
                "shipped",
                f"there is no copy of {place.broker_name} ({place.shown}) there, but of {names}",
                value=shown(shipped),
            )
        border = find_border(place, copy, fail_on_data_loss=fail_on_data_loss)
        frames.append(_named(spark, copy, endingPhysicalOffset=border, **given))
        frames.append(_named(spark, place, startingPhysicalOffset=border, **given))
    frames += [_named(spark, copy, **given) for copy in copies.values()]
    # A filter and no option: a topic need not be on both sides.
    return frames if topics is None else [frame.where(F.col("topic").isin(list(topics))) for frame in frames]


def copies_at(shipped: str) -> dict[str, StorePlace]:
    """Shipped stores at an address by the names of their brokers."""
    found = find_stores([shipped], shipped=True)
    for place in found:
        if place.shipped is None:
            raise OptionInvalid(
                "shipped",
                "this is a store and no shipped copy of one; name what `embermq spark ship` wrote to",
                value=place.shown,
            )
    return {place.broker_name: place for place in found}


def find_border(place: StorePlace, copy: StorePlace, *, fail_on_data_loss: bool) -> int:
    """Where in the log the copy ends for us, and the store begins."""
    if place.shipped is not None:
        raise OptionInvalid("shipped", "the other side must be a store directory", value=place.shown)
    survey, far = place.survey(), copy.survey()
    assert isinstance(far, ShippedSurvey)
    # An end that was lost in a crash (CUT) is of no importance: it lies in the part that comes from the store.
    if far.manifest.segments and survey.compare(far.manifest.identity) is LogMatch.OTHER:
        raise StoreReplaced(place.path, f"what was shipped to {copy.shown} is of another store; name its own copy")
    end = far.manifest.end
    if fail_on_data_loss and survey.log_min > end:
        raise DataLost(
            f"{place.shown}: shipped up to {end:,}, and the log begins at {survey.log_min:,}; what lies between is"
            " gone. Set fail_on_data_loss=False to read what is left"
        )
    return survey.log_min


def _named(spark: SparkSession, place: StorePlace, **options: Any) -> DataFrame:
    return table(spark, place.source, **options).withColumn("brokerName", F.lit(place.broker_name))
