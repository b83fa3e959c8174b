"""Every file system behaves the same: the real one, the one in memory, and the wrapper."""

import errno
import gc
import os
from pathlib import Path

import numpy as np
import pytest

from embermq.files import DiskUsage, Files, RealFiles
from embermq.files import real_files as files_module
from embermq.testing.faulty_files import FaultyFiles
from embermq.testing.lossy_files import LossyFiles


@pytest.fixture(params=["real", "lossy", "faulty"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, Path]:
    """A file system, and a directory in it."""
    files: Files = RealFiles()
    if request.param == "lossy":
        files = LossyFiles()
    elif request.param == "faulty":
        files = FaultyFiles(files)
    files.make_directory(tmp_path / "a" / "b")
    return files, tmp_path / "a" / "b"


def test_a_created_file_has_its_length_and_reads_as_zero(place: tuple[Files, Path]) -> None:
    files, root = place
    for fallocate in (True, False):
        file = files.create(root / f"f{fallocate}", 10_000, fallocate=fallocate)
        assert file.size == 10_000
        assert file.pread(20_000, 0) == bytes(10_000)
        assert files.stat(file.path).size == 10_000


def test_create_refuses_to_touch_an_existing_file(place: tuple[Files, Path]) -> None:
    files, root = place
    files.create(root / "f", 4, fallocate=False).pwrite(b"keep", 0)
    with pytest.raises(FileExistsError):
        files.create(root / "f", 4, fallocate=True)
    assert files.read_all(root / "f") == b"keep"


def test_reads_stop_at_the_end_and_writes_extend(place: tuple[Files, Path]) -> None:
    files, root = place
    file = files.create(root / "f", 0, fallocate=False)
    file.pwrite(b"hello", 3)
    assert file.size == 8
    assert file.pread(100, 0) == b"\0\0\0hello"
    assert file.pread(4, 8) == b""
    assert file.pread(2, 3) == b"he"


def test_a_map_and_the_file_are_the_same_bytes(place: tuple[Files, Path]) -> None:
    files, root = place
    file = files.create(root / "f", 8192, fallocate=True)
    view = file.map(True)
    view[100:103] = b"abc"
    assert file.pread(3, 100) == b"abc"
    file.pwrite(b"xyz", 5000)
    assert bytes(view[5000:5003]) == b"xyz"
    read_only = files.open(root / "f", False).map(False, 4096)
    assert read_only.readonly
    assert len(read_only) == 4096
    assert bytes(read_only[100:103]) == b"abc"


def test_an_empty_file_has_an_empty_map(place: tuple[Files, Path]) -> None:
    files, root = place
    assert len(files.create(root / "f", 0, fallocate=True).map(True)) == 0


def test_a_view_outlives_close_and_removal(place: tuple[Files, Path]) -> None:
    files, root = place
    file = files.create(root / "f", 4096, fallocate=True)
    view = file.map(True)
    view[:4] = b"live"
    array = np.frombuffer(view, np.uint8)
    file.close()
    files.remove(root / "f")
    del view, file
    gc.collect()
    assert not files.exists(root / "f")
    assert bytes(array[:4]) == b"live"


def test_a_file_opened_for_reading_cannot_be_written(place: tuple[Files, Path]) -> None:
    files, root = place
    files.create(root / "f", 4096, fallocate=True)
    file = files.open(root / "f", False)
    assert not file.writable
    with pytest.raises(OSError):
        file.pwrite(b"x", 0)
    with pytest.raises(OSError):
        file.map(True)


def test_zero_rewrites_only_what_is_not_zero(place: tuple[Files, Path]) -> None:
    files, root = place
    file = files.create(root / "f", 8 << 20, fallocate=False)
    file.pwrite(b"\1" * 10, 100)
    file.pwrite(b"\2", (6 << 20) + 17)
    rewritten = file.zero(105, file.size)
    assert 0 < rewritten <= 2 << 20
    assert file.pread(12, 99) == b"\0" + b"\1" * 5 + bytes(6)
    assert not any(file.pread(file.size, 105))
    assert file.size == 8 << 20
    assert file.zero(105, file.size) == 0


def test_truncate_and_reserve(place: tuple[Files, Path]) -> None:
    files, root = place
    file = files.create(root / "f", 4096, fallocate=True)
    file.pwrite(b"ab", 0)
    file.truncate(1)
    assert file.size == 1
    file.reserve(1, 5000)
    assert file.size == 5000
    assert file.pread(5000, 0) == b"a" + bytes(4999)


def test_replace_file_replaces_even_after_a_crash_left_its_temporary(place: tuple[Files, Path]) -> None:
    files, root = place
    files.create(root / "f.tmp", 99, fallocate=False)
    files.replace_file(root / "f", b"one")
    files.replace_file(root / "f", b"second")
    assert files.read_all(root / "f") == b"second"
    assert [entry.name for entry in files.list_directory(root)] == ["f"]


def test_directories_list_by_name(place: tuple[Files, Path]) -> None:
    files, root = place
    files.create(root / "b", 5, fallocate=False)
    files.make_directory(root / "a" / "deep")
    files.make_directory(root / "a" / "deep")
    entries = files.list_directory(root)
    assert [(entry.name, entry.is_file) for entry in entries] == [("a", False), ("b", True)]
    assert entries[1].size == 5
    files.remove_directory(root / "a" / "deep")
    files.rename(root / "b", root / "a" / "c")
    assert [entry.name for entry in files.list_directory(root / "a")] == ["c"]
    with pytest.raises(OSError):
        files.remove_directory(root / "a")
    files.sync_directory(root)


def test_what_is_missing_is_said_to_be_missing(place: tuple[Files, Path]) -> None:
    files, root = place
    gone = root / "gone"
    assert not files.exists(gone)
    for attempt in (files.stat, files.read_all, files.remove, files.list_directory, files.usage):
        with pytest.raises(FileNotFoundError):
            attempt(gone)
    with pytest.raises(FileNotFoundError):
        files.open(gone, True)
    with pytest.raises(FileNotFoundError):
        files.create(gone / "f", 1, fallocate=True)


def test_mtime_can_be_set(place: tuple[Files, Path]) -> None:
    files, root = place
    files.create(root / "f", 1, fallocate=False)
    files.set_mtime(root / "f", 1_000_000_000_000)
    assert files.stat(root / "f").mtime_ns == 1_000_000_000_000


def test_used_ratio_rounds_up_to_whole_percents() -> None:
    assert DiskUsage(1000, 250, 250).used_ratio == 0.75
    assert DiskUsage(1000, 249, 249).used_ratio == 0.76
    assert DiskUsage(1000, 500, 400).used_ratio == 0.56  # 500 of 900 that we could ever use
    assert DiskUsage(1000, 1000, 1000).used_ratio == 0.0
    assert DiskUsage(0, 0, 0).used_ratio == 1.0


def test_usage_is_that_of_the_file_system(tmp_path: Path) -> None:
    usage = RealFiles().usage(tmp_path)
    assert 0 < usage.available <= usage.free <= usage.total


def test_fallocate_reserves_blocks_and_sparse_does_not(tmp_path: Path) -> None:
    files = RealFiles()
    files.create(tmp_path / "reserved", 1 << 20, fallocate=True)
    files.create(tmp_path / "sparse", 1 << 20, fallocate=False)
    assert os.stat(tmp_path / "reserved").st_blocks * 512 >= 1 << 20
    assert os.stat(tmp_path / "sparse").st_blocks == 0


@pytest.mark.parametrize("answer", [errno.EOPNOTSUPP, errno.EINVAL])
def test_without_fallocate_zeros_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int) -> None:
    def refuse(fd: int, start: int, length: int) -> None:
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr(files_module, "_fallocate", refuse)
    file = RealFiles().create(tmp_path / "f", (1 << 20) + 5, fallocate=True)
    assert file.size == (1 << 20) + 5
    assert os.stat(file.path).st_blocks * 512 >= 1 << 20
    file.pwrite(b"data", 0)
    file.reserve(0, (1 << 20) + 10)
    assert file.pread(5, 0) == b"data\0"
    assert file.size == (1 << 20) + 10


