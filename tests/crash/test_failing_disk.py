"""The n-th operation on the disk fails: nothing is acknowledged that is not safe, and a later start has it all.

Every kind of operation that changes the disk fails in turn, once or for good, while a store is opened, written
and closed under SYNC_FLUSH. Whatever was acknowledged must be there after the machine lost power, after the
process was killed, and after the store was simply opened again.
"""

import errno
from collections import Counter
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.errors import AppendRefused, DiskFull, EmberError, FlushFailed, SegmentUnavailable, StoreError
from embermq.settings import FlushDisk, StoreSettings
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from embermq.testing.faulty_files import STEPS, FaultyFiles
from embermq.testing.lossy_files import LossyFiles
from embermq.testing.unsynced import keep_everything
from tests.crash import numbered

pytestmark = pytest.mark.usefixtures("short_tail")

ROOT = Path("/store")
ERRORS = (errno.EIO, errno.ENOSPC, errno.EROFS)
KINDS = sorted(STEPS - {"remove_directory", "truncate", "reserve", "zero"})  # Those never happen in this script.
BEFORE, AFTER = 20, 44


def builder(flush: FlushDisk = FlushDisk.SYNC, clock: ManualClock | None = None) -> StoreBuilder:
    return StoreBuilder(ROOT, clock=clock or ManualClock(), flush=flush, **numbered.TINY)


def closed_store() -> LossyFiles:
    """A disk with a closed store of BEFORE messages or a few more."""
    disk = LossyFiles()
    with builder().on(disk).open() as store:
        numbered.append_until(store, 0, BEFORE)
    return disk


class Attempt:
    """A user who opens a store on a bad disk, appends whatever happens, and closes it."""

    def __init__(self, files: FaultyFiles, flush: FlushDisk = FlushDisk.SYNC) -> None:
        self._files, self._flush = files, flush
        self.acknowledged: set[int] = set()
        self.flush_failed = False

    def run(self) -> None:
        try:
            store = builder(self._flush).on(self._files).open()
        except EmberError:
            return
        numbers = numbered.numbers_in(store)
        self.acknowledged.update(numbers)
        n = len(numbers)
        while n < AFTER:
            self._append(store, n)
            n += numbered.group_of(n)
        try:
            store.close()
        except EmberError:
            pass

    def _append(self, store: MessageStore, n: int) -> None:
        try:
            count = len(numbered.append(store, n))
        except FlushFailed:
            self.flush_failed = True
        except AppendRefused:
            assert not self.flush_failed, "after a failed sync the answer is FlushFailed"
        else:
            assert not self.flush_failed, "acknowledged after a failed sync"
            self.acknowledged.update(range(n, n + count))


def counts_of_one_run(flush: FlushDisk = FlushDisk.SYNC) -> Counter[str]:
    files = FaultyFiles(closed_store())
    Attempt(files, flush).run()
    return files.counts


