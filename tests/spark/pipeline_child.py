"""A process that runs a pipeline, says at which step it is, and stops at one of them; made to be killed there.

    python -m tests.spark.pipeline_child STORE PLACE OPTIONS-AS-JSON

Lines of its output: `begun` when the query runs; `at STEP` whenever a step is behind it. Options: `stop`, a step after
which it stands still (and says `standing`); `die`, a place in a worker where that process kills itself, once: the file
PLACE/died is then there; `format` of the lake; `name_server` of a cluster that is read in place of the store.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import embermq.spark
from embermq import StoreSettings
from embermq.repair.rebuild.follower import DerivedFollower
from embermq.spark.lake import compaction as joining
from embermq.spark.lake import lakes, queue_ranges, writing
from embermq.spark.lake.commits import LakeFormat
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.names import COMMITS, PENDING
from embermq.spark.pipelines import Pipeline, derive, pipeline, setup
from embermq.spark.pipelines.derive import DerivedSink
from embermq.spark.pipelines.minute_statistics import MinutesSink
from embermq.spark.pipelines.queue_minutes import QueueMinutesSink
from tests.crash import numbered
from tests.support.jvm import SHORT_LIVED_JVM

STEPS = (
    "pending noted",
    "files written",
    "committed",
    "tables published",
    "pending removed",
    "files joined",
    "queues derived",
    "statistics written",
    "batch done",
)
DEATHS = ("between files", "before durable", "after durable")  # places in workers
SETTINGS = StoreSettings(
    **numbered.TINY
    | {"segment_bytes": 1 << 15, "queue_file_bytes": 20 * 64, "index_slots_max": 64, "index_entries_max": 500}
)
BATCH_BYTES = 20_000
COMPACT_EVERY = 3
_PLACE = "EMBERMQ_TEST_PLACE"

P = TypeVar("P")
R = TypeVar("R")


def made(spark: Any, store: Path, place: Path, lake_format: LakeFormat, batch_bytes: int = BATCH_BYTES) -> Pipeline:
    """The pipeline that is killed, and in the end brought to its end."""
    return pipeline(
        spark,
        [str(store)],
        into=str(place / "lake"),
        derive=["lake", "queues", "index", "stats"],
        settings=SETTINGS,
        batch_bytes_max=batch_bytes,
        lake_format=lake_format,
    )


def made_of_cluster(
    spark: Any, name_server: str, place: Path, lake_format: LakeFormat, batch_bytes: int = BATCH_BYTES // 5
) -> Pipeline:
    """The same of a running cluster."""
    return pipeline(
        spark,
        name_server=name_server,
        into=str(place / "lake"),
        batch_bytes_max=batch_bytes,
        lake_format=lake_format,
    )


def main() -> None:
    store, place, options = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    os.environ[_PLACE] = str(place)
    _tell_steps(options["stop"], place / "died" if options["die"] else place)
    _let_die(options["die"])
    setup.COMPACT_EVERY = COMPACT_EVERY
    spark = embermq.spark.session(
        "pipeline child",
        "local[2,4]",  # A task whose worker dies is tried again.
        **{
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": SHORT_LIVED_JVM,
            "spark.sql.warehouse.dir": str(place / "warehouse"),
            "spark.local.dir": str(place / "local"),
        },
    )
    if options.get("name_server"):
        ready = made_of_cluster(spark, options["name_server"], place, options["format"])
    else:
        ready = made(spark, store, place, options["format"])
    steps = ready.follow("50 milliseconds")
    print("begun", flush=True)
    for _ in steps:
        pass


def _tell_steps(stop: str, sign: Path) -> None:
    """Stands still after the step as soon as the sign is there."""

    def tell(step: str) -> None:
        print("at", step, flush=True)
        if step == stop and sign.exists():
            print("standing", flush=True)
            threading.Event().wait()

    def after(owner: Any, name: str, step_of: Callable[..., str | None]) -> None:
        real = getattr(owner, name)

        def call(*arguments: Any, **more: Any) -> Any:
            answer = real(*arguments, **more)
            step = step_of(*arguments)
            if step is not None:
                tell(step)
            return answer

        setattr(owner, name, call)

    def of_write(files: LakeFiles, name: str, data: bytes) -> str | None:
        return "pending noted" if name == PENDING else "committed" if name.startswith(COMMITS) else None

    def of_run(_: Any, function: Any, *rest: Any) -> str:
        return "files joined" if function is joining.join_files else "files written"

    after(LakeFiles, "write", of_write)
    after(LakeFiles, "remove", lambda files, name: "pending removed" if name == PENDING else None)
    after(lakes, "run", of_run)
    after(queue_ranges, "run", of_run)
    after(lakes, "publish", lambda *_: "tables published")
    after(DerivedSink, "process", lambda *_: "queues derived")
    after(MinutesSink, "process", lambda *_: "statistics written")
    after(QueueMinutesSink, "process", lambda *_: "statistics written")
    after(Pipeline, "_process", lambda *_: "batch done")


def _let_die(death: str) -> None:
    """Tasks run functions of this module instead, which know what to do in a worker."""
    from tests.spark import pipeline_child as here  # As the workers know it: not the program that was started.

    if death == "between files":
        lakes.write_slice = here.write_slice_and_die  # type: ignore[attr-defined]
        queue_ranges.write_queue_slice = here.write_queue_slice_and_die
    elif death:
        derive._derive = here.derive_and_die if death == "after durable" else here.derive_and_die_early


_write_queue_slice = queue_ranges.write_queue_slice


def write_slice_and_die(piece: writing.LakeSlice) -> writing.SliceRows:
    return dying_between_files(writing.write_slice, piece)


def write_queue_slice_and_die(piece: queue_ranges.QueueSlice) -> queue_ranges.QueueSliceRows:
    return dying_between_files(_write_queue_slice, piece)


def dying_between_files(write: Callable[[P], R], piece: P) -> R:
    real, written = writing.write_table, list[Any]()

    def write_table(*arguments: Any) -> Any:
        if len(written) == 1:
            die_once()
        written.append(real(*arguments))
        return written[-1]

    writing.write_table = write_table  # type: ignore[assignment]
    try:
        return write(piece)
    finally:
        writing.write_table = real


_derive = derive._derive
_make_durable = DerivedFollower.make_durable


def derive_and_die(piece: Any) -> Any:
    done = _derive(piece)
    die_once()
    return done


def derive_and_die_early(piece: Any) -> Any:
    def make_durable(self: DerivedFollower) -> None:
        die_once()
        _make_durable(self)

    DerivedFollower.make_durable = make_durable  # type: ignore[method-assign]
    try:
        return _derive(piece)
    finally:
        DerivedFollower.make_durable = _make_durable  # type: ignore[method-assign]


def die_once() -> None:
    try:
        os.close(os.open(Path(os.environ[_PLACE]) / "died", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
