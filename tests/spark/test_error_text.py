"""Our errors come back out of Spark's long messages as what they were, and those of others as one line."""

import pytest
from pyspark.errors import PySparkException

from embermq.errors import DataLost, OptionInvalid, StoreError, TopicUnknown
from embermq.spark.runtime.error_parsing import Cause, cause_in, error_in, our_errors

LONG = """[PYTHON_DATA_SOURCE_ERROR] Failed: embermq.errors.TopicUnknown: topic 'a' is not in /x; did you mean b?
 SQLSTATE: 38000
	at org.apache.spark.Something(Something.scala:1)
"""

CAST = """An error occurred while calling o730.getResult.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/x. SQLSTATE: 58030
	at org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.SparkException: Exception thrown in awaitResult: 
Caused by: org.apache.spark.NumberFormatException: [CAST_INVALID_INPUT] The value 't' cannot be cast. SQLSTATE: 22018
== SQL (line 1, position 8) ==
select cast(tags as int) from orders
       ^^^^^^^^^^^^^^^^^
"""  # noqa: W291

GONE = """An error occurred while calling o755.collectToPython.
: org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Error while reading file file:///x. It is gone.
You can explicitly invalidate the cache. SQLSTATE: KD001
Caused by: java.io.FileNotFoundException: File file:/x does not exist
"""

NO_DIRECTORY = """An error occurred while calling o832.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 18.0 failed 1 times
Driver stacktrace:
Caused by: java.io.IOException: Mkdirs failed to create file:/proc/x
	... 1 more
"""

FULL = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/x/y.py", line 40, in g
    raise OSError(28, "No space left on device", "/x/y")
OSError: [Errno 28] No space left on device: '/x/y'
"""


def test_an_error_of_ours() -> None:
    found = error_in(LONG)
    assert type(found) is TopicUnknown
    assert str(found) == "topic 'a' is not in /x; did you mean b?"
    assert type(error_in("x embermq.errors.DataLost: gone")) is DataLost


def test_errors_of_others() -> None:
    assert error_in("java.lang.OutOfMemoryError") is None
    assert error_in("embermq.errors.NoSuchThing: x") is None


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (CAST, Cause("[CAST_INVALID_INPUT] The value 't' cannot be cast.", is_sql=True)),
        (GONE, Cause("[FAILED_READ_FILE.FILE_NOT_EXIST] Error while reading file file:///x. It is gone.")),
        ("[PATH_NOT_FOUND] No file:/x. SQLSTATE: 42K03", Cause("[PATH_NOT_FOUND] No file:/x.")),
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error. SQLSTATE: 42601 (line 2, pos 19)\n\n== SQL ==\nselect",
            Cause("[PARSE_SYNTAX_ERROR] Syntax error. (line 2, pos 19)", is_sql=True),
        ),
        (NO_DIRECTORY, Cause("IOException: Mkdirs failed to create file:/proc/x")),
        (FULL, Cause("OSError: [Errno 28] No space left on device: '/x/y'")),
        ("\nsomething\nelse", Cause("something")),
        ("", Cause("no reason is given")),
    ],
)
def test_the_cause_in_a_line(text: str, cause: Cause) -> None:
    assert cause_in(text) == cause


def test_whose_fault_it_is() -> None:
    with pytest.raises(OptionInvalid, match=r"^option where = 'x': \[CAST_INVALID_INPUT\]"), our_errors("where", "x"):
        raise PySparkException(CAST)
    for option in ("where", None):
        with pytest.raises(StoreError, match=r"^Spark: \[FAILED_READ_FILE"), our_errors(option):
            raise PySparkException(GONE)
    with pytest.raises(StoreError, match=r"^Spark: \[CAST_INVALID_INPUT\]"), our_errors():
        raise PySparkException(CAST)
    with pytest.raises(TopicUnknown), our_errors("where"):
        raise PySparkException(LONG)
    assert len(cause_in("x" * 5000).text) < 700
