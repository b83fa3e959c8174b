"""Where things lie in a lake. Pure.

_embermq.json                                                  what kind of lake this is
_commits/00000000000000000007.json                             one commit; readers of Parquet pass over `_` names
_pending.json                                                  what is being written now, to be cleaned up after
_lock                                                          held during a write; empty
_common_metadata                                               the columns that a plain read of all of it sees; also in
                                                               the folders of topics that have a schema
_catalog.db                                                    of an Iceberg lake that has a catalog of its own
topic=orders/date=2026-11-16/broker-a-<start>-<end>.parquet    rows of one range of one log; 20 digits each
topic=orders/date=2026-11-16/broker-a-queues-<commit>-<slice>.parquet   rows of ranges of queues of a cluster
_joined/topic=orders/date=2026-11-16/compacted-<commit>-<number>.parquet   small files that became one
orders/date=2026-11-16/broker-a-<start>-<end>.parquet          the same in a lake of tables, one for each topic
"""

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

LAKE = "_embermq.json"
COMMITS = "_commits"
PENDING = "_pending.json"
LOCK = "_lock"
HALF = "_half-"  # a file that is not whole yet begins with this
SUMMARY = "_common_metadata"
CATALOG = "_catalog.db"
SUFFIX = ".parquet"
JOINED = "_joined"
UNKNOWN_DATE = "__HIVE_DEFAULT_PARTITION__"  # of a message whose time no calendar has

_HALF_NAME = re.compile(rf"{HALF}\d+-\d+-(.+)")  # process, thread, name
_COMMIT = re.compile(r"(\d{20})\.json")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_-]|^_")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def commit_name(number: int) -> str:
    return f"{COMMITS}/{number:020d}.json"


def commit_number(name: str) -> int | None:
    """The number in a commit's file name; None if it is none."""
    found = _COMMIT.fullmatch(name)
    return int(found[1]) if found else None


def half_of(name: str) -> str | None:
    """The name that a file will have when it is whole; None if this is the name of none that is being written."""
    found = _HALF_NAME.fullmatch(name)
    return found[1] if found else None


def quoted(text: str) -> str:
    """A text as a part of a path, as Hive and Spark write partition values; never a step up, never hidden."""
    return quote(text, safe="").replace(".", "%2E").replace("~", "%7E")


def plain(text: str) -> str:
    """A text as a part of a path that means the same as a path and as a URI: no `%`, which some decode twice."""
    return _NOT_PLAIN.sub(lambda found: "".join(f"@{byte:02X}" for byte in found[0].encode()), text)


def date_of(day: int | None) -> str:
    """Days since 1970 as a date."""
    return UNKNOWN_DATE if day is None else (_EPOCH + timedelta(days=day)).strftime("%Y-%m-%d")


def stem(broker_name: str, start: int, end: int) -> str:
    """What the names of all files of a range begin with."""
    return f"{plain(broker_name)}-{start:020d}-{end:020d}"


def queue_stem(broker_name: str, number: int, slice_number: int) -> str:
    """The same of a slice of queues of a cluster, in the commit `number`."""
    return f"{plain(broker_name)}-queues-{number:020d}-{slice_number:04d}"


def joined_name(folder: str, number: int, group: int) -> str:
    """Of a file that others became, in the commit `number`."""
    return f"{JOINED}/{shown_name(folder)}/{joined_stem(number)}-{group:04d}{SUFFIX}"


def joined_stem(number: int) -> str:
    return f"compacted-{number:020d}"


def is_joined(name: str) -> bool:
    return name.startswith(f"{JOINED}/")


def shown_name(name: str) -> str:
    """Where readers that know nothing of commits find a file, once those it replaced are gone."""
    return name.removeprefix(f"{JOINED}/")


def topic_folder(topic: str, *, as_table: bool) -> str:
    return plain(topic) if as_table else f"topic={quoted(topic)}"


def file_name(topic: str, date: str, beginning: str, *, as_table: bool = False) -> str:
    """Of the rows of a topic and day; `beginning` is the stem of their range."""
    return f"{topic_folder(topic, as_table=as_table)}/date={date}/{beginning}{SUFFIX}"
