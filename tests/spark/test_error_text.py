"""Our errors come back out of Spark's long messages as what they were."""

from embermq.errors import DataLost, TopicUnknown
from embermq.spark.error_text import error_in

LONG = """[PYTHON_DATA_SOURCE_ERROR] Failed: embermq.errors.TopicUnknown: topic 'a' is not in /x; did you mean b?
 SQLSTATE: 38000
	at org.apache.spark.Something(Something.scala:1)
"""


def test_an_error_of_ours() -> None:
    found = error_in(LONG)
    assert type(found) is TopicUnknown
    assert str(found) == "topic 'a' is not in /x; did you mean b?"
    assert type(error_in("x embermq.errors.DataLost: gone")) is DataLost


def test_errors_of_others() -> None:
    assert error_in("java.lang.OutOfMemoryError") is None
    assert error_in("embermq.errors.NoSuchThing: x") is None
