"""SQL over stores and a lake, or stores and their shipped copies: each topic is a table, `messages` is all of them.

    sql(spark, "select tags, count(*) from orders group by 1", ["/data/broker-a"], lake="/data/lake")

Only what reads may be asked: a statement that would change something is refused. Driver side.
"""

from collections.abc import Sequence

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from embermq.errors import OptionInvalid
from embermq.spark.lake.json_schemas import JsonSchemas
from embermq.spark.views import Topics, register

_READS = ("select", "with", "values", "from", "describe", "explain", "show", "(")


def sql(
    spark: SparkSession, text: str, paths: Sequence[str] = (), *, lake: str | None = None,
    include_system: bool = False, json: JsonSchemas | None = None, shipped: str | None = None,
) -> DataFrame:  # fmt: skip
    """The answer to a query. OptionInvalid, with Spark's reason in a line, if it is none that can be answered.

    `json` has schemas of JSON bodies by topic; they become a column `value` of its table. `shipped` is where `ship` put
    copies of the logs: what a log no longer has comes from there.
    """
    if not paths and lake is None and shipped is None:
        raise OptionInvalid("store", "name at least one store or a lake to ask")
    if not text.strip().lower().startswith(_READS):
        raise OptionInvalid("sql", "only queries are answered: begin with select or with", value=text.strip()[:60])
    names = register(
        spark, paths, lake=lake, include_system=include_system, mentioned_in=text, json=json, shipped=shipped
    )  # fmt: skip
    try:
        return spark.sql(text)
    except (AnalysisException, ParseException) as problem:
        hidden = [name for name in Topics.find(paths, lake, shipped).names if name in text and name not in names]
        if hidden:
            raise OptionInvalid("sql", f"{hidden[0]} is a system topic; ask with include-system to see it") from None
        reason = (problem.getMessage() or str(problem)).strip().splitlines()[0]
        raise OptionInvalid("sql", f"{reason} (tables: {', '.join(names[:20])})") from None
