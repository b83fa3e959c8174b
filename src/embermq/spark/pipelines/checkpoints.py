"""Where a pipeline keeps its progress: Spark's checkpoint, and in it a file that says whose progress it is.

Progress is one position for each log. A sink that was not there for a while would lack what came meanwhile, and no one
would notice: so it is refused. With another checkpoint everything comes again, and sinks notice what they have.
Driver side.
"""

import tempfile
from collections.abc import Collection
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from embermq.errors import OptionInvalid
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.names import HALF
from embermq.spark.lake.spark_paths import has_file_system
from embermq.spark.lake.topic_filter import TopicFilter
from embermq.spark.shipped.places import shown

CHECKPOINT = "_checkpoint"
_NOTE = "embermq-sinks.json"
_OFFSETS = "offsets"  # Spark's: a file for each batch that was begun


class _Sinks(msgspec.Struct, frozen=True):
    sinks: list[str]
    topics: TopicFilter = TopicFilter()


def checkpoint_in(spark: SparkSession, into: str) -> str:
    """Where progress is kept by default: beside what is made."""
    files = LakeFiles(into)
    if files.is_local:
        return files.full(CHECKPOINT)
    if "?" in into or not has_file_system(spark, into):
        scheme = into.partition("://")[0]
        raise OptionInvalid(
            "checkpoint", f"Spark cannot keep progress at {scheme}:// here; name a directory for it", value=shown(into)
        )
    return f"{into.rstrip('/')}/{CHECKPOINT}"


def check_writable(place: str, option: str) -> None:
    """OptionInvalid if a directory cannot be written, or made. Nothing is left of the attempt. Other file systems are
    not tried."""
    files = _files_at(place)
    if files is None or not files.is_local:
        return
    path = Path(files.path)
    missing = [one for one in (path, *path.parents) if not one.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(prefix=HALF, dir=path):
            pass
        for one in missing:
            one.rmdir()
    except (FileExistsError, NotADirectoryError):
        raise OptionInvalid(option, "this is a file, or in one; a directory is needed", value=place) from None
    except OSError as problem:
        raise OptionInvalid(option, f"cannot be written: {problem.strerror}", value=place) from None


def check_sinks(checkpoint: str, names: Collection[str], topics: TopicFilter | None) -> TopicFilter | None:
    """The topics that the progress kept there is of; None if there is none. OptionInvalid if it is not that of all
    these sinks, or of other topics than those given."""
    files = _files_at(checkpoint)
    if files is None or not files.exists(_NOTE) or not files.list(_OFFSETS):
        return None
    try:
        noted = msgspec.json.decode(files.read(_NOTE), type=_Sinks)
    except msgspec.DecodeError as problem:
        raise OptionInvalid("checkpoint", f"{_NOTE}: {problem}; name another place", value=checkpoint) from None
    if topics is not None and topics != noted.topics:
        raise OptionInvalid(
            "topic",
            f"the progress in {checkpoint} is that of {noted.topics}; choose the same, or another lake and checkpoint",
            value=str(topics),
        )
    new = [name for name in names if name not in noted.sinks]
    if new:
        raise OptionInvalid(
            "checkpoint",
            f"the progress kept here is not that of {' and '.join(new)}; it would lack what came before."
            " Name another place, and all of it comes again: nothing is derived twice",
            value=checkpoint,
        )
    return noted.topics


def note_sinks(checkpoint: str, names: Collection[str], topics: TopicFilter) -> None:
    """From now on progress is that of these sinks alone, and of these topics."""
    files = _files_at(checkpoint)
    if files is not None:
        files.write(_NOTE, msgspec.json.encode(_Sinks(sorted(names), topics)))


def _files_at(place: str) -> LakeFiles | None:
    """None for file systems that Spark may know and pyarrow does not: there nothing is looked at or noted."""
    bare = place.removeprefix("file:") if not place.startswith("file://") else place
    try:
        return LakeFiles(bare)
    except OptionInvalid:
        return None
