"""Topics as Iceberg tables, through pyiceberg, partitioned by day of `storeTimestamp`. Driver side.

The catalog is a SQLite file of the lake's own, or one that pyiceberg is configured for (REST, Glue, Hive, SQL):
`name` or `name.namespace`. Tables lie in the namespace `embermq` unless another is named.

Exactly once: the snapshot that adds files names the lake's commit and its stretch, and a property of the table, set in
the same step, has the commit's number: it stays when snapshots expire.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
)
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from sqlalchemy.exc import SQLAlchemyError

from embermq.errors import OptionInvalid, StoreError
from embermq.spark.lake.commits import LakeCommit, LakeFile, LakeHead
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.names import CATALOG, topic_folder
from embermq.spark.lake.tables import stretch_of

NAMESPACE = "embermq"
LAKE_ID = "embermq.lake"
COMMIT = "embermq.commit"
STRETCH = "embermq.stretch"

_REFUSALS = (  # What catalogs and disks say; pyiceberg's errors have no base of their own.
    OSError,
    ValueError,
    SQLAlchemyError,
    RESTError,
    CommitFailedException,
    NoSuchNamespaceError,
    NotInstalledError,
)


class IcebergTables:
    """The Iceberg tables of one lake."""

    def __init__(self, files: LakeFiles, head: LakeHead) -> None:
        self._files, self._lake_id = files, head.lake_id
        name, _, namespace = head.catalog.partition(".")
        self._namespace = namespace or NAMESPACE
        self._is_own = not name
        self._catalog = self._own_catalog() if self._is_own else _configured(name)

    def _own_catalog(self) -> Catalog:
        if not self._files.is_local:
            raise OptionInvalid(
                "catalog",
                "a lake that is no directory needs a catalog that pyiceberg is configured for",
                value=self._files.root,
            )
        with _clear_errors("the catalog"):
            return SqlCatalog(
                "embermq", uri=f"sqlite:///{self._files.full(CATALOG)}", warehouse=f"file://{self._files.path}"
            )

    def publish(self, topic: str, files: list[LakeFile], commit: LakeCommit, schema: pa.Schema) -> None:
        with _clear_errors(f"topic {topic}"):
            table = self._table(topic, schema)
            if self._number(table) >= commit.number:
                return
            named = {LAKE_ID: self._lake_id, COMMIT: str(commit.number)}
            with table.transaction() as step:
                with step.update_schema() as columns:
                    columns.union_by_name(schema)
                step.set_properties(named)
                places = [self._place(file.path) for file in files]
                step.add_files(places, snapshot_properties={**named, STRETCH: stretch_of(commit)})

    def _place(self, path: str) -> str:
        full = self._files.full(path)
        return f"file://{full}" if self._files.is_local else f"{self._files.root.rstrip('/')}/{path}"

    def _number(self, table: Table) -> int:
        """The last commit of this lake that the table has; 0 for none. StoreError if it is another's table."""
        owner = table.properties.get(LAKE_ID)
        if owner != self._lake_id:
            whose = "of another lake" if owner else "not made by a lake"
            raise StoreError(
                f"the Iceberg table {'.'.join(table.name())} is {whose};"
                " choose another namespace (--catalog NAME.NAMESPACE)"
            )
        return int(table.properties.get(COMMIT, "0"))

    def _table(self, topic: str, schema: pa.Schema) -> Table:
        found = self._known(topic)
        if found is not None:
            return found
        self._catalog.create_namespace_if_not_exists(self._namespace)
        more: dict[str, Any] = {"location": self._place(topic_folder(topic, as_table=True))} if self._is_own else {}
        made = self._catalog.create_table_transaction(
            (self._namespace, topic), schema, properties={LAKE_ID: self._lake_id}, **more
        )
        with made as step, step.update_spec() as spec:
            spec.add_field("storeTimestamp", DayTransform(), "date")
        return self._catalog.load_table((self._namespace, topic))

    def _known(self, topic: str) -> Table | None:
        try:
            return self._catalog.load_table((self._namespace, topic))
        except NoSuchTableError:
            return None

    def paths(self, topic: str) -> list[str]:
        with _clear_errors(f"topic {topic}"):
            table = self._known(topic)
            planned = list(table.scan().plan_files()) if table is not None else []
            if any(one.delete_files for one in planned):
                raise StoreError(
                    f"the Iceberg table of topic {topic} has delete files, which are not read here; rewrite its data"
                    " files first, or read the table with Iceberg itself"
                )
            return [one.file.file_path for one in planned]

    def rows(self, topic: str) -> int:
        with _clear_errors(f"topic {topic}"):
            table = self._known(topic)
            return 0 if table is None else table.scan().count()

    def compact(self, topic: str, file_bytes: int | None) -> tuple[int, int]:
        """Left to those who keep the catalog: pyiceberg cannot rewrite files."""
        count = len(self.paths(topic))
        return count, count


def _configured(name: str) -> Catalog:
    try:
        return load_catalog(name)
    except _REFUSALS as problem:
        reason = str(problem).strip().splitlines()[0]
        raise OptionInvalid("catalog", f"pyiceberg cannot open it: {reason}", value=name) from None


@contextmanager
def _clear_errors(what: str) -> Iterator[None]:
    try:
        yield
    except _REFUSALS as problem:
        reason = str(problem).strip().splitlines()[0]
        raise StoreError(f"the Iceberg table of {what}: {reason}") from None
