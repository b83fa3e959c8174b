"""What a crash may and may not do to the file system in memory."""

import errno
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.files.locking import LockHeld
from embermq.testing.lossy_files import LossyFiles
from embermq.testing.unsynced import (
    PAGE_BYTES,
    Choose,
    Fate,
    MemoryFile,
    Unsynced,
    UnsyncedChange,
    keep_everything,
    lose_everything,
    random_fates,
)

ROOT = Path("/store")
F = ROOT / "f"


def fresh(content: bytes | None = None) -> LossyFiles:
    """A file system with a durable directory, and perhaps a durable file in it."""
    files = LossyFiles()
    files.make_directory(ROOT)
    if content is not None:
        files.put(F, content)
    return files


def only(kind: str, fate: Fate) -> Choose:
    """This fate for changes of this kind, everything else is kept."""
    return lambda change: fate if change.kind == kind else Fate.KEPT


def test_synced_bytes_and_names_survive_and_nothing_is_undecided() -> None:
    files = fresh(b"x" * 10_000)
    assert files.unsynced() == []
    assert files.crash(lose_everything).read_all(F) == b"x" * 10_000


def test_unsynced_pages_are_lost_or_kept_one_by_one() -> None:
    files = fresh(bytes(3 * PAGE_BYTES))
    files.open(F, True).pwrite(b"n" * 3 * PAGE_BYTES, 0)
    assert [change.at for change in files.unsynced()] == [0, PAGE_BYTES, 2 * PAGE_BYTES]

    def lose_the_middle(change: UnsyncedChange) -> Fate:
        return Fate.LOST if change.at == PAGE_BYTES else Fate.KEPT

    found = files.crash(lose_the_middle).read_all(F)
    assert found == b"n" * PAGE_BYTES + bytes(PAGE_BYTES) + b"n" * PAGE_BYTES


def test_a_torn_page_is_partly_old_and_partly_new() -> None:
    files = fresh(b"o" * PAGE_BYTES)
    files.open(F, True).pwrite(b"n" * 100, 1000)
    head = files.crash(only("page", Fate.TORN_HEAD)).read_all(F)
    tail = files.crash(only("page", Fate.TORN_TAIL)).read_all(F)
    assert head[1000:1100] == b"n" * 50 + b"o" * 50
    assert tail[1000:1100] == b"o" * 50 + b"n" * 50
    assert len(head) == len(tail) == PAGE_BYTES


def test_stores_through_a_map_are_unsynced_until_sync() -> None:
    files = fresh(bytes(PAGE_BYTES))
    file = files.open(F, True)
    view = file.map(True)
    view[:3] = b"map"
    assert files.crash().read_all(F) == bytes(PAGE_BYTES)
    file.sync()
    view[3:6] = b"two"
    assert files.crash().read_all(F)[:6] == b"map\0\0\0"


def test_a_length_that_was_not_synced_may_be_the_old_one() -> None:
    files = fresh(b"abc")
    files.open(F, True).pwrite(b"def", 3)
    assert files.crash(only("length", Fate.LOST)).read_all(F) == b"abc"
    assert files.crash(only("page", Fate.LOST)).read_all(F) == b"abc\0\0\0"
    assert files.crash(keep_everything).read_all(F) == b"abcdef"
    files.open(F, True).truncate(1)
    assert files.crash(lose_everything).read_all(F) == b"abc"
    assert files.crash(keep_everything).read_all(F) == b"a"


def test_a_created_file_may_vanish_even_if_its_bytes_were_synced() -> None:
    files = fresh()
    file = files.create(F, 0, fallocate=False)
    file.pwrite(b"data", 0)
    file.sync()
    assert not files.crash(lose_everything).exists(F)
    files.sync_directory(ROOT)
    assert files.crash(lose_everything).read_all(F) == b"data"


def test_a_name_may_survive_without_its_bytes() -> None:
    files = fresh()
    files.create(F, PAGE_BYTES, fallocate=True).pwrite(b"data", 0)
    files.sync_directory(ROOT)
    assert files.crash(lose_everything).read_all(F) == b""


