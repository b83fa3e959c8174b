"""Topics as Delta tables, through delta-rs: `<lake>/<topic>` is a table, partitioned by date. Driver side.

Exactly once: the commit that adds files also sets the version of an application transaction (`txn`) to the number of
the lake's commit; a table that has that number has the files.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from embermq.errors import StoreError
from embermq.spark.lake.commits import LakeCommit, LakeFile, LakeHead
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.names import UNKNOWN_DATE, topic_folder
from embermq.spark.lake.tables import stretch_of

_PARTITIONS = ["date"]
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_BOUNDED = ("queueOffset", "physicalOffset")  # columns whose lowest and highest values help readers to skip files


class DeltaTables:
    """The Delta tables of one lake."""

    def __init__(self, files: LakeFiles, head: LakeHead) -> None:
        self._files, self._app_id = files, f"embermq-{head.lake_id}"

    def publish(self, topic: str, files: list[LakeFile], commit: LakeCommit, schema: pa.Schema) -> None:
        with _clear_errors(topic):
            table = self._table(topic, schema)
            known = table.transaction_version(self._app_id)
            if known is not None and known >= commit.number:
                return
            _add_columns(table, schema)
            table.create_write_transaction(
                [self._added(topic, file, commit.made_ms) for file in files],
                "append",
                table.schema(),
                _PARTITIONS,
                commit_properties=CommitProperties(
                    custom_metadata={"embermq": stretch_of(commit)},
                    app_transactions=[Transaction(self._app_id, commit.number)],
                ),
            )

    def _uri(self, topic: str) -> str:
        folder = topic_folder(topic, as_table=True)
        return self._files.full(folder) if self._files.is_local else f"{self._files.root.rstrip('/')}/{folder}"

    def _table(self, topic: str, schema: pa.Schema) -> DeltaTable:
        whole = schema.append(pa.field("date", pa.date32()))
        return DeltaTable.create(self._uri(topic), whole, mode="ignore", name=topic, partition_by=_PARTITIONS)

    def _added(self, topic: str, file: LakeFile, made_ms: int) -> AddAction:
        inside = file.path.removeprefix(f"{topic_folder(topic, as_table=True)}/")
        date = None if file.date == UNKNOWN_DATE else file.date
        return AddAction(inside, file.bytes, {"date": date}, made_ms, True, self._statistics(file))

    def _statistics(self, file: LakeFile) -> str:
        footer = pq.read_metadata(self._files.full(file.path), filesystem=self._files.arrow)
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        lowest, highest = {}, {}
        for name in _BOUNDED:
            at = footer.schema.names.index(name)
            bounds = [group.column(at).statistics for group in groups]
            if bounds and all(one is not None and one.has_min_max for one in bounds):
                lowest[name], highest[name] = min(one.min for one in bounds), max(one.max for one in bounds)
        return json.dumps({"numRecords": file.rows, "minValues": lowest, "maxValues": highest})

    def _known(self, topic: str) -> DeltaTable | None:
        uri = self._uri(topic)
        return DeltaTable(uri) if DeltaTable.is_deltatable(uri) else None

    def paths(self, topic: str) -> list[str]:
        with _clear_errors(topic):
            table = self._known(topic)
            if table is None:
                return []
            if "deletionVectors" in (table.protocol().reader_features or []) and any(
                batch.num_rows for batch in table.deletion_vectors()
            ):
                raise StoreError(
                    f"the Delta table of topic {topic} has deletion vectors, which are not read here; purge them first"
                    " (REORG TABLE … APPLY (PURGE)), or read the table with Delta itself"
                )
            return table.file_uris()

    def rows(self, topic: str) -> int:
        with _clear_errors(topic):
            table = self._known(topic)
            return 0 if table is None else table.count()

    def compact(self, topic: str, file_bytes: int | None) -> tuple[int, int]:
        """Delta's own way. Files that were joined stay for a week, as Delta keeps them for those who read old versions,
        and are removed by a later compaction."""
        with _clear_errors(topic):
            table = self._known(topic)
            if table is None:
                return 0, 0
            before = len(table.file_uris())
            table.optimize.compact(target_size=file_bytes)
            table.vacuum(dry_run=False)
            return before, len(table.file_uris())


def _add_columns(table: DeltaTable, schema: pa.Schema) -> None:
    """Columns and fields of the JSON bodies that the table does not have yet."""
    there = pa.schema(table.schema().to_arrow())
    new = [field for field in schema if field.name not in there.names or there.field(field.name).type != field.type]
    if new:
        table.alter.add_columns(Schema.from_arrow(pa.schema(new)).fields)


@contextmanager
def _clear_errors(topic: str) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError) as problem:
        reason = " ".join(_COLOURS.sub("", str(problem)).split())  # The cause comes last, lines below.
        raise StoreError(f"the Delta table of topic {topic}: {reason}") from None
