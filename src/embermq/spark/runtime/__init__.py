"""What Spark runs on: a session, a Java for it, its errors as ours, its worker processes.

    sessions.py, java.py                       a session with the settings that stores want; which Java
    error_rendering.py, error_parsing.py       our errors through Spark, and back out of Spark's messages
    cancelled_tasks.py, gc_freeze.py           tasks that Spark has ended early; objects the collector skips

Other packages import from this face, not from the modules behind it.
"""

from typing import TYPE_CHECKING

from embermq.lazy import lazy_names

if TYPE_CHECKING:
    from embermq.spark.runtime.error_parsing import our_errors
    from embermq.spark.runtime.java import find_java

__all__ = ["find_java", "our_errors"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "find_java": "embermq.spark.runtime.java",
            "our_errors": "embermq.spark.runtime.error_parsing",
        },
    )
