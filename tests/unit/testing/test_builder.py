"""The store builder and the fixtures."""

import subprocess
import sys
from pathlib import Path

from embermq.files.files import RealFiles
from embermq.testing.builder import SMALL, StoreBuilder
from embermq.testing.clock import ManualClock
from embermq.testing.lossy_files import LossyFiles


def test_files_are_small_unless_told_otherwise(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path, segment_bytes=65536)
    assert builder.settings.segment_bytes == 65536
    assert builder.settings.index_slots_max == SMALL["index_slots_max"]
    assert isinstance(builder.files, RealFiles)


def test_a_variant_keeps_everything_else(tmp_path: Path) -> None:
    clock, files = ManualClock(), LossyFiles()
    builder = StoreBuilder(tmp_path, clock=clock, message_bytes_max=100)
    other = builder.changed(segment_bytes=8192).on(files)
    assert (other.root, other.clock, other.files) == (tmp_path, clock, files)
    assert (other.settings.segment_bytes, other.settings.message_bytes_max) == (8192, 100)
    assert builder.settings.segment_bytes == SMALL["segment_bytes"]


def test_the_plugin_is_light_until_used() -> None:
    """pytest loads it in every project where this package is installed."""
    program = "import sys, embermq.testing.plugin; print([m for m in ('numpy', 'numba') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
