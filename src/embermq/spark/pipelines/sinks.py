"""What a sink is, and those that come along. A sink of your own is a class like these:

    class Counter:
        name = "counter"

        def process(self, batch: LogBatch) -> SinkFigures:
            rows = batch.frame(["topic"]).groupBy("topic").count().collect()
            ...write them somewhere, under batch.name, or another name that depends on batch.ranges alone...
            return SinkFigures(records=sum(row["count"] for row in rows))

`process` is called on the driver, for one batch after the other. After a kill the last batch may come again with the
same ranges: whatever is written under names made from the ranges is then simply written again. What raises stops the
pipeline, and the batch comes again when it is started anew.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from embermq.errors import OptionInvalid
from embermq.settings import StoreSettings
from embermq.spark.lake.commits import LakeFormat
from embermq.spark.lake.json_schemas import JsonSchemas, read_schemas
from embermq.spark.lake.topic_filter import EVERYTHING, TopicFilter
from embermq.spark.pipelines.batches import LogBatch


@dataclass(frozen=True, slots=True)
class SinkFigures:
    """What a sink did with a batch."""

    records: int = 0
    files: int = 0
    damages: list[str] = field(default_factory=list)
    undecoded: int = 0  # bodies that a schema for JSON did not fit
    bytes: int = 0  # of the records, where that is not known from the batch


class PipelineSink(Protocol):
    """Takes batches, each at least once, in order."""

    name: str

    def process(self, batch: LogBatch) -> SinkFigures: ...


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What sinks that come along are made from."""

    into: str | None  # the lake's place
    settings: StoreSettings  # file sizes of queues and index
    compact_every: int  # batches
    lake_format: LakeFormat | None = None
    catalog: str | None = None
    json: JsonSchemas | None = None
    drop_bodies: bool = False
    fail_on_data_loss: bool = True
    topics: TopicFilter = EVERYTHING
    file_bytes: int | None = None  # that files of the lake should have


def check_names(names: list[str], context: SinkContext) -> None:
    """OptionInvalid if there are no such sinks, or they lack what they need. Makes nothing."""
    unknown = [name for name in names if name not in KNOWN]
    if unknown or not names:
        wrong = unknown[0] if unknown else ""
        raise OptionInvalid("derive", f"choose from {', '.join(KNOWN)}", value=wrong)
    for name in names:
        if name in KEPT:
            _into(context, name)


def make_sinks(names: list[str], context: SinkContext) -> list[PipelineSink]:
    """The sinks of these names; queues and index are made by one."""
    makers: dict[Callable[..., PipelineSink], None] = {KNOWN[name]: None for name in names}
    return [make(context, names) for make in makers]


def _derived(context: SinkContext, names: list[str]) -> PipelineSink:
    from embermq.spark.pipelines.derive import DerivedSink

    return DerivedSink(context.settings.replace(index="index" in names))


def _lake(context: SinkContext, names: list[str]) -> PipelineSink:
    from embermq.spark.pipelines.lake_sink import LakeSink

    return LakeSink(
        _into(context, "lake"),
        context.compact_every,
        lake_format=context.lake_format,
        catalog=context.catalog,
        schemas=read_schemas(context.json),
        drop_bodies=context.drop_bodies,
        fail_on_data_loss=context.fail_on_data_loss,
        topics=context.topics,
        file_bytes=context.file_bytes,
    )


def _minutes(context: SinkContext, names: list[str]) -> PipelineSink:
    from embermq.spark.pipelines.minute_statistics import MinutesSink

    return MinutesSink(_into(context, "stats"), context.topics)


def _into(context: SinkContext, name: str) -> str:
    if context.into is None:
        raise OptionInvalid("into", f"{name} needs a place to write to")
    return context.into


KNOWN: Mapping[str, Callable[[SinkContext, list[str]], PipelineSink]] = {
    "queues": _derived,
    "index": _derived,
    "lake": _lake,
    "stats": _minutes,
}
KEPT = ("lake", "stats")  # know what they have, and get only what comes: progress must be theirs (checkpoints.py)
