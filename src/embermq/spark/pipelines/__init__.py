"""The pipeline: one stream over the physical positions of logs, and sinks that derive something from each stretch.

    ranges.py      the stream: each micro-batch is a stretch of each log, as one row
    batches.py     what a sink is given
    sinks.py       what a sink is, and the table of those that come along
    derive.py      queues and index, by the dispatcher's own code
    lake_sink.py   Parquet by topic and day
    minute_statistics.py     statistics by topic, queue, tag and minute
    checkpoints.py where progress is kept, and whose it is
    running.py     the query: follow for ever, or once to the end
    setup.py       from options to a pipeline
    batch_source.py  what a pipeline follows: log_source.py, or
                   cluster_source.py with queue_stream.py, queue_batches.py, queue_lake_sink.py, queue_minutes.py
    run_metrics.py figures of a run for Prometheus

A micro-batch may come again after a kill, with the same stretch: every sink notices what it already has.
"""

from typing import TYPE_CHECKING

from embermq.lazy import lazy_names

if TYPE_CHECKING:
    from embermq.spark.pipelines.batch_source import BatchProgress
    from embermq.spark.pipelines.batches import LogBatch, LogRange
    from embermq.spark.pipelines.report import pipeline_report
    from embermq.spark.pipelines.report_sink import ReportSink
    from embermq.spark.pipelines.run_metrics import RunMetrics
    from embermq.spark.pipelines.running import Pipeline
    from embermq.spark.pipelines.setup import pipeline
    from embermq.spark.pipelines.sinks import PipelineSink, SinkFigures

__all__ = [
    "BatchProgress",
    "LogBatch",
    "LogRange",
    "Pipeline",
    "PipelineSink",
    "ReportSink",
    "RunMetrics",
    "SinkFigures",
    "pipeline",
    "pipeline_report",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "BatchProgress": "embermq.spark.pipelines.batch_source",
            "LogBatch": "embermq.spark.pipelines.batches",
            "LogRange": "embermq.spark.pipelines.batches",
            "Pipeline": "embermq.spark.pipelines.running",
            "PipelineSink": "embermq.spark.pipelines.sinks",
            "ReportSink": "embermq.spark.pipelines.report_sink",
            "RunMetrics": "embermq.spark.pipelines.run_metrics",
            "SinkFigures": "embermq.spark.pipelines.sinks",
            "pipeline": "embermq.spark.pipelines.setup",
            "pipeline_report": "embermq.spark.pipelines.report",
        },
    )
