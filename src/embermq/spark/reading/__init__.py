"""Batch reads: the format, slices read in tasks, rows as Arrow batches, stores as DataFrames.

    source.py, batch_reader.py               what Spark asks
    slices.py, slice_rows.py, queue_reader.py, queue_files.py, known_places.py   a slice in a task
    arrow.py                                 rows to Arrow batches
    tables.py, scans.py, views.py, shipped_views.py, sql_names.py   stores as DataFrames

Other packages import from this face, not from the modules behind it.
"""

from typing import TYPE_CHECKING

from embermq.lazy import lazy_names

if TYPE_CHECKING:
    from embermq.spark.reading.source import RocketMQSource
    from embermq.spark.reading.tables import option_texts
    from embermq.spark.reading.views import messages

__all__ = ["RocketMQSource", "messages", "option_texts"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "RocketMQSource": "embermq.spark.reading.source",
            "messages": "embermq.spark.reading.views",
            "option_texts": "embermq.spark.reading.tables",
        },
    )
