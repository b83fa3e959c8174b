"""What kind of lake lies at a place: its head, read, made, and compared with what the user asks for. Driver side."""

import uuid

import msgspec

from embermq.errors import OptionInvalid, StoreError
from embermq.spark.lake.commits import LakeFormat, LakeHead, LakeSource
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.names import HALF, LAKE, LOCK
from embermq.spark.lake.tables import open_tables, require_format
from embermq.spark.lake.topic_filter import TopicFilter

VERSION = 1
VERSION_OF_SOME_TOPICS = 2  # Older ones would take what it leaves out for not there.
VERSION_OF_CLUSTER = 3  # Older ones would look for ranges of logs.
_SOURCES = {"log": "the logs of stores", "cluster": "a cluster"}


def load_head(files: LakeFiles) -> LakeHead | None:
    """What the place says it is; None if it is empty or not there."""
    if not files.exists(LAKE):
        ours = (LAKE, LOCK, HALF)  # Another process may be making it at this moment.
        is_foreign = files.exists() and not all(name.startswith(ours) for name in files.list())
        if not files.exists(LAKE):  # Every other file of a lake is younger, so one made since the first look is seen.
            if is_foreign:
                raise OptionInvalid(
                    "lake", "there are files here and no _embermq.json; choose another place", value=files.root
                )
            return None
    try:
        head = msgspec.json.decode(files.read(LAKE), type=LakeHead)
    except msgspec.DecodeError as problem:
        raise StoreError(f"{files.full(LAKE)}: {problem}; restore it") from None
    if head.version not in (VERSION, VERSION_OF_SOME_TOPICS, VERSION_OF_CLUSTER):
        raise StoreError(f"{files.full(LAKE)}: version {head.version} is not known here; a newer EmberMQ wrote it")
    return head


def make_head(
    files: LakeFiles,
    include_system: bool,
    format_: LakeFormat,
    catalog: str,
    made_ms: int,
    topics: TopicFilter | None = None,
    source: LakeSource = "log",
) -> LakeHead:
    """A new lake. Nothing is written when it cannot be."""
    wanted = topics or TopicFilter()
    version = VERSION if wanted.is_everything else VERSION_OF_SOME_TOPICS
    if source == "cluster":
        version = VERSION_OF_CLUSTER
    head = LakeHead(version, include_system, made_ms, format_, catalog, uuid.uuid4().hex, wanted, source)
    if catalog and format_ != "iceberg":
        raise OptionInvalid("catalog", "only lakes of the format iceberg have one", value=catalog)
    require_format(format_)
    if format_ == "iceberg" and (catalog or not files.is_local):
        open_tables(head, files)  # A catalog that cannot be opened is found out before anything is written.
    try:
        files.write(LAKE, msgspec.json.encode(head), new=True)
    except FileExistsError:  # Another process made one meanwhile; what it is like is compared by the caller.
        return load_head(files) or head
    return head


def check_head(
    head: LakeHead,
    root: str,
    include_system: bool | None,
    format_: LakeFormat | None,
    catalog: str | None,
    topics: TopicFilter | None = None,
    source: LakeSource | None = None,
) -> None:
    """OptionInvalid if this lake is another kind than the one that is asked for; None asks for nothing."""
    if source is not None and source != head.source:
        raise OptionInvalid(
            "lake",
            f"this lake is filled from {_SOURCES[head.source]}, not from {_SOURCES[source]}; choose another lake",
            value=root,
        )
    if include_system is not None and include_system != head.include_system:
        has = "has" if head.include_system else "leaves out"
        raise OptionInvalid(
            "lake", f"this lake {has} what no consumer sees; choose the same or another lake", value=root
        )
    if topics is not None and topics != head.topics:
        raise OptionInvalid(
            "topic", f"the lake {root} has {head.topics}; choose the same, or another lake", value=str(topics)
        )
    if format_ is not None and format_ != head.format:
        raise OptionInvalid(
            "lake-format",
            f"the lake {root} has the format {head.format}; leave the option out, or choose another lake",
            value=format_,
        )
    if catalog is not None and catalog != head.catalog:
        raise OptionInvalid(
            "catalog", f"the tables of the lake {root} are in {head.catalog or 'a catalog of its own'}", value=catalog
        )
