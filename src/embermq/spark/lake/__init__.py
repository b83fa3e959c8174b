"""The lake: messages as Parquet files by topic and day, and a list of commits that says which files count.

    names.py         where things lie
    commits.py       what a commit says
    files.py         the few things asked of a file system, local or any that pyarrow knows
    writing.py       one slice of a log into files, in a worker
    json_schemas.py  schemas of JSON bodies: read, checked, joined
    json_bodies.py   JSON bodies as a typed column, in a worker
    compaction.py    small files become one, in a worker
    compaction_grace.py  how long the files that were compacted stay
    writer_lock.py   one writer at a time
    header.py        what kind of lake lies at a place
    lakes.py         a lake as a whole: open, add, verify, compact
    tables.py        lakes whose topics are tables: what is asked of a format
    delta.py         ... of Delta
    iceberg.py       ... of Iceberg
    frames.py        a lake's rows as a DataFrame
    spark_paths.py   its files as Spark names them
    topic_filter.py  which topics a lake is about
    queue_ranges.py  ranges of queues of a running cluster into a lake

A log range goes in once: files are named after the range they hold, a commit lists them, and what no commit lists is
not there. Readers that know nothing of commits see only whole files, and after a crash at most some that will be
written again under the same names.
"""

from typing import TYPE_CHECKING

from embermq.lazy import lazy_names

if TYPE_CHECKING:
    from embermq.spark.lake.commits import LakeCommit, LakeFile, LakeFormat, LakeRange
    from embermq.spark.lake.json_schemas import schemas_in_words
    from embermq.spark.lake.lakes import Lake
    from embermq.spark.lake.tables import FORMATS
    from embermq.spark.lake.topic_filter import TopicFilter

__all__ = ["FORMATS", "Lake", "LakeCommit", "LakeFile", "LakeFormat", "LakeRange", "TopicFilter", "schemas_in_words"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "FORMATS": "embermq.spark.lake.tables",
            "Lake": "embermq.spark.lake.lakes",
            "LakeCommit": "embermq.spark.lake.commits",
            "LakeFile": "embermq.spark.lake.commits",
            "LakeFormat": "embermq.spark.lake.commits",
            "LakeRange": "embermq.spark.lake.commits",
            "TopicFilter": "embermq.spark.lake.topic_filter",
            "schemas_in_words": "embermq.spark.lake.json_schemas",
        },
    )
