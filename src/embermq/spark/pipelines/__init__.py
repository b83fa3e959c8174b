"""The pipeline: one stream over the physical positions of logs, and sinks that derive something from each stretch.

    ranges.py      the stream: each micro-batch is a stretch of each log, as one row
    batches.py     what a sink is given
    sinks.py       what a sink is, and the table of those that come along
    derive.py      queues and index, by the dispatcher's own code
    lake_sink.py   Parquet by topic and day
    minutes.py     statistics by topic, queue, tag and minute
    checkpoints.py where progress is kept, and whose it is
    running.py     the query: follow for ever, or once to the end

A micro-batch may come again after a kill, with the same stretch: every sink notices what it already has.
"""

from embermq.spark.pipelines.batches import LogBatch, LogRange
from embermq.spark.pipelines.running import Pipeline, Progress, pipeline
from embermq.spark.pipelines.sinks import PipelineSink, SinkFigures

__all__ = ["LogBatch", "LogRange", "Pipeline", "PipelineSink", "Progress", "SinkFigures", "pipeline"]
