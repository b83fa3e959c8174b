"""The format `rocketmq`: what Spark asks first, and who answers.

Light to import: Spark imports this module in every process that looks for a format, also when another one is meant.
Readers and writers, and with them pyarrow and the kernels, are imported when they are asked for.
Spark makes an instance on the driver, in a Python process of its own, and sends it (pickled) to others: it holds
the options, and a name by which processes that plan queries of one DataFrame know each other.
"""

import uuid
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from embermq.errors import EmberError
from embermq.spark.runtime.error_rendering import clear_errors
from embermq.spark.runtime.newer_spark import STREAMS, WRITES, require

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class RocketMQSource(DataSource):
    """Message stores of EmberMQ and Apache RocketMQ as tables and streams.

    A store that is being written, one that was stopped and a copy of one are all read alike, straight from the
    files: no broker, no consumer group, no lock, nothing written. With the option nameServer, messages are pulled from
    the brokers of a running cluster instead.

    >>> from embermq import Message, MessageStore
    >>> with MessageStore.open("store") as store:
    ...     for n in range(3):
    ...         _ = store.append(Message("orders", f"order {n}".encode(), tags="paid", keys=[f"o-{n}"]))
    >>> messages = spark.read.format("rocketmq").option("topic", "orders").load("store")
    >>> messages.selectExpr("queueOffset", "tags", "keys", "string(body)").orderBy("queueOffset").show()
    +-----------+----+----+-------+
    |queueOffset|tags|keys|   body|
    +-----------+----+----+-------+
    |          0|paid| o-0|order 0|
    |          1|paid| o-1|order 1|
    |          2|paid| o-2|order 2|
    +-----------+----+----+-------+
    <BLANKLINE>

    Options are in `embermq.spark.options.read_options.OPTIONS`, columns in `embermq.spark.options.schema.COLUMNS`.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.table = uuid.uuid4().hex

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    @clear_errors
    def schema(self) -> "StructType":
        """Driver side, at `load()` without a schema of the user's: the first chance to say what is wrong."""
        from embermq.spark.options.read_options import parse
        from embermq.spark.options.schema import spark_schema
        from embermq.spark.planning.stores import find_stores

        options = parse(self.options, None)
        if options.name_servers:
            from embermq.spark.wire.batch_reader import check_cluster

            check_cluster(options)
        else:
            find_stores(options.paths, shipped=True)
        return spark_schema(
            options.schema_mode, corrupt=options.on_corrupt == "rows", headers=options.include_headers, exact=True
        )

    @clear_errors
    def reader(self, schema: "StructType") -> "DataSourceReader":
        """Driver side, once for each planning of a batch query."""
        from embermq.spark.reading.batch_reader import batch_reader

        return batch_reader(schema, self.options, self.table)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802
        """Driver side, when a stream starts, and in each of its workers. Mistakes are said by the reader."""
        from embermq.spark.streaming.refused_stream import RefusedStreamReader

        try:
            require(STREAMS)
            from embermq.spark.streaming.stream_reader import stream_reader

            return stream_reader(schema, self.options)
        except EmberError as problem:
            return RefusedStreamReader(problem)

    @clear_errors
    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        """Driver side, once for each batch write."""
        require(WRITES)
        from embermq.spark.options.write_options import names_cluster, parse_for_cluster

        if names_cluster(self.options):
            from embermq.spark.wire import writer

            return writer.batch_writer(schema, parse_for_cluster(self.options, streaming=False), overwrite)
        from embermq.spark.writing.writer import batch_writer

        return batch_writer(schema, self.options, overwrite)

    @clear_errors
    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":  # noqa: N802
        """Driver side, for each micro-batch, and again for its commit."""
        require(STREAMS)
        from embermq.spark.options.write_options import names_cluster, parse_for_cluster

        if names_cluster(self.options):
            from embermq.spark.wire import writer

            return writer.stream_writer(schema, parse_for_cluster(self.options, streaming=True), overwrite)
        from embermq.spark.writing.writer import stream_writer

        return stream_writer(schema, self.options, overwrite)
