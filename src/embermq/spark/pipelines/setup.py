"""Setting up a pipeline: options checked, sinks made, progress found. Driver side.

pipeline(spark, ["/data/broker-a"], into="/data/lake", derive=["lake", "stats"])
pipeline(spark, name_server="127.0.0.1:9876", into="/data/lake")
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from embermq.errors import OptionInvalid
from embermq.settings import StoreSettings
from embermq.spark.jobs.cluster_tasks import ProgressReport
from embermq.spark.lake.commits import LakeFormat
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.header import load_head
from embermq.spark.lake.json_schemas import JsonSchemas
from embermq.spark.lake.names import LAKE
from embermq.spark.lake.topic_filter import EVERYTHING, TopicFilter
from embermq.spark.pipelines.batch_source import BatchSource
from embermq.spark.pipelines.checkpoints import check_sinks, check_writable, checkpoint_in
from embermq.spark.pipelines.cluster_source import ClusterSource, check_wire, cluster_options, make_queue_sinks
from embermq.spark.pipelines.log_source import LogSource
from embermq.spark.pipelines.running import BATCH_BYTES_MAX, Pipeline
from embermq.spark.pipelines.sinks import KEPT, PipelineSink, SinkContext, check_names, make_sinks
from embermq.spark.planning.stores import find_stores
from embermq.spark.runtime.newer_spark import STREAMS, require

COMPACT_EVERY = 20
FILE_BYTES_MIN, FILE_BYTES_MAX = 1 << 20, 1 << 30


def pipeline(
    spark: SparkSession,
    paths: Sequence[str] = (),
    *,
    name_server: str | None = None,
    access: Mapping[str, str] | None = None,
    into: str | None = None,
    derive: Sequence[str] = ("lake", "stats"),
    checkpoint: str | None = None,
    settings: StoreSettings | None = None,
    sinks: Sequence[PipelineSink] = (),
    batch_bytes_max: int = BATCH_BYTES_MAX,
    fail_on_data_loss: bool = True,
    on_progress: ProgressReport | None = None,
    lake_format: LakeFormat | None = None,
    catalog: str | None = None,
    json: JsonSchemas | None = None,
    drop_bodies: bool = False,
    topics: TopicFilter | None = None,
    every_seconds: float = 0.0,
    file_bytes: int | None = None,
) -> Pipeline:
    """Set up a pipeline over these stores. `derive` names sinks that come along, `sinks` are your own.

    For the lake: `json` has a schema for the bodies of a topic, which become a typed column `value`; `drop_bodies`
    keeps no body beside a value. `lake_format` is parquet, delta or iceberg, `catalog` of Iceberg. `topics` are those
    that lake and statistics are about; None for what they were before, or all. `file_bytes` is the size that files of
    the lake should have.

    With `name_server` in place of stores, messages are pulled from a running cluster, into lake and statistics.
    `access` are options of the format that say as whom it is asked, and `groupId`, for which progress is committed.

    `every_seconds` lets a pipeline that follows wait so long between batches, unless a full one is there.
    """
    names = list(derive)
    if name_server is not None:
        check_wire(cluster_options(name_server, access), names, sinks, paths)
    require(STREAMS)
    places = find_stores(paths) if name_server is None else []
    is_lake_asked = bool(lake_format or catalog or json or drop_bodies or file_bytes)
    _check_fit(names, topics, file_bytes, is_lake_asked=is_lake_asked)
    context = SinkContext(
        into, settings or StoreSettings(), COMPACT_EVERY, lake_format, catalog, json, drop_bodies, fail_on_data_loss
    )
    if names or not sinks:
        check_names(names, context)
    kept = [name for name in names if name in KEPT]
    checkpoint, known = _checked_checkpoint(spark, checkpoint, into, kept, topics)
    wanted = topics or known or _topics_of_lake(into)
    context = replace(context, topics=wanted, file_bytes=file_bytes)
    limits = (batch_bytes_max, fail_on_data_loss, every_seconds, on_progress)
    source: BatchSource
    if name_server is not None:
        made = make_queue_sinks(names, context)
        source = ClusterSource(cluster_options(name_server, access), made, wanted, *limits)
    else:
        stores = {place.broker_name: place.source for place in places}
        source = LogSource(stores, [*make_sinks(names, context), *sinks], *limits)
    return Pipeline(spark, source, checkpoint, wanted, kept)


def _check_fit(
    names: Sequence[str], topics: TopicFilter | None, file_bytes: int | None, *, is_lake_asked: bool
) -> None:
    """OptionInvalid for options that do not go with what is derived."""
    if file_bytes is not None and not FILE_BYTES_MIN <= file_bytes <= FILE_BYTES_MAX:
        raise OptionInvalid("file-size", "from 1 MiB to 1 GiB: a task has a whole file in memory", value=file_bytes)
    if "lake" not in names and is_lake_asked:
        raise OptionInvalid("derive", "a lake's format, file size and JSON need the lake among what is derived")
    if topics is not None and (not names or not set(names) <= set(KEPT)):
        raise OptionInvalid("topic", "only lake and stats can be of some topics; queues and index are of all")


def _topics_of_lake(into: str | None) -> TopicFilter:
    """What the lake that is there has; everything if there is none."""
    head = load_head(LakeFiles(into)) if into is not None and LakeFiles(into).exists(LAKE) else None
    return EVERYTHING if head is None else head.topics


def _checked_checkpoint(
    spark: SparkSession, given: str | None, into: str | None, kept: Sequence[str], topics: TopicFilter | None
) -> tuple[str, TopicFilter | None]:
    """Where progress is kept, before anything is made: a lake is not begun that cannot go on. And, if there is some,
    of which topics it is."""
    if given is None and into is None:
        raise OptionInvalid("checkpoint", "without a lake to write to, say where progress is to be kept")
    if given is not None:
        check_writable(given, "checkpoint")
    if into is not None and "stats" in kept and "lake" not in kept:  # A lake looks for itself, and makes what it needs.
        check_writable(into, "into")
    place = given if given is not None else checkpoint_in(spark, str(into))
    return place, check_sinks(place, kept, topics)
