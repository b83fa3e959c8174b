"""A running cluster as a table, a stream and a sink: the option nameServer in place of a path.

    cluster.py            what the driver asks: topics, ends of queues, times, commits; and how long it asks again
    wanted.py             from options and the ends of queues to ranges of offsets; from ranges to slices. Pure
    time_search.py        the first message stored at a time or later, whatever a broker's search answers. Pure
    pulling.py            a slice in a task: many pulls at once, in the order of the queue
    pulled_records.py     answers of pulls as rows of numbers, and what is damaged in them. Pure
    batch_reader.py       batch reads, as Spark asks
    explain.py            what a batch read would do
    stream_offsets.py     how far a stream is, as JSON. Pure
    stream_follower.py    the queues of a stream: what is new, limits, losses
    stream_reader.py      stream reads, as Spark asks
    views.py              topics of a cluster as tables
    sent_rows.py          rows to send: who sent them, chunks, queues. Pure
    sending.py            the rows of a partition, each once
    writer.py             writes, as Spark asks

Options, columns and filters are those of a read by path. A pull answers stored records, one behind another: the
kernels that read the log read them too, and no message becomes a Python object.
"""

from typing import TYPE_CHECKING

from embermq.lazy import lazy_names

if TYPE_CHECKING:
    from embermq.spark.wire.explain import ClusterExplained, explain_pulls

__all__ = ["ClusterExplained", "explain_pulls"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {"ClusterExplained": "embermq.spark.wire.explain", "explain_pulls": "embermq.spark.wire.explain"},
    )
