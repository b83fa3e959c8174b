"""Reading a slice, in a task: three ways, by what the plan cut.

`read_slice` yields Arrow batches; one thread, memory bounded by a window of the log and a batch. A record belongs to
the slice in which it begins.
"""

import socket
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from embermq.errors import StorePathInvalid
from embermq.files import RealFiles
from embermq.spark.planning.plan import LogCut, PlacesCut
from embermq.spark.planning.stores import has_log
from embermq.spark.reading.known_places import read_places
from embermq.spark.reading.queue_reader import QueueReader
from embermq.spark.reading.slice_rows import Counts, ReadSettings, Slice, SliceReader, chooser
from embermq.spark.runtime.gc_freeze import settle
from embermq.store.log import DamagedRange

__all__ = ["Counts", "ReadSettings", "Slice", "read_slice"]


def read_slice(slice_: InputPartition, counts: Counts | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a slice. What is no Slice is the partition Spark makes up where there are none: it has no rows."""
    if not isinstance(slice_, Slice):
        return
    _check_visible(slice_)
    reader = SliceReader(slice_, Counts() if counts is None else counts)
    match slice_.cut:
        case LogCut() as cut:
            yield from _read_log(reader, cut)
        case PlacesCut() as cut:
            yield from read_places(reader, cut)
        case cut:
            yield from QueueReader(reader, cut).read()
    reader.troubles.report()
    settle()


def _read_log(reader: SliceReader, cut: LogCut) -> Iterator[pa.RecordBatch]:
    """Wanted records that begin in a range of the log, in its order."""
    choose = chooser(reader.slice.selection, cut.end - cut.start)
    for scanned in reader.scan(cut.start, cut.end):
        if isinstance(scanned, DamagedRange):
            yield from reader.troubles.meet(scanned)
        else:
            yield from reader.batches(scanned, choose(scanned))


def _check_visible(slice_: Slice) -> None:
    """A store that the driver sees and this machine does not is no retention."""
    if isinstance(slice_.files, RealFiles) and not has_log(slice_.store, slice_.files):
        raise StorePathInvalid(
            slice_.store,
            f"the driver sees this store, the worker on {socket.gethostname()} does not;"
            " mount it at the same path on every machine",
        )