def test_a_removed_file_may_come_back() -> None:
    files = fresh(b"data")
    files.remove(F)
    assert not files.exists(F)
    assert files.crash(lose_everything).read_all(F) == b"data"
    assert not files.crash(keep_everything).exists(F)
    files.sync_directory(ROOT)
    assert not files.crash(lose_everything).exists(F)


def test_entries_of_one_directory_meet_their_fates_one_by_one() -> None:
    files = fresh()
    for name in "abc":
        files.create(ROOT / name, 0, fallocate=False)

    def lose_b(change: UnsyncedChange) -> Fate:
        return Fate.LOST if change.path.name == "b" else Fate.KEPT

    assert [entry.name for entry in files.crash(lose_b).list_directory(ROOT)] == ["a", "c"]


def test_a_directory_that_was_not_synced_takes_its_content_along() -> None:
    files = LossyFiles()
    files.make_one_directory(ROOT)
    files.put(F, b"data")
    assert not files.crash(lose_everything).exists(ROOT)
    files.sync_directory(Path("/"))
    assert files.crash(lose_everything).read_all(F) == b"data"


def test_a_rename_happens_as_a_whole_or_not_at_all() -> None:
    files = fresh(b"old")
    files.put(ROOT / "t", b"new")
    files.rename(ROOT / "t", F)
    before, after = files.crash(lose_everything), files.crash(keep_everything)
    assert (before.read_all(F), before.read_all(ROOT / "t")) == (b"old", b"new")
    assert after.read_all(F) == b"new"
    assert not after.exists(ROOT / "t")


def test_a_rename_between_directories_is_whole_too_and_made_durable_by_either() -> None:
    files = fresh(b"data")
    files.make_directory(ROOT / "d")
    files.rename(F, ROOT / "d" / "g")
    assert len(files.unsynced()) == 1
    assert files.crash(lose_everything).exists(F)
    files.sync_directory(ROOT / "d")
    after = files.crash(lose_everything)
    assert not after.exists(F)
    assert after.read_all(ROOT / "d" / "g") == b"data"


@given(seed=st.integers(0, 2**32))
def test_replace_file_leaves_the_old_or_the_new_content_at_every_moment(seed: int) -> None:
    files = fresh()
    files.replace_file(F, b"old" * 5000)
    files.replace_file(F, b"new" * 6000)
    assert files.crash(random_fates(seed)).read_all(F) == b"new" * 6000


@given(
    writes=st.lists(st.tuples(st.integers(0, 3 * PAGE_BYTES), st.binary(min_size=1, max_size=6000))),
    synced=st.integers(0, 10),
    seed=st.integers(0, 2**32),
)
def test_every_byte_after_a_crash_is_the_synced_or_the_last_one(
    writes: list[tuple[int, bytes]], synced: int, seed: int
) -> None:
    files = fresh(b"")
    file = files.open(F, True)
    for at, data in writes[:synced]:
        file.pwrite(data, at)
    file.sync()
    durable = files.read_all(F)
    for at, data in writes[synced:]:
        file.pwrite(data, at)
    latest = files.read_all(F)
    found = files.crash(random_fates(seed)).read_all(F)
    assert len(found) in (len(durable), len(latest))
    for at, value in enumerate(found):
        old = durable[at] if at < len(durable) else 0
        assert value in (old, latest[at])
        if old == latest[at]:
            assert value == old


def test_after_a_failed_sync_the_dirty_pages_never_become_durable() -> None:
    files = fresh(bytes(PAGE_BYTES))
    file = files.open(F, True)
    file.pwrite(b"doomed", 0)
    getattr(file, "fail_sync")()  # noqa: B009 - not part of OpenFile
    file.sync()
    assert file.pread(6, 0) == b"doomed"
    assert files.crash(keep_everything).read_all(F) == bytes(PAGE_BYTES)
    file.pwrite(b"again!", 0)
    file.sync()
    assert files.crash().read_all(F)[:6] == b"again!"


