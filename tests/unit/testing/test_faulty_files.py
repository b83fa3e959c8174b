"""Faults come when they were asked for, and not before or after."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from embermq.files import RealFiles
from embermq.testing.faulty_files import FaultyFiles, Killed
from embermq.testing.lossy_files import LossyFiles
from embermq.testing.unsynced import random_fates


def outcomes(files: FaultyFiles, path: Path, count: int) -> list[int]:
    """The error number of each of `count` syncs, 0 for a good one."""
    found = []
    file = files.open(path, True)
    for _ in range(count):
        try:
            file.sync()
            found.append(0)
        except OSError as error:
            found.append(error.errno or -1)
    return found


@pytest.fixture
def files(tmp_path: Path) -> FaultyFiles:
    (tmp_path / "f").write_bytes(b"content")
    (tmp_path / "g").write_bytes(b"content")
    return FaultyFiles(RealFiles())


def test_the_nth_operation_fails_once(files: FaultyFiles, tmp_path: Path) -> None:
    files.fail("sync", nth=3)
    assert outcomes(files, tmp_path / "f", 5) == [0, 0, errno.EIO, 0, 0]
    assert files.counts["sync"] == 5


def test_several_in_a_row_or_for_good(files: FaultyFiles, tmp_path: Path) -> None:
    files.fail("sync", nth=2, times=2, error=errno.ENOSPC)
    assert outcomes(files, tmp_path / "f", 4) == [0, errno.ENOSPC, errno.ENOSPC, 0]
    files.fail("sync", times=None, error=errno.EROFS)
    assert outcomes(files, tmp_path / "f", 3) == [errno.EROFS] * 3
    files.heal()
    assert outcomes(files, tmp_path / "f", 2) == [0, 0]


def test_faults_can_be_for_one_file_only(files: FaultyFiles, tmp_path: Path) -> None:
    files.fail("sync", path_contains="/g", nth=2)
    assert outcomes(files, tmp_path / "f", 3) == [0, 0, 0]
    assert outcomes(files, tmp_path / "g", 3) == [0, errno.EIO, 0]


def test_every_kind_can_fail_and_the_error_names_the_file(files: FaultyFiles, tmp_path: Path) -> None:
    file, path = files.open(tmp_path / "f", True), tmp_path / "f"
    attempts: dict[str, Callable[[], object]] = {
        "open": lambda: files.open(path, True),
        "create": lambda: files.create(tmp_path / "new", 1, fallocate=True),
        "read_all": lambda: files.read_all(path),
        "stat": lambda: files.stat(path),
        "list_directory": lambda: files.list_directory(tmp_path),
        "make_directory": lambda: files.make_directory(tmp_path / "d"),
        "rename": lambda: files.rename(path, tmp_path / "h"),
        "remove": lambda: files.remove(path),
        "remove_directory": lambda: files.remove_directory(tmp_path),
        "sync_directory": lambda: files.sync_directory(tmp_path),
        "usage": lambda: files.usage(tmp_path),
        "lock": lambda: files.lock(tmp_path / "lock"),
        "pread": lambda: file.pread(1, 0),
        "pwrite": lambda: file.pwrite(b"x", 0),
        "truncate": lambda: file.truncate(1),
        "reserve": lambda: file.reserve(0, 99),
        "zero": lambda: file.zero(0, 9),
        "map": lambda: file.map(False),
    }
    for kind, attempt in attempts.items():
        files.fail(kind)
        with pytest.raises(OSError) as caught:
            attempt()
        assert caught.value.filename
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["f", "g"]
    assert path.read_bytes() == b"content"


def test_a_kind_that_does_not_exist_is_a_mistake(files: FaultyFiles) -> None:
    with pytest.raises(AssertionError):
        files.fail("fsync")


def test_a_partial_write_leaves_half(files: FaultyFiles, tmp_path: Path) -> None:
    files.fail("pwrite", partial=True, error=errno.ENOSPC)
    with pytest.raises(OSError):
        files.open(tmp_path / "f", True).pwrite(b"XXXX", 0)
    assert (tmp_path / "f").read_bytes() == b"XXntent"


def test_steps_are_the_operations_that_change_the_disk(files: FaultyFiles, tmp_path: Path) -> None:
    files.read_all(tmp_path / "f")
    files.replace_file(tmp_path / "f", b"new")
    kinds = [kind for kind, _ in files.steps]
    assert kinds == ["remove", "create", "pwrite", "sync", "rename", "sync_directory"]
    assert files.counts["read_all"] == 1


def test_replace_file_killed_before_any_step_leaves_old_or_new() -> None:
    path = Path("/store/f")
    seen = set()
    for seed in range(20):
        for step in range(1, 8):
            lossy = LossyFiles()
            lossy.put(path, b"old")
            files = FaultyFiles(lossy)

            def kill() -> None:
                raise Killed

            files.before(step=step, call=kill)
            try:
                files.replace_file(path, b"new content")
            except Killed:
                assert len(files.steps) == step
            else:
                assert step == 7
            found = lossy.crash(random_fates(seed)).read_all(path)
            assert found in (b"old", b"new content")
            assert step < 7 or found == b"new content"
            seen.add(found)
    assert seen == {b"old", b"new content"}


def test_a_failed_sync_on_a_lossy_disk_loses_the_data_for_good() -> None:
    lossy = LossyFiles()
    lossy.put(Path("/f"), bytes(10))
    files = FaultyFiles(lossy)
    file = files.open(Path("/f"), True)
    file.pwrite(b"gone", 0)
    files.fail("sync")
    with pytest.raises(OSError):
        file.sync()
    file.sync()
    assert lossy.crash().read_all(Path("/f")) == bytes(10)


def test_on_a_full_disk_nothing_grows(files: FaultyFiles, tmp_path: Path) -> None:
    file = files.open(tmp_path / "f", True)
    files.fill()
    grows: list[Callable[[], object]] = [
        lambda: files.create(tmp_path / "new", 10, fallocate=True),
        lambda: file.pwrite(b"longer than it was", 0),
        lambda: file.reserve(0, 100),
        lambda: files.replace_file(tmp_path / "g", b"other"),
    ]
    for grow in grows:
        with pytest.raises(OSError, match="No space left"):
            grow()
    assert files.usage(tmp_path).used_ratio == 1.0
    file.pwrite(b"CONTENT", 0)
    assert files.read_all(tmp_path / "f") == b"CONTENT"
    files.fill(False)
    files.replace_file(tmp_path / "g", b"other")
    assert files.usage(tmp_path).free > 0


def test_after_a_kill_nothing_is_done(files: FaultyFiles, tmp_path: Path) -> None:
    file = files.open(tmp_path / "f", True)
    files.kill()
    attempts: list[Callable[[], object]] = [
        lambda: file.pwrite(b"x", 0),
        lambda: file.pread(1, 0),
        file.sync,
        lambda: files.remove(tmp_path / "f"),
        lambda: files.replace_file(tmp_path / "g", b"other"),
        lambda: files.read_all(tmp_path / "f"),
    ]
    for attempt in attempts:
        with pytest.raises(Killed):
            attempt()
    file.close()
    assert ((tmp_path / "f").read_bytes(), (tmp_path / "g").read_bytes()) == (b"content", b"content")
