"""The store builder and the fixtures."""

import subprocess
import sys
from pathlib import Path

import pytest

from embermq import FlushDisk, Message
from embermq.files import RealFiles
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
    program = "import sys, embermq.testing.plugin, embermq.testing; heavy = ('numba', 'numpy', 'embermq.store');"
    program += "print([name for name in sys.modules if name in heavy])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_store_is_opened_and_opened_again(tmp_path: Path) -> None:
    clock = ManualClock()
    builder = StoreBuilder(tmp_path / "store", clock=clock)
    with builder.open() as store:
        store.append(Message(topic="orders", body=b"one"))
    with builder.open(read_only=True) as store:
        (message,) = store.fetch("orders", 0, offset=0).messages
        assert (message.body, message.store_timestamp) == (b"one", clock.now_ms())


def test_a_store_can_live_in_memory() -> None:
    builder = StoreBuilder(Path("/store"), files=LossyFiles(), flush=FlushDisk.SYNC)
    with builder.open() as store:
        store.append(Message(topic="orders", body=b"one"))
        assert isinstance(builder.files, LossyFiles)
        after_crash = builder.files.crash()
    with builder.on(after_crash).open() as store:
        assert [message.body for message in store.fetch("orders", 0, offset=0).messages] == [b"one"]


@pytest.mark.slow
def test_the_fixtures_work_in_a_project_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from embermq import Message\n"
        "def test_it(embermq_store, embermq_builder, manual_clock):\n"
        "    embermq_store.append(Message(topic='t', body=b'x'))\n"
        "    assert embermq_builder.root.is_dir() and manual_clock.now_ms() > 0\n"
        "def test_broker(rocketmq_broker):\n"
        "    assert rocketmq_broker.sent('orders') == []\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path)]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
