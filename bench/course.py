"""How a scenario is run: at which size, how often, where, and beside whom.

A scenario is a module with `NAME`, `ABOUT` and `run(course) -> list[Figure]`. Its files lie in a scratch
directory on the disk that is being measured, are new in every round, and are removed afterwards.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from bench.figures import Figure
from embermq import StoreSettings

Size = Literal["smoke", "full"]
T = TypeVar("T")

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Course:
    """The terms of one run."""

    size: Size
    rounds: int
    directory: Path
    peers: bool = False
    scale: float = 1.0
    note: Callable[[str], None] = lambda text: None

    def pick(self, smoke: T, full: T) -> T:
        """The amount of work for this size."""
        return smoke if self.size == "smoke" else full

    def amount(self, smoke: int, full: int) -> int:
        """A number of messages; at full size times `scale`, for a machine or a minute that has less to give."""
        return smoke if self.size == "smoke" else max(1, int(full * self.scale))

    def settings(self) -> StoreSettings:
        """The defaults; at smoke size with smaller files, since nothing would fill larger ones."""
        if self.size == "full":
            return StoreSettings()
        return StoreSettings(
            segment_bytes=32 * MIB, queue_file_bytes=20 * 3000, index_slots_max=50_000, index_entries_max=200_000
        )

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A new directory, removed with all it holds."""
        path = Path(tempfile.mkdtemp(prefix="embermq-bench-", dir=self.directory))
        try:
            yield path
        finally:
            shutil.rmtree(path)


def not_measured(case: str, measure: str, unit: str, why_not: str) -> Figure:
    """A figure that should be there and is not, with the reason."""
    return Figure(case, measure, unit, [], why_not=why_not)
