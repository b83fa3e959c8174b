"""`embermq settings` over the real settings."""

import json
from pathlib import Path
from typing import Any

import pytest

from embermq.cli.app import run
from embermq.settings.store_settings import PROPERTIES

Captured = pytest.CaptureFixture[str]


def answer(capsys: Captured, *arguments: str, code: int = 0) -> Any:
    assert run(["settings", *arguments, "--output", "json"]) == code
    return json.loads(capsys.readouterr().out)


def test_list_shows_every_setting_once(capsys: Captured) -> None:
    listed = answer(capsys, "list")
    names = [row["name"] for rows in listed.values() for row in rows]
    assert names == [about.name for about in PROPERTIES.values()]


def test_list_as_text_is_not_cut_when_nobody_looks(capsys: Captured) -> None:
    assert run(["settings", "list"]) == 0
    shown = capsys.readouterr().out
    assert "mappedFileSizeCommitLog" in shown
    assert "1073741824" in shown
    assert "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h" in shown
    assert "…" not in shown.replace("2, 3 …", "")


def test_list_one_section(capsys: Captured) -> None:
    assert list(answer(capsys, "list", "--section", "flush")) == ["flushing"]
    assert run(["settings", "list", "--section", "nonsense"]) == 2


@pytest.mark.parametrize("name", ["flushDiskType", "flush", "EMBERMQ_FLUSH_DISK_TYPE"])
def test_explain_by_any_name(capsys: Captured, name: str) -> None:
    setting = answer(capsys, "explain", name)["setting"]
    assert setting["name"] == "flushDiskType"
    assert setting["default"] == "ASYNC_FLUSH"
    assert setting["values"] == "ASYNC_FLUSH, SYNC_FLUSH"
    assert setting["has_effect"] is True


def test_explain_says_unit_range_and_idleness(capsys: Captured) -> None:
    setting = answer(capsys, "explain", "haListenPort")["setting"]
    assert setting["range"] == "0 to 65,535"
    assert setting["has_effect"] is False
    assert "broker" in setting["why_not"]
    assert answer(capsys, "explain", "fileReservedTime")["setting"]["unit"] == "hours"


def test_explain_an_unknown_name_offers_the_nearest(capsys: Captured) -> None:
    assert run(["settings", "explain", "flushDiskTipe"]) == 1
    assert "did you mean flushDiskType?" in capsys.readouterr().err


def test_check_shows_what_differs(capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("flushDiskType=SYNC_FLUSH\nfileReservedTime=72\n")
    assert answer(capsys, "check", str(file)) == {
        "changed": [{"name": "flushDiskType", "value": "SYNC_FLUSH", "default": "ASYNC_FLUSH", "unit": ""}],
        "warnings": [],
    }


def test_check_warns_of_a_slip_and_fails_only_when_strict(capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("flushDiskTyp=SYNC_FLUSH\n")
    [warning] = answer(capsys, "check", str(file))["warnings"]
    assert "did you mean flushDiskType?" in warning["text"]
    [warning] = answer(capsys, "check", str(file), "--strict", code=1)["warnings"]
    assert "flushDiskTyp" in warning["text"]


def test_check_fails_on_a_bad_value_with_its_place(capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("# mine\nfileReservedTime=three\n")
    assert run(["settings", "check", str(file)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{file}:2:" in captured.err
    assert run(["settings", "check", str(tmp_path / "missing.conf")]) == 1
    assert "missing.conf" in capsys.readouterr().err