def test_a_full_disk_is_an_error_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, start: int, length: int) -> None:
        os.ftruncate(fd, length // 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files_module, "_fallocate", full)
    with pytest.raises(OSError) as caught:
        RealFiles().create(tmp_path / "f", 4096, fallocate=True)
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_a_file_larger_than_the_disk_is_refused_before_anything_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real attempt would fill the disk for a moment, for everybody."""
    asked: list[int] = []
    monkeypatch.setattr(files_module, "_fallocate", lambda fd, start, length: asked.append(length))
    files = RealFiles()
    with pytest.raises(OSError) as caught:
        files.create(tmp_path / "f", files.usage(tmp_path).total + 1, fallocate=True)
    assert caught.value.errno == errno.ENOSPC
    assert asked == []
    assert list(tmp_path.iterdir()) == []


def test_descriptors_go_with_their_objects(tmp_path: Path) -> None:
    files = RealFiles()
    gc.collect()  # Others leave descriptors to the collector as well.
    before = len(os.listdir("/proc/self/fd"))
    for number in range(50):
        file = files.create(tmp_path / str(number), 4096, fallocate=False)
        file.map(True)[0] = 1
        del file
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_replacing_a_file_that_is_a_link_leaves_what_it_leads_to(tmp_path: Path) -> None:
    """As RocketMQ does it with its config files; a link to their directory stays."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "old.json").write_bytes(b"old")
    (tmp_path / "config").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "x.json").symlink_to(tmp_path / "disk" / "old.json")
    RealFiles().replace_file(tmp_path / "config" / "x.json", b"new")
    assert (tmp_path / "disk" / "old.json").read_bytes() == b"old"
    assert (tmp_path / "disk" / "x.json").read_bytes() == b"new"
    assert not (tmp_path / "disk" / "x.json").is_symlink()
    assert (tmp_path / "config").is_symlink()
