"""A process that ships is killed at some moment or other, while the store is written on; the next one goes on."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from embermq import Message
from embermq.spark.shipped.manifests import newest_manifest
from embermq.spark.shipped.places import Place
from embermq.testing.builder import StoreBuilder
from tests.support.shipping import objects_in, read_at, rows_of, run_here, ship

pytestmark = pytest.mark.extended

PATIENCE_SECONDS = 300


def kill_after(store: Path, target: Path, objects: int) -> None:
    """Let a child ship until it has put so many more objects there, or is done; then kill it, wherever it is."""
    child = subprocess.Popen([sys.executable, "-m", "tests.spark.ship_child", str(store), str(target)])
    try:
        before, deadline = count(target), time.monotonic() + PATIENCE_SECONDS
        while child.poll() is None and count(target) < before + objects:
            assert time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        child.kill()
        code = child.wait()
    assert code in (0, -signal.SIGKILL)


def count(target: Path) -> int:
    return sum(1 for one in target.rglob("*") if one.is_file())


@pytest.mark.parametrize("rounds", [2, pytest.param(30, marks=pytest.mark.long)])
def test_killed(rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(rounds)
    builder, target = StoreBuilder(tmp_path / "broker-a", segment_bytes=128 << 10), tmp_path / "far"
    folder = Place(str(target / "broker-a"))
    target.mkdir()
    end = 0
    for _ in range(rounds):
        with builder.open() as store:
            store.append_many([Message("orders", bytes(900), queue_id=n % 3) for n in range(600)])
        kill_after(builder.root, target, chance.randrange(1, 12))
        manifest = newest_manifest(folder)
        if manifest is not None:
            assert manifest.end >= end
            end = manifest.end
            shown = rows_of(read_at(target))
            assert shown == rows_of(read_at(builder.root))[: len(shown)]
    run_here(monkeypatch)
    ship(builder.root, target)
    with builder.open() as store:
        store.append(Message("orders", b"one more"))
    ship(builder.root, target)
    assert rows_of(read_at(target)) == rows_of(read_at(builder.root))
    assert not [name for name in objects_in(target) if name.endswith(".half")], "of killed runs nothing is left"
