"""`embermq spark ship --follow` as it is used: a process with Spark behind a live store, ended by a signal."""

import json
import os
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
from tests.support.shipping import read_at, rows_of

pytestmark = pytest.mark.extended

PATIENCE_SECONDS = 600
ROUNDS = 10


@pytest.mark.long
@pytest.mark.parametrize("how", ["ctrl-c", "sigterm"])
def test_until_it_is_told_to_stop(tmp_path: Path, how: str) -> None:
    """Ctrl-C reaches all processes of a terminal, Spark's too; SIGTERM only the one it was sent to."""
    builder, target = StoreBuilder(tmp_path / "broker-a", segment_bytes=1 << 20), tmp_path / "far"
    folder = target / "broker-a"
    command = ["spark", "ship", str(builder.root), "--into", str(target), "--follow", "--every", "0.5"]
    with builder.open() as store:
        child = subprocess.Popen(
            [sys.executable, "-m", "embermq.cli", *command, "--output", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(list(folder.glob("manifests/*.json"))) < ROUNDS:
                assert child.poll() is None, child.communicate()
                assert time.monotonic() < deadline
                store.append_many([Message("orders", b"x" * 1000, keys=[f"k{n}"], queue_id=n % 3) for n in range(60)])
                store.flush()
                time.sleep(0.1)
            if how == "ctrl-c":
                os.killpg(child.pid, signal.SIGINT)
            else:
                child.terminate()
            out, err = child.communicate(timeout=PATIENCE_SECONDS)
        finally:
            child.kill()
    assert child.returncode == 0, err
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    (total,) = json.loads(out)["shipped"]
    manifest = newest_manifest(Place(str(folder)))
    assert manifest is not None
    assert manifest.number >= ROUNDS
    assert total["end"] == manifest.end
    assert total["bytes"] == sum(line["bytes"] for line in lines)
    shown = rows_of(read_at(target))
    assert shown == rows_of(read_at(builder.root))[: len(shown)]
    assert max(len(one.parts) for one in manifest.segments) < 30
