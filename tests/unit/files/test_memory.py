"""Advice to the kernel does what it says, or says that it did not."""

import mmap
import os
import threading
from pathlib import Path

import pytest

from embermq.files import RealFiles, memory
from embermq.files.pool import TransientPool

PAGE = mmap.PAGESIZE


def resident_kb(path: Path) -> int:
    """How much of a mapped file this process has faulted in."""
    inode = str(path.stat().st_ino)  # A file that got its name late is listed under another one.
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            inside = inode in line.split()
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total


@pytest.fixture
def view(tmp_path: Path) -> memoryview:
    return RealFiles().create(tmp_path / "f", 64 * PAGE, fallocate=True).map(True)


def test_populate_faults_pages_in_or_says_that_it_cannot(view: memoryview, tmp_path: Path) -> None:
    assert resident_kb(tmp_path / "f") == 0
    if memory.populate(view, 0, 16 * PAGE):
        assert resident_kb(tmp_path / "f") >= 16 * PAGE // 1024
    else:
        assert resident_kb(tmp_path / "f") == 0
    assert not any(view)


def test_populate_keeps_what_is_there_and_takes_odd_ranges(view: memoryview) -> None:
    view[5000:5003] = b"abc"
    assert memory.populate(view, 4999, 5004) in (True, False)
    assert memory.populate(view, 63 * PAGE + 1, 10**9) in (True, False)
    assert memory.populate(view, 10, 10)
    assert bytes(view[4999:5004]) == b"\0abc\0"


def test_populate_refuses_a_read_only_map(tmp_path: Path) -> None:
    view = RealFiles().create(tmp_path / "f", PAGE, fallocate=True).map(False)
    assert not memory.populate(view, 0, PAGE)
    assert memory.populate_for_reading(view, 0, PAGE) in (True, False)


def test_a_kernel_without_populate_is_no_error(view: memoryview, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MADV_POPULATE_WRITE", 9999)
    assert not memory.populate(view, 0, PAGE)


def test_touch_faults_pages_in_on_every_kernel(view: memoryview, tmp_path: Path) -> None:
    memory.touch(view, 4 * PAGE, 20 * PAGE)
    assert resident_kb(tmp_path / "f") >= 16 * PAGE // 1024
    assert not any(view)


def test_touch_stores_once_in_each_page() -> None:
    data = bytearray(b"\xff" * 4 * PAGE)
    memory.touch(memoryview(data), PAGE, 3 * PAGE)
    assert [at for at, byte in enumerate(data) if byte == 0] == [PAGE, 2 * PAGE]


def test_drop_lets_memory_go_and_keeps_the_bytes(view: memoryview, tmp_path: Path) -> None:
    view[:4] = b"keep"
    assert memory.drop(view, 0, len(view))
    assert resident_kb(tmp_path / "f") == 0
    assert bytes(view[:4]) == b"keep"


def test_drop_does_not_disturb_a_writer(view: memoryview) -> None:
    stop = threading.Event()

    def drop() -> None:
        while not stop.is_set():
            memory.drop(view, 0, len(view))

    thread = threading.Thread(target=drop)
    thread.start()
    for at in range(0, len(view), 64):
        view[at] = 1 + at % 251
    stop.set()
    thread.join()
    assert all(view[at] == 1 + at % 251 for at in range(0, len(view), 64))


def test_memory_can_be_locked_and_unlocked(view: memoryview) -> None:
    if memory.lock_memory(view):
        assert memory.unlock_memory(view)
    assert memory.advise_willneed(view, 0, len(view))
    assert memory.advise_small_pages(view)


def test_advice_runs_without_the_interpreter_lock(tmp_path: Path) -> None:
    """Another thread makes progress while a large range is populated."""
    view = RealFiles().create(tmp_path / "big", 256 << 20, fallocate=True).map(True)
    if not memory.populate(view, 0, PAGE):
        pytest.skip("this kernel cannot populate")
    ticks, done = 0, threading.Event()

    def populate() -> None:
        memory.populate(view, 0, len(view))
        done.set()

    thread = threading.Thread(target=populate)
    thread.start()
    while not done.is_set():
        ticks += 1
    thread.join()
    os.unlink(tmp_path / "big")
    assert ticks > 1000


def test_the_pool_lends_what_it_has() -> None:
    pool = TransientPool(2, 8192)
    assert pool.available == 2
    first, second = pool.borrow(), pool.borrow()
    assert first is not None
    assert second is not None
    assert pool.borrow() is None
    assert pool.available == 0
    first[:1] = b"x"
    assert second[0] == 0
    pool.give_back(first)
    assert pool.available == 1
    with pytest.raises(AssertionError):
        pool.give_back(memoryview(bytearray(1)))
