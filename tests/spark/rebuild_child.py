"""A process that rebuilds a store on Spark and says how far it is; made to be killed.

    python -m tests.spark.rebuild_child STORE PLACE

Lines of its output: `begun` when Spark runs, `deriving 0` before that work, `deriving half` in the middle of it,
`swap 2` just before the second rename of a directory. After each it waits a moment, for whoever wants to kill it there.
"""

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import embermq.spark
from embermq.files import RealFiles
from embermq.repair.rebuild import bulk_build as rebuild_bulk
from embermq.repair.rebuild.bulk_build import BulkBuild
from embermq.repair.rebuild.rebuilding import rebuild
from embermq.spark.jobs.rebuild import SparkWorkers, found_settings

PAUSE_SECONDS = 0.1


def say(text: str) -> None:
    print(text, flush=True)
    time.sleep(PAUSE_SECONDS)


class TellingWorkers(SparkWorkers):
    """Does its pieces in two goes, so that there is something between them."""

    def __call__(self, function: Callable[[Any], Any], pieces: Sequence[Any], title: str) -> list[Any]:
        say(f"{title} 0")
        half = len(pieces) // 2
        done = super().__call__(function, pieces[:half], title)
        say(f"{title} half")
        return done + super().__call__(function, pieces[half:], title)


class TellingFiles(RealFiles):
    """Tells before a directory is moved."""

    __slots__ = ("moved",)

    def rename(self, source: Path, target: Path) -> None:
        if source.is_dir():
            self.moved = getattr(self, "moved", 0) + 1
            say(f"swap {self.moved}")
        super().rename(source, target)


def main() -> None:
    root, place = Path(sys.argv[1]), Path(sys.argv[2])
    rebuild_bulk.SLICE_BYTES_MIN, rebuild_bulk.PORTION_BYTES = 1000, 20_000
    spark = embermq.spark.session(
        "rebuild child",
        "local[2]",
        **{
            "spark.driver.memory": "512m",
            "spark.sql.warehouse.dir": str(place / "warehouse"),
            "spark.local.dir": str(place / "local"),
        },
    )
    say("begun")
    build = partial(BulkBuild, workers=TellingWorkers(spark, None))
    rebuild(root, found_settings(root), files=TellingFiles(), make_build=build)
    say("done")
    spark.stop()


if __name__ == "__main__":
    main()