def test_a_crash_leaves_the_original_as_it_was() -> None:
    files = fresh(b"abc")
    files.open(F, True).pwrite(b"xyz", 0)
    survivor = files.crash()
    survivor.open(F, True).pwrite(b"---", 0)
    assert files.read_all(F) == b"xyz"
    assert survivor.read_all(F) == b"---"


def test_a_crash_leaves_what_all_files_held_at_one_moment() -> None:
    """A file that vouches for another must not be newer than it: a store writes entries, and then says so."""
    files = fresh()
    entries, page = ROOT / "entries", ROOT / "page"
    for path in (entries, page):
        files.put(path, b"1")

    def write_on(change: UnsyncedChange) -> Fate:
        files.open(entries, True).pwrite(b"3", 0)
        files.open(page, True).pwrite(b"3", 0)
        return Fate.KEPT

    files.open(entries, True).pwrite(b"2", 0)
    left = files.crash(write_on)
    assert (left.read_all(entries), left.read_all(page)) == (b"2", b"1")


def test_a_crash_waits_for_a_store_through_a_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that comes while files are looked at: they are looked at again."""
    files = fresh(bytes(PAGE_BYTES))
    view = files.open(F, True).map(True)
    looks = []

    def look(self: MemoryFile) -> Unsynced:
        unsynced = Unsynced(self.size, self.dirty_pages())
        looks.append(unsynced)
        if len(looks) <= 2:
            view[0] = len(looks)
        return unsynced

    monkeypatch.setattr(MemoryFile, "unsynced", look)
    assert files.crash(keep_everything).read_all(F)[0] == 2
    assert len(looks) == 4


def test_a_crash_refuses_files_that_change_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    files = fresh(b"x")
    sizes = count()
    monkeypatch.setattr(MemoryFile, "unsynced", lambda self: Unsynced(next(sizes), {}))
    with pytest.raises(RuntimeError, match="stop the writers"):
        files.crash()


def test_a_crash_can_be_written_to_a_real_directory(tmp_path: Path) -> None:
    files = fresh(b"abc")
    files.put(ROOT / "d" / "e" / "g", b"deep")
    files.put(Path("/elsewhere"), b"not this")
    files.make_directory(ROOT / "empty")
    files.crash_to(tmp_path / "copy", ROOT)
    copy = tmp_path / "copy"
    assert (copy / "f").read_bytes() == b"abc"
    assert (copy / "d" / "e" / "g").read_bytes() == b"deep"
    assert (copy / "empty").is_dir()
    assert sorted(path.name for path in copy.iterdir()) == ["d", "empty", "f"]


def test_a_full_disk_refuses_to_reserve() -> None:
    files = LossyFiles(capacity_bytes=64 * 1024)
    files.make_directory(ROOT)
    file = files.create(ROOT / "a", 40 * 1024, fallocate=True)
    assert files.usage(ROOT).used_ratio == 0.63
    with pytest.raises(OSError) as caught:
        files.create(ROOT / "b", 40 * 1024, fallocate=True)
    assert caught.value.errno == errno.ENOSPC
    assert not files.exists(ROOT / "b")
    with pytest.raises(OSError):
        file.reserve(0, 80 * 1024)
    files.remove(ROOT / "a")
    files.create(ROOT / "b", 40 * 1024, fallocate=True)


def test_the_lock_is_exclusive_until_released_and_gone_after_a_crash() -> None:
    files = fresh()
    lock = files.lock(ROOT / "lock")
    with pytest.raises(LockHeld):
        files.lock(ROOT / "lock")
    files.crash(keep_everything).lock(ROOT / "lock")
    lock.release()
    files.lock(ROOT / "lock")
    assert files.read_all(ROOT / "lock") == b"lock"


def test_operations_are_counted() -> None:
    files = fresh()
    file = files.create(F, 0, fallocate=False)
    file.pwrite(b"a", 0)
    file.sync()
    file.sync()
    assert (files.counts["create"], files.counts["pwrite"], files.counts["sync"]) == (2, 1, 2)
