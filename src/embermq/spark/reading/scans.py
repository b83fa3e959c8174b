"""All rows of stores by a shorter way than the format's, for queries that read most of what there is.

    scan(spark, "store").write.parquet("everything")
    scan(spark, "store", ["topic", "body"], topic="orders", startingTimestamp=yesterday)
    scan(spark, nameServer="127.0.0.1:9876", topic="orders")

Spark turns what a Python source hands over into rows, and copies every row once more, as it does with all sources that
deliver rows. What a function of `mapInArrow` hands over is turned into rows once. So the slices that the format would
read are read by such a function here: the same plan, the same options, the same rows.

What the format has and this has not: filters of a query that leave bytes unread (options do), columns that are left out
later (`columns` does), streams. Stores are looked at when `scan` is called, in this process; the rows are those of that
moment, however often the DataFrame is used. Mistakes are said at once.

Driver side, but for the function that reads.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition

from embermq.spark.options.read_options import parse
from embermq.spark.reading.batch_reader import RocketMQBatchReader, reading_of
from embermq.spark.reading.slices import read_slice
from embermq.spark.reading.tables import StorePath, chosen_schema, option_texts
from embermq.spark.runtime.cancelled_tasks import silent_end
from embermq.spark.runtime.error_rendering import clear_iterator


def scan(
    spark: SparkSession,
    path: StorePath | Iterable[StorePath] | None = None,
    columns: Iterable[str] | None = None,
    **options: object,
) -> DataFrame:
    """The stores at `path` (a directory, a glob or several) as they are now; only `columns`, if given. Without a path,
    the cluster that the option nameServer names.

    `options` are those of the format, as Python values: see `embermq.spark.table`.
    """
    parsed = parse(option_texts(options, path), streaming=False)
    schema = chosen_schema(columns, parsed)
    if parsed.name_servers:
        # It is made of what is here.
        from embermq.spark.wire.batch_reader import WireBatchReader
        from embermq.spark.wire.pulling import read_wire_slice

        slices, read = WireBatchReader(reading_of(schema, parsed), parsed).partitions(), read_wire_slice
    else:
        slices, read = RocketMQBatchReader(schema, parsed).partitions(), read_slice
    count = len(slices)
    return spark.range(0, count, 1, max(count, 1)).mapInArrow(_reader_of(slices, read), schema)


Batches = Iterator[pa.RecordBatch]
ReadSlice = Callable[[InputPartition], Batches]


def _reader_of(slices: Sequence[InputPartition], read_one: ReadSlice) -> Callable[[Batches], Batches]:
    """Tasks get the numbers of slices, and these slices with the function."""

    @clear_iterator
    def read(numbers: Batches) -> Batches:
        with silent_end():
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    yield from read_one(slices[number])

    return read