def fail(kind: str, nth: int, times: int | None, error: int, flush: FlushDisk = FlushDisk.SYNC) -> None:
    """One attempt with one fault, and what must be true of each way to go on.

    Under ASYNC_FLUSH a power cut may take what was acknowledged, and so may a sync that failed: what is left is
    whole and in order, and the next append reports it. Anything else that fails takes nothing.
    """
    disk = closed_store()
    files = FaultyFiles(disk)
    files.fail(kind, nth=nth, times=times, error=error)
    attempt = Attempt(files, flush)
    attempt.run()
    assert not disk.locks
    for how, left in {"lost power": disk.crash(), "killed": disk.crash(keep_everything), "as it is": disk}.items():
        with builder().on(left).open() as store:
            missing = attempt.acknowledged - set(numbered.check(store))
            if flush is FlushDisk.ASYNC and (how == "lost power" or kind == "sync"):
                continue
            assert not missing, f"{kind} {nth}, {how}: {sorted(missing)} lost; {store.recovery}"


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_acknowledged_is_lost_when_an_operation_fails(kind: str) -> None:
    count = counts_of_one_run()[kind]
    assert count
    for nth in range(1, count + 1, max(1, count // 8)):
        fail(kind, nth, None if nth % 2 else 1, ERRORS[nth % len(ERRORS)])


@pytest.mark.parametrize("kind", ["sync", "create", "rename"])
def test_nothing_is_lost_under_async_flush_when_an_operation_fails(kind: str) -> None:
    count = counts_of_one_run(FlushDisk.ASYNC)[kind]
    assert count
    for nth in range(1, count + 1, max(1, count // 5)):
        fail(kind, nth, None if nth % 2 else 1, ERRORS[nth % len(ERRORS)], FlushDisk.ASYNC)


@pytest.mark.long
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_single_operation_fails_under_async_flush(kind: str, error: int) -> None:
    for nth in range(1, counts_of_one_run(FlushDisk.ASYNC)[kind] + 2):
        fail(kind, nth, 1, error, FlushDisk.ASYNC)
        fail(kind, nth, None, error, FlushDisk.ASYNC)


@pytest.mark.long
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_single_operation_fails(kind: str, error: int) -> None:
    for nth in range(1, counts_of_one_run()[kind] + 2):
        fail(kind, nth, 1, error)
        fail(kind, nth, None, error)


def test_a_failed_sync_of_the_log_refuses_appends_until_the_store_is_opened_again() -> None:
    """And nothing tries the sync again: it would succeed without having saved anything."""
    files = FaultyFiles(LossyFiles())
    store = builder().on(files).open()
    end = numbered.append_until(store, 0, 2)
    files.fail("sync", path_contains="commitlog", times=1)
    with pytest.raises(FlushFailed):
        numbered.append(store, end)
    syncs = sum(1 for kind, path in files.steps if kind == "sync" and path.parent.name == "commitlog")
    for _ in range(3):
        with pytest.raises(FlushFailed) as refused:
            store.append(Message("Other", b"x"))
        assert "reopened" in str(refused.value)
    with pytest.raises(FlushFailed):
        store.append_many([Message("Other", b"x")])
    with pytest.raises(FlushFailed):
        store.flush()
    assert numbered.fetch_all(store, "Topic0", 0) == [(0, 0)]  # Reading goes on.
    store.close()
    assert syncs == sum(1 for kind, path in files.steps if kind == "sync" and path.parent.name == "commitlog")
    with builder().on(files).open() as again:
        assert not again.recovery.clean
        found = numbered.check(again)
        assert found[:end] == list(range(end))
        numbered.append_until(again, len(found), len(found) + 1)


def test_async_flush_reports_a_failed_sync_to_the_next_append() -> None:
    files = FaultyFiles(LossyFiles())
    clock = ManualClock()
    store = builder(FlushDisk.ASYNC, clock).on(files).open()
    numbered.append(store, 0)
    files.fail("sync", path_contains="commitlog")
    with pytest.raises(FlushFailed):
        store.flush()
    with pytest.raises(FlushFailed):
        numbered.append(store, 1)
    assert store.flushed_offset == 0
    store.close()
    with builder().on(files).open() as again:
        assert not again.recovery.clean
        numbered.check(again, [0])


def test_when_no_log_file_can_be_made_appends_are_refused_and_work_again_later() -> None:
    files = FaultyFiles(LossyFiles())
    with builder().on(files).open() as store:
        files.fail("create", path_contains="commitlog", times=None, error=errno.ENOSPC)
        with pytest.raises(SegmentUnavailable) as refused:
            numbered.append(store, 0)
        assert "No space left" in str(refused.value)
        files.heal()
        end = numbered.append_until(store, 0, 40)
        numbered.check(store, range(end))


@pytest.mark.parametrize("removable", [True, False])
def test_appends_resume_after_a_new_log_file_could_not_be_mapped(removable: bool) -> None:
    """Too little memory, or too many maps, for a moment. What was half made is removed or taken up."""
    files = FaultyFiles(LossyFiles())
    acknowledged: list[int] = []
    with builder().on(files).open() as store:
        end = numbered.append_until(store, 0, 16, acknowledged.append)
        files.fail("map", path_contains="commitlog", times=None, error=errno.ENOMEM)
        if not removable:
            files.fail("remove", path_contains="commitlog", times=None)
        with pytest.raises(SegmentUnavailable, match="Cannot allocate memory"):
            numbered.append_until(store, end, end + 1000, acknowledged.append)
        end = acknowledged[-1]
        files.heal()
        before = numbered.numbers_in(store)  # Of a refused list the first messages may be there.
        after = end + numbered.group_of(end)
        stored = [*before, *range(after, numbered.append_until(store, after, after + 40))]
        numbered.check(store, stored)
    with builder().on(files).open() as again:
        assert again.recovery.clean
        numbered.check(again, stored)


def test_a_full_disk_in_the_middle_of_the_log_loses_nothing_and_is_left_behind() -> None:
    files = FaultyFiles(LossyFiles())
    with builder().on(files).open() as store:
        n = numbered.append_until(store, 0, 16)
        files.fail("create", path_contains="commitlog", times=None, error=errno.ENOSPC)
        stored = list(range(n))
        refused = 0
        while refused < 3:
            try:
                numbered.append(store, n)
                stored += range(n, n + numbered.group_of(n))
            except SegmentUnavailable:
                refused += 1
            n += numbered.group_of(n)
        files.heal()
        for _ in range(8):
            numbered.append(store, n)
            stored += range(n, n + numbered.group_of(n))
            n += numbered.group_of(n)
        numbered.check(store, stored)
    with builder().on(files).open() as again:
        assert again.recovery.clean
        numbered.check(again, stored)


def test_the_full_disk_flag_clears_when_there_is_room_again() -> None:
    disk = LossyFiles(capacity_bytes=1 << 20)
    store = builder().on(disk).open()
    numbered.append(store, 0)
    ballast = disk.create(Path("/ballast"), 960 << 10, fallocate=True)
    store.engine.services.housekeeping.check_disk()
    with pytest.raises(DiskFull) as refused:
        numbered.append(store, 1)
    assert "free some space" in str(refused.value)
    numbered.check(store, [0])
    disk.remove(Path("/ballast"))
    ballast.close()
    del ballast
    store.engine.services.housekeeping.check_disk()
    numbered.append(store, 1)
    numbered.check(store, [0, 1])
    store.close()


def test_queues_that_could_not_be_written_are_not_vouched_for() -> None:
    """The dispatcher goes on without a sink that failed; the next start has to derive what it missed."""
    files = FaultyFiles(LossyFiles())
    clock = ManualClock()
    store = builder(clock=clock).on(files).open()
    numbered.append(store, 0)
    store.wait_for_dispatch()
    files.fail("create", path_contains="consumequeue", times=1)
    clock.advance(s=2)  # Pending entries are old enough to be written out with the next message.
    end = numbered.append_until(store, 1, 20)
    store.wait_for_dispatch()
    store.engine.services.housekeeping.write_out()
    store.engine.services.housekeeping.make_durable()
    left = files.inner.crash(keep_everything)  # type: ignore[attr-defined]
    store.close()
    for disk in (left, files):
        with builder().on(disk).open() as again:
            assert not again.recovery.clean
            numbered.check(again, range(end))


@pytest.mark.parametrize("kind", ["sync", "rename", "create", "pwrite", "sync_directory"])
def test_errors_of_the_disk_are_store_errors_and_give_the_lock_back(kind: str) -> None:
    for nth in range(1, counts_of_one_run()[kind] + 1):
        disk = closed_store()
        files = FaultyFiles(disk)
        files.fail(kind, nth=nth, times=None)
        try:
            store = builder().on(files).open()
        except EmberError:
            assert not disk.locks
            continue
        try:
            store.close()
        except EmberError:
            pass
        assert not disk.locks


def test_after_a_failed_sync_of_queues_only_what_was_synced_counts() -> None:
    """The kernel may have dropped queue pages it could not write, though the machine did not stop."""
    files = FaultyFiles(LossyFiles())
    settings = StoreSettings(segment_bytes=16_384, queue_file_bytes=2_000, disk_full_percent=100)
    store = MessageStore.open(Path("/s"), settings, files=files)
    for n in range(200):
        store.append(Message("T", b"x" * 100, keys=[f"k{n}"]))
    store.wait_for_dispatch()
    files.fail("sync", nth=1, path_contains="consumequeue")
    with pytest.raises(StoreError, match="not closed cleanly"):
        store.close()
    files.heal()
    with MessageStore.open(Path("/s"), settings, files=files) as again:
        assert again.recovery.walked_from == 0
        assert again.max_offset("T", 0) == 200
