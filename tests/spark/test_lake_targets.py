"""Places a lake cannot be written to, lakes that are not what they seem: one clear line, and nothing half-written."""

import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from embermq import Message
from embermq.cli.app import run
from embermq.spark.lake import Lake
from embermq.spark.lake.names import LAKE, PENDING, commit_name
from embermq.testing.builder import StoreBuilder
from tests.crash import numbered
from tests.spark.test_job_commands import lend_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.extended

__all__ = ["lend_session"]  # a fixture

DISK_BYTES = 400_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk, of memory. Spark's workers see it too."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(place)]
    try:
        allowed = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "broker-a", **numbered.TINY | {"segment_bytes": 1 << 20})


def append(builder: StoreBuilder, size: int) -> None:
    source = random.Random(size)
    with builder.open() as store:
        store.append_many([Message(f"topic-{n % 3}", source.randbytes(size)) for n in range(30)])


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command that does not work says."""
    assert run(["spark", *words]) in (1, 2)
    text = capsys.readouterr().err.strip()
    assert "Traceback" not in text
    assert len(text.splitlines()) <= 3, text
    return text


def files(place: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


def test_a_disk_that_is_full_and_then_read_only(
    spark: "SparkSession", builder: StoreBuilder, disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    append(builder, 100)
    lake, store = disk / "lake", str(builder.root)
    words = ["archive", store, "--into", str(lake)]
    assert run(["spark", *words]) == 0
    before = files(lake)
    append(builder, 20_000)  # 600 kB, and no way to make them fewer.
    assert "No space left on device" in said(capsys, *words)
    after = files(lake)
    after.pop(str(lake / PENDING))  # Says what the next run has to clear up, if there is anything.
    assert after == before
    assert "No space left on device" in said(capsys, "pipeline", store, "--into", str(disk / "other"))
    subprocess.run(["mount", "-o", f"remount,size={10 * DISK_BYTES}", str(disk)], check=True)  # Room was made.
    capsys.readouterr()
    assert run(["spark", *words]) == 0
    assert Lake.open(str(lake)).covered("broker-a")[0].rows == 60
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    append(builder, 10)
    before = files(disk)
    assert "Read-only file system" in said(capsys, *words)
    assert "Read-only file system" in said(capsys, "archive", store, "--into", str(disk / "new"))
    assert files(disk) == before


def test_lakes_that_are_not_what_they_seem(
    spark: "SparkSession", builder: StoreBuilder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a user sees it: the commands that write, that read, and that follow."""
    append(builder, 10)
    lake, store = tmp_path / "lake", str(builder.root)
    assert run(["spark", "archive", store, "--into", str(lake)]) == 0
    append(builder, 10)
    other = StoreBuilder(tmp_path / "elsewhere" / "broker-a", **numbered.TINY)
    append(other, 11)
    before = files(lake)
    capsys.readouterr()
    commit, head = lake / commit_name(1), lake / LAKE
    cases: list[tuple[Path, Callable[[bytes], bytes], str]] = [
        (commit, lambda data: data.replace(b'"end":', b'"end":1'), "was changed after"),
        (commit, lambda data: data.replace(b'"schemas":{}', b'"schemas":{"a":"b"}'), "was changed after"),
        (commit, lambda data: data[: len(data) // 2], "is no commit"),
        (head, lambda data: b"{}", "restore it"),
        (head, lambda data: data.replace(b'"version":1', b'"version":9'), "a newer EmberMQ wrote it"),
        (head, lambda data: data.replace(b"parquet", b"orc"), "restore it"),
        (lake / PENDING, lambda data: b"?", "remove it if nothing is writing this lake"),
    ]
    for path, change, words in cases:
        whole = path.read_bytes() if path.exists() else b""
        path.write_bytes(change(whole))
        spoiled = files(lake)
        assert words in said(capsys, "archive", store, "--into", str(lake))
        if path != lake / PENDING:  # Of no interest to those who read.
            assert words in said(capsys, "sql", "select 1", "--archive", str(lake))
        assert files(lake) == spoiled
        if whole:
            path.write_bytes(whole)
        else:
            path.unlink()
    assert "holds another log under the name broker-a" in said(capsys, "archive", str(other.root), "--into", str(lake))
    assert files(lake) == before
    mistakes: list[tuple[list[str], Any]] = [
        (["--lake-format", "delta"], "has the format parquet"),
        (["--json", "topic-0=id tinyint"], "topic topic-0: field id is tinyint"),
        (["--json", "topic-0=nowhere.json"], "there is no file nowhere.json"),
        (["--catalog", "x"], "a catalog of its own"),
    ]
    for more, words in mistakes:
        assert words in said(capsys, "archive", store, "--into", str(lake), *more)
        assert words in said(capsys, "pipeline", store, "--into", str(lake), "--derive", "lake", *more)
    assert files(lake) == before
