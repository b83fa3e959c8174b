"""Links and files of others where Spark's side writes: lakes, shipped copies, filters. Nothing is removed behind a link
but files whose names say that we made them; nothing else is removed at all. (Staged files: test_write_staging.py.)"""

import os
from pathlib import Path
from typing import Any

import pytest

from embermq import Message
from embermq.files import RealFiles
from embermq.inspect.snapshot import Survey
from embermq.spark.lake import Lake, lakes
from embermq.spark.lake.files import LakeFiles
from embermq.spark.planning import shared_filters
from embermq.spark.writing.journal import CommitJournal
from embermq.testing.builder import StoreBuilder
from tests.crash import numbered
from tests.spark.test_lake import BROKER, fill
from tests.support.links import CANARY, listing, put_canary
from tests.support.shipping import run_here, ship

NO_SPARK: Any = None


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lakes, "run", lambda _, function, pieces, *rest: [function(piece) for piece in pieces])
    monkeypatch.setattr(lakes, "parallelism", lambda _: 2)


def filled(tmp_path: Path) -> Survey:
    return fill(StoreBuilder(tmp_path / "a", **numbered.TINY), 0, 120)


class Fails(Exception):
    """A task fails after it has written."""


def add_and_fail(lake: Lake, survey: Survey, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks write their files, and then the writer fails; what it wrote is cleared up at once."""

    def run(_: Any, function: Any, pieces: Any, *rest: Any) -> Any:
        for piece in pieces:
            function(piece)
        raise Fails

    with monkeypatch.context() as patched:
        patched.setattr(lakes, "run", run)
        with pytest.raises(Fails):
            lake.add(NO_SPARK, survey, BROKER, survey.log_end)


@pytest.mark.usefixtures("in_process")
def test_clearing_up_a_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    survey, root = filled(tmp_path), tmp_path / "lake"
    lake = Lake.open(str(root), include_system=True)
    half = f"_half-{os.getpid()}-1-0.parquet"
    # Another lake, where somebody is just writing; and ways in a circle, back, to nowhere, and to a single file.
    for name in (half, "notes.txt", "topic=x/date=2024-01-01/other-0.parquet"):
        put_canary(tmp_path / "other" / name)
    (root / "other").symlink_to(tmp_path / "other")
    (root / "back").symlink_to(root)
    (root / "up").symlink_to(tmp_path)
    (root / "circle").symlink_to(root / "circle")
    (root / "nowhere").symlink_to(tmp_path / "nowhere")
    (root / f"_half-{os.getpid()}-2-0.parquet").symlink_to(tmp_path / "other" / "notes.txt")
    names = ("_half-finished-novel.txt", "readme.parquet", "topic=T/date=x/n.parquet")
    mine = [put_canary(root / name) for name in names]
    left = put_canary(root / f"_half-{os.getpid()}-3-x.parquet")
    before = listing(tmp_path / "other")
    add_and_fail(lake, survey, monkeypatch)
    assert listing(tmp_path / "other") == before
    assert all(path.read_bytes() == CANARY for path in mine)
    assert not left.exists()
    rows = [path for path in root.rglob("*.parquet") if path.is_file() and not path.is_symlink()]
    assert sorted(rows) == sorted(path for path in mine if path.suffix == ".parquet")
    lake = Lake.open(str(root), make=False)
    lake.add(NO_SPARK, survey, BROKER, survey.log_end)
    lake.compact(NO_SPARK)
    assert sum(file.rows for file in lake.live_files()) > 0
    assert listing(tmp_path / "other") == before
    assert all(path.read_bytes() == CANARY for path in mine)


@pytest.mark.usefixtures("in_process")
def test_a_topic_of_a_lake_on_another_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are written there, and what a failed writer left there is cleared up by its names."""
    survey, root = filled(tmp_path), tmp_path / "lake"
    lake = Lake.open(str(root), include_system=True)
    lake.add(NO_SPARK, survey, BROKER, survey.record_start(survey.log_end // 2))
    topic = next(path for path in sorted(root.iterdir()) if path.name.startswith("topic="))
    topic.rename(tmp_path / "disk")
    topic.symlink_to(tmp_path / "disk")
    canary = put_canary(tmp_path / "disk" / "notes.txt")
    before = listing(tmp_path / "disk")
    add_and_fail(lake, survey, monkeypatch)
    assert {path: found for path, found in listing(tmp_path / "disk").items() if found[0] == "file"} == {
        path: found for path, found in before.items() if found[0] == "file"
    }
    lake = Lake.open(str(root), make=False)
    lake.add(NO_SPARK, survey, BROKER, survey.log_end)
    (whole,) = lake.covered(BROKER)
    assert (whole.start, whole.end) == (0, survey.log_end)
    assert canary.read_bytes() == CANARY
    assert topic.is_symlink()


def test_files_of_a_lake_have_one_name(tmp_path: Path) -> None:
    for name in ("lake/a/x", "out/b/y", "out/c"):
        put_canary(tmp_path / name)
    (tmp_path / "lake" / "first").symlink_to(tmp_path / "out")
    (tmp_path / "lake" / "second").symlink_to(tmp_path / "out" / "b")
    (tmp_path / "out" / "again").symlink_to(tmp_path / "out")
    files = LakeFiles(str(tmp_path / "lake"))
    assert files.list_own() == [("a/x", False), ("first/b/y", True), ("first/c", True)]


def test_shipping_removes_only_what_it_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_here(monkeypatch)
    made = StoreBuilder(tmp_path / "broker-a", segment_bytes=128 << 10)
    target = tmp_path / "far" / "broker-a"
    with made.open() as store:
        store.append(Message("orders", b"one"))
        store.flush()
        ship(made.root, tmp_path / "far", tail=True)
        for folder in ("tail", "config"):
            put_canary(target / folder / "notes.txt")
            put_canary(tmp_path / "other" / folder / "notes.txt")
            (target / folder / "linked").symlink_to(tmp_path / "other" / folder)
        left = [
            put_canary(target / "tail" / f"{0:020d}" / f"{0:020d}-{7:020d}"),
            put_canary(target / "config" / "0123456789abcdef-topics.json"),
        ]
        before = listing(tmp_path / "other")
        store.append(Message("orders", b"two"))
        store.flush()
        ship(made.root, tmp_path / "far", tail=True)
    assert not any(path.exists() for path in left)
    assert (target / "tail" / "notes.txt").read_bytes() == CANARY
    assert (target / "config" / "notes.txt").read_bytes() == CANARY
    assert listing(tmp_path / "other") == before


def test_forgetting_old_notes_and_filters(tmp_path: Path) -> None:
    journal = CommitJournal(RealFiles(), tmp_path)
    canaries = [put_canary(journal.directory / "job-notes.txt"), put_canary(tmp_path / "filters" / "my notes.txt")]
    (journal.directory / "job-1.json").symlink_to(put_canary(tmp_path / "outside.txt"))
    put_canary(journal.directory / "job-2.json")
    put_canary(tmp_path / "filters" / "0123abc")
    for path in tmp_path.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (1, 1))
    journal.forget_old("job-", before_ms=1 << 50)
    shared_filters._forget(tmp_path / "filters")
    assert all(path.read_bytes() == CANARY for path in [*canaries, tmp_path / "outside.txt"])
    assert sorted(path.name for path in journal.directory.iterdir()) == ["job-1.json", "job-notes.txt"]
    assert [path.name for path in (tmp_path / "filters").iterdir()] == ["my notes.txt"]
