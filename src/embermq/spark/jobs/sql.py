"""SQL over stores and a lake, or stores and their shipped copies: each topic is a table, `messages` is all of them.

    sql(spark, "select tags, count(*) from orders group by 1", ["/data/broker-a"], lake="/data/lake")

Only what reads may be asked: a statement that would change something is refused, whatever it begins with. Spark runs
commands when it is given them, so this is decided before, by its grammar: see _check_reads. Driver side.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from embermq.columns import SYSTEM_TOPICS
from embermq.errors import OptionInvalid
from embermq.spark.lake.json_schemas import JsonSchemas
from embermq.spark.reading.sql_names import names_in
from embermq.spark.reading.views import TopicPlaces, register
from embermq.spark.runtime.error_parsing import cause_in, our_errors

# Comments of which Spark sees the same end: none inside of others, no backslash before the end of a line.
_COMMENTS = r"(?:\s|--[^\n\\]*(?:\n|$)|/\*(?:(?!\*/|/\*)[\s\S])*\*/)*"
# No statement that begins with one of these changes anything; EXPLAIN does not run what it explains.
_SHOWS = re.compile(rf"{_COMMENTS}(?:show|describe|desc|explain)\b", re.IGNORECASE)
_SHOW_TABLES = re.compile(
    rf"{_COMMENTS}show\s+tables(?:\s+(?:like\s+)?(['\"])(?P<like>[^'\"]*)\1)?[\s;]*$", re.IGNORECASE
)
_made: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()  # in small letters
_RUNS_PROGRAMS = "ScriptTransformation"  # select transform(…) using 'program'


def sql(
    spark: SparkSession,
    text: str,
    paths: Sequence[str] = (),
    *,
    lake: str | None = None,
    include_system: bool = False,
    json: JsonSchemas | None = None,
    shipped: str | None = None,
    name_server: str | None = None,
    access: Mapping[str, str] | None = None,
) -> DataFrame:
    """The answer to a query. OptionInvalid, with Spark's reason in a line, if it is none that can be answered.

    `json` has schemas of JSON bodies by topic; they become a column `value` of its table. `shipped` is where `ship` put
    copies of the logs: what a log no longer has comes from there. `name_server`, in place of stores, is a running
    cluster, whose messages are pulled; `access` are options of the format that say as whom (accessKey, tls, ...).
    """
    if not paths and lake is None and shipped is None and name_server is None:
        raise OptionInvalid("store", "name at least one store or a lake to ask, or a name server")
    with our_errors("sql"):
        names = register(
            spark,
            paths,
            lake=lake,
            include_system=include_system,
            mentioned_in=text,
            json=json,
            shipped=shipped,
            name_server=name_server,
            access=access,
        )
        _forget_others(spark, text, names)
        if tables := _SHOW_TABLES.match(text):
            return _tables(spark, names, tables["like"])
        try:
            _check_reads(spark, text)
            return spark.sql(text)
        except (AnalysisException, ParseException) as problem:
            there = TopicPlaces.find(paths, lake, shipped).names if name_server is None else sorted(SYSTEM_TOPICS)
            hidden = [name for name in there if name in text and name not in names]
            if hidden:
                raise OptionInvalid(
                    "sql", f"{hidden[0]} is a system topic; ask with include-system to see it"
                ) from None
            reason = cause_in(str(problem)).text
            raise OptionInvalid("sql", f"{reason} (tables: {', '.join(names[:20])})") from None


def _forget_others(spark: SparkSession, text: str, names: Sequence[str]) -> None:
    """A table that an earlier call made of another store must not answer for one that is not here."""
    made = _made.setdefault(spark, set())
    here = set(map(str.lower, names))
    words = set(map(str.lower, names_in(text)))
    for name in made & words - here:
        spark.catalog.dropTempView(name)
    made -= words - here
    made |= words & here


def _check_reads(spark: SparkSession, text: str) -> None:
    """OptionInvalid unless this is a query, or shows something. A ParseException if it is nothing at all.

    What can be a part of a query is a query: it is parsed as one, and not run. Spark Connect has no parser for us, but
    it may be given the whole, which is a query whatever the part is.
    """
    if _SHOWS.match(text):
        return
    query = text.rstrip("; \t\r\n")
    whole = f"with `_` as (\n{query}\n) select * from `_`"
    session: Any = getattr(spark, "_jsparkSession", None)
    parser = session.sessionState().sqlParser() if session is not None else None
    if parser is not None:
        parser.parsePlan(query)  # What is wrong with it by itself is said better there.
    try:
        plan = parser.parsePlan(whole).toString() if parser is not None else _explained(spark.sql(whole))
    except ParseException as problem:
        # The place it names is one in the whole.
        reason = "" if parser is not None else f"; {cause_in(str(problem)).text.partition(' (line')[0]}"
        raise OptionInvalid("sql", f"only queries are answered{reason}", value=query.strip()[:60]) from None
    if _RUNS_PROGRAMS in plan:
        raise OptionInvalid("sql", "only queries are answered, and none that run programs", value=query.strip()[:60])


def _explained(frame: Any) -> str:
    return str(frame._explain_string(extended=True))


def _tables(spark: SparkSession, names: Sequence[str], like: str | None) -> DataFrame:
    """What `show tables` says. Spark would tell only those that were made for this query, and in small letters."""
    parts = (like if like is not None else "*").split("|")
    pattern = re.compile("|".join(re.escape(part.strip()).replace(r"\*", ".*") for part in parts), re.IGNORECASE)
    rows = [("", name, True) for name in names if pattern.fullmatch(name)]
    return spark.createDataFrame(rows, "namespace string, tableName string, isTemporary boolean")
