"""From options, filters and stores to slices, on the driver.

    stores.py           from paths to stores; store_paths.py: paths that say where the log is
    read_request.py     what is needed of each store
    offsets.py          where a read begins and ends
    pushdown.py, shared_filters.py, size_samples.py, topic_incarnations.py
    plan.py, explain.py the slices, as a pure function; what `embermq spark explain` shows

Other packages import from this face, not from the modules behind it.
"""

from typing import TYPE_CHECKING

from embermq.lazy import lazy_names

if TYPE_CHECKING:
    from embermq.spark.planning.explain import StoreExplained, explain_read
    from embermq.spark.planning.store_paths import plain_path, store_at, stores_at

__all__ = ["StoreExplained", "explain_read", "plain_path", "store_at", "stores_at"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "StoreExplained": "embermq.spark.planning.explain",
            "explain_read": "embermq.spark.planning.explain",
            "plain_path": "embermq.spark.planning.store_paths",
            "store_at": "embermq.spark.planning.store_paths",
            "stores_at": "embermq.spark.planning.store_paths",
        },
    )
