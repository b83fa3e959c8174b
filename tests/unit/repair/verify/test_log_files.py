"""Verify on names and lengths of log files: no advice to cut off what may hold records."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.repair.verify.findings import Flaw
from embermq.repair.verify.store_check import VerifyReport, verify
from tests.support import golden

SMALL = StoreSettings(
    segment_bytes=8192,
    queue_file_bytes=2000,
    index_slots_max=100,
    index_entries_max=400,
    disk_full_percent=100,
    disk_clean_percent=100,
)


def log_flaws(report: VerifyReport) -> list[Flaw]:
    return [flaw for flaw in report.flaws if flaw.family == "commitlog" and "record" not in flaw.fault]


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def assert_no_cutting(report: VerifyReport) -> None:
    assert not [flaw for flaw in report.flaws if "truncate" in flaw.remedy]


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """Five log files, and no proof of ours that tells their size."""
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        store.append_many([Message("t", bytes([number]) * 500, keys=[f"k{number}"]) for number in range(60)])
    (tmp_path / "store" / "embermq.inventory.json").unlink()
    return tmp_path / "store"


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("size", [25641, 24576, 150, 5])
def test_the_only_file_was_cut(tmp_path: Path, size: int, fast: bool) -> None:
    root = golden.restore("compressed", tmp_path)
    (file,) = log_files(root)
    os.truncate(file, size)
    report = verify(root, fast=fast)
    assert_no_cutting(report)
    (flaw,) = log_flaws(report)
    assert flaw.is_fault
    assert flaw.fault.startswith(f"{size} bytes: it was cut")
    assert "salvage" in flaw.remedy


def test_the_only_file_was_cut_behind_its_records(tmp_path: Path) -> None:
    root = golden.restore("compressed", tmp_path)
    (file,) = log_files(root)
    os.truncate(file, 30001)
    report = verify(root)
    assert_no_cutting(report)
    (flaw,) = log_flaws(report)
    assert (flaw.is_fault, flaw.fault.split(":")[0]) == (False, "30001 bytes")


@pytest.mark.parametrize("which", range(5))
@pytest.mark.parametrize("size", [0, 150, 4096, 8191])
def test_one_of_several_was_cut(ours: Path, which: int, size: int) -> None:
    os.truncate(log_files(ours)[which], size)
    report = verify(ours)
    assert_no_cutting(report)
    said = {flaw.fault for flaw in log_flaws(report) if flaw.is_fault}
    assert said & {"empty file", f"{size} bytes instead of 8192"}


def test_a_file_that_grew_by_zeros_may_be_cut(ours: Path) -> None:
    for file in (log_files(ours)[1], log_files(ours)[-1]):
        os.truncate(file, 10_000)
        (flaw,) = log_flaws(verify(ours))
        assert flaw.fault == "10000 bytes instead of 8192"
        assert f"`truncate -s 8192 {file}`" in flaw.remedy
        os.truncate(file, 8192)
    assert verify(ours).is_sound


def test_a_file_with_records_behind_its_end_may_not_be_cut(ours: Path) -> None:
    first, second = log_files(ours)[:2]
    with first.open("ab") as file:
        file.write(second.read_bytes())
    report = verify(ours)
    assert_no_cutting(report)
    (flaw,) = log_flaws(report)
    assert flaw.is_fault
    assert "keep a copy" in flaw.remedy


def test_no_size_that_few_files_have_is_one_to_cut_to(ours: Path) -> None:
    for file in log_files(ours)[:4]:
        os.truncate(file, 10_000)
    report = verify(ours)
    assert_no_cutting(report)
    assert [flaw.fault for flaw in log_flaws(report)] == ["10000 bytes instead of 8192"] * 4


def test_a_log_that_lies_elsewhere(ours: Path, tmp_path: Path) -> None:
    shutil.move(ours / "commitlog", tmp_path / "elsewhere")
    (ours / "broker.conf").write_text(f"storePathCommitLog={tmp_path / 'elsewhere'}\n")
    assert verify(ours).is_sound
    file = sorted((tmp_path / "elsewhere").iterdir())[1]
    os.truncate(file, 100)
    (flaw,) = log_flaws(verify(ours))
    assert (flaw.file, flaw.fault) == (str(file), "100 bytes instead of 8192")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["directory", "pipe"])
def test_what_has_the_name_of_a_log_file_and_is_none(ours: Path, make: Callable[[Path], None]) -> None:
    path = log_files(ours)[2]
    path.unlink()
    make(path)
    found = [flaw for flaw in verify(ours).flaws if flaw.file == f"commitlog/{path.name}" and "name" in flaw.fault]
    assert [flaw.is_fault for flaw in found] == [True]
    assert "is no file" in found[0].fault
    assert "move it to another directory" in found[0].remedy
