"""A store whose log lies elsewhere, seen by tools that are handed its directory."""

import json
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.cli.app import run
from embermq.files import RealFiles
from embermq.inspect.snapshot import Survey
from embermq.repair.verify.store_check import verify
from embermq.store.layout.log_location import log_places, places_said


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Its log takes turns between two directories outside."""
    root = tmp_path / "store"
    settings = StoreSettings(
        segment_bytes=1 << 16,
        queue_file_bytes=2000,
        index_slots_max=20,
        index_entries_max=200,
        commit_log_paths=(tmp_path / "a", tmp_path / "b"),
        disk_full_percent=100,
        disk_clean_percent=100,
    )
    with MessageStore.open(root, settings) as opened:
        for n in range(200):
            opened.append(Message("orders", b"%d" % n + bytes(1000), keys=[f"k{n}"]))
    (root / "broker.conf").write_text(
        f"storePathRootDir={root}\nstorePathCommitLog={tmp_path / 'a'}, {tmp_path / 'b'}\n", encoding="utf-8"
    )
    return root


def test_the_directories_are_those_broker_conf_names(store: Path, tmp_path: Path) -> None:
    assert log_places(RealFiles(), store) == (tmp_path / "a", tmp_path / "b")
    assert log_places(RealFiles(), tmp_path) == (tmp_path / "commitlog",)


@pytest.mark.parametrize("text", [b"", b"storePathCommitLog=\n", b"storePathCommitLog=\\u12\n", b"\xff\xfe="])
def test_a_file_that_says_nothing(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "broker.conf").write_bytes(text)
    assert places_said(RealFiles(), tmp_path) == ((), ())


def test_survey_and_verify_see_all_of_it(store: Path) -> None:
    survey = Survey.open(store)
    assert len(survey.segments) > 2
    assert len({segment.path.parent for segment in survey.segments}) == 2
    assert [segment.start for segment in survey.segments] == sorted(segment.start for segment in survey.segments)
    assert survey.queues()["orders", 0].max_offset == 200
    report = verify(store)
    assert report.is_sound, report.flaws
    assert report.records == 200


def test_commands_read_and_write_there(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["store", "append", str(store), "orders", "one more"]) == 0
    assert not (store / "commitlog").exists()
    capsys.readouterr()
    assert run(["store", "info", str(store), "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["topics"][0]["messages"] == 201
    assert document["start"]["reason"] == "closed cleanly"
    assert run(["store", "dump", str(store)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 201
