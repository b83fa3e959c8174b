"""Retention of a store: what goes, what stays and why, and what queues, index and offsets are afterwards.

Time stands still unless it is moved, the disk is as full as the test says, and looks are made by hand.
"""

import errno
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embermq import FetchStatus, Message, MessageStore
from embermq.errors import DiskFull, FlushFailed, StoreClosed, StoreError, StorePathInvalid, StoreReadOnly
from embermq.files import DiskUsage
from embermq.store import open_for_maintenance
from embermq.store.layout.kept_offsets import KEPT_OFFSETS_FILE as KEPT_OFFSETS
from embermq.store.layout.kept_offsets import load_kept_offsets, raised_offsets, save_kept_offsets
from embermq.store.services import retention
from embermq.store.services.retention import OldSegment
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from embermq.testing.faulty_files import FaultyFiles
from embermq.testing.lossy_files import LossyFiles
from embermq.testing.unsynced import keep_everything
from tests.support.waiting import wait_until

ROOT = Path("/store")
LOG = ROOT / "commitlog"
SEGMENT_BYTES = 8192
HOUR_MS = 3_600_000
BODY = bytes(300)
# 2024-01-01 12:00 in this machine's time: no hour of the setting deleteWhen.
NOON_MS = 1_704_067_200_000


class Disks(FaultyFiles):
    """A disk in memory that is as full as a test says, in percent, by directory name."""

    def __init__(self) -> None:
        self.disk = LossyFiles()
        super().__init__(self.disk)
        self.percent: dict[str, int] = {}
        self.default_percent = 10

    def usage(self, path: Path) -> DiskUsage:
        super().usage(path)
        used = self.percent.get(path.name, self.default_percent)
        return DiskUsage(100, 100 - used, 100 - used)


def noon() -> ManualClock:
    """A clock at a local time of day at which nothing is deleted by the hour."""
    clock = ManualClock(NOON_MS)
    while clock.local_stamp(clock.now_ms())[8:10] != "12":
        clock.advance(ms=HOUR_MS)
    return clock


def builder(disks: Disks, clock: ManualClock | None = None, **settings: Any) -> StoreBuilder:
    small = {
        "segment_bytes": SEGMENT_BYTES,
        "queue_file_bytes": 20 * 8,
        "index_slots_max": 16,
        "index_entries_max": 20,
        "delete_segment_pause_ms": 0,
        "delete_queue_pause_ms": 0,
        "delayed_delivery": False,
    }
    return StoreBuilder(ROOT, clock=clock or noon(), files=disks, **(small | settings))


def fill(store: MessageStore, segments: int, topic: str = "T", start: int = 0) -> int:
    """Append until the log has this many files, and something in the last; the number of the next message."""
    n, more = start, 4
    while store.stats().segments < segments or more:
        more -= store.stats().segments >= segments
        store.append(Message(topic, b"%d|" % n + BODY, keys=[f"k{n}"], queue_id=n % 2))
        n += 1
    store.wait_for_dispatch()
    return n


def age(disks: Disks, clock: ManualClock, hours: float) -> None:
    """Let time pass after all that was written: files keep the time they were last written at."""
    for entry in disks.list_directory(LOG):
        disks.set_mtime(LOG / entry.name, clock.now_ms() * 1_000_000)
    clock.advance(ms=round(hours * HOUR_MS))


def names(disks: Disks, directory: Path = LOG) -> list[int]:
    return [int(entry.name) for entry in disks.list_directory(directory) if entry.name.isdigit()]


def look(store: MessageStore) -> Any:
    return store.engine.services.retention.look()


@pytest.fixture
def disks() -> Disks:
    return Disks()


# -- what goes, and when ---------------------------------------------------------------------------


def test_expired_files_go_in_the_hour_for_it_and_the_newest_stays(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        fill(store, 4)
        age(disks, clock, 73)
        while clock.local_stamp(clock.now_ms())[8:10] != "04":
            assert look(store).segments == 0
            clock.advance(ms=HOUR_MS)
        cleaned = look(store)
        assert (cleaned.segments, cleaned.log_bytes, cleaned.held_by) == (3, 3 * SEGMENT_BYTES, None)
        assert store.stats().segments == 1
        assert store.min_physical == 3 * SEGMENT_BYTES
        assert names(disks)[0] == 3 * SEGMENT_BYTES


def test_young_files_stay_in_any_hour(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock, delete_when=";".join(f"{hour:02d}" for hour in range(24))).open() as store:
        fill(store, 3)
        age(disks, clock, 71.9)
        assert look(store).segments == 0
        clock.advance(ms=HOUR_MS)
        assert look(store).segments == 2


def test_the_last_message_counts_where_the_file_system_does_not_note_stores_into_a_map(disks: Disks) -> None:
    """Such a file seems as old as its creation, though its last message is younger."""
    clock = noon()
    with builder(disks, clock, disk_used_percent_max=10).open() as store:
        disks.default_percent = 20
        store.append(Message("T", BODY))
        clock.advance(ms=80 * HOUR_MS)
        fill(store, 2)
        disks.set_mtime(LOG / "0".zfill(20), NOON_MS * 1_000_000)
        assert look(store).segments == 0
        clock.advance(ms=72 * HOUR_MS)
        assert look(store).segments == 1


def test_a_fuller_disk_deletes_expired_files_at_any_hour(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        fill(store, 3)
        age(disks, clock, 72)
        disks.default_percent = 75
        assert look(store).segments == 0
        disks.default_percent = 76
        assert look(store).segments == 2


def test_at_most_ten_files_in_one_look(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        fill(store, 14)
        age(disks, clock, 72)
        disks.default_percent = 80
        assert [look(store).segments for _ in range(3)] == [10, 3, 0]


def test_a_nearly_full_disk_takes_the_oldest_until_there_is_room_and_no_more(disks: Disks) -> None:
    with builder(disks).open() as store:
        fill(store, 5)
        disks.default_percent = 86
        freed: list[Path] = []

        def free_some(kind: str, path: Path) -> None:
            freed.append(path)
            if len(freed) == 2:
                disks.default_percent = 85

        watch_removals(disks, free_some)
        assert look(store).segments == 2
        assert names(disks)[0] == 2 * SEGMENT_BYTES


def watch_removals(disks: Disks, call: Callable[[str, Path], None]) -> None:
    """Call after each removal of a log file."""
    remove = disks.remove

    def watched(path: Path) -> None:
        remove(path)
        if path.parent == LOG:
            call("remove", path)

    disks.remove = watched  # type: ignore[method-assign]


def test_nothing_goes_before_its_time_when_that_is_forbidden(disks: Disks) -> None:
    with builder(disks, delete_when_full=False).open() as store:
        fill(store, 4)
        disks.default_percent = 89
        assert look(store).segments == 0


def test_several_log_directories_count_by_the_emptiest(disks: Disks) -> None:
    paths = (ROOT / "a", ROOT / "b")
    with builder(disks, commit_log_paths=paths).open() as store:
        fill(store, 4)
        disks.percent = {"a": 95, "b": 50}
        assert look(store).segments == 0
        store.append(Message("T", BODY))  # There is room in b.
        disks.percent = {"a": 95, "b": 86}
        assert look(store).segments == 3
        assert [len(names(disks, path)) for path in paths].count(0) <= 1


def test_deletion_is_asked_for(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        fill(store, 14)
        age(disks, clock, 10)
        assert store.delete_expired().segments == 0
        clock.advance(ms=62 * HOUR_MS)
        cleaned = store.delete_expired()
        assert cleaned.segments == 13  # More than one look takes.
        assert cleaned.queue_files > 0
        assert cleaned.index_files > 0
        assert store.delete_expired().segments == 0


def test_read_only_and_closed_stores_delete_nothing(disks: Disks) -> None:
    plan = builder(disks)
    store = plan.open()
    fill(store, 2)
    with plan.open(read_only=True) as reader, pytest.raises(StoreReadOnly):
        reader.delete_expired()
    store.close()
    with pytest.raises(StoreClosed):
        store.delete_expired()


def test_a_clock_that_is_set_back_or_stands_still_deletes_nothing_too_early(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        fill(store, 3)
        age(disks, clock, 0)
        clock.jump(ms=-1000 * HOUR_MS)
        assert store.delete_expired().segments == 0
        clock.jump(ms=1071 * HOUR_MS)
        assert store.delete_expired().segments == 0
        clock.jump(ms=HOUR_MS)
        assert store.delete_expired().segments == 2


def test_a_store_time_from_the_future_does_not_keep_a_file_for_ever(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        clock.jump(ms=100_000 * HOUR_MS)
        fill(store, 3)
        clock.jump(ms=-100_000 * HOUR_MS)
        age(disks, clock, 72)
        assert store.delete_expired().segments == 2


# -- what follows the log --------------------------------------------------------------------------


def test_queues_index_and_minimum_follow_the_log(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        end = fill(store, 6)
        store.engine.services.housekeeping.write_out()
        before = [len(names(disks, ROOT / "consumequeue" / "T" / str(queue))) for queue in (0, 1)]
        index_before = len(names(disks, ROOT / "index"))
        age(disks, clock, 72)
        cleaned = store.delete_expired()
        first = next(store.scan())
        for queue in (0, 1):
            low = store.min_offset("T", queue)
            assert low == store.max_offset("T", queue) - store.message_count("T", queue)
            assert store.physical_offset("T", queue, low) >= store.min_physical
            assert store.fetch("T", queue, 0).status is FetchStatus.OFFSET_TOO_SMALL
            assert store.fetch("T", queue, low).messages[0].queue_offset == low
        after = [len(names(disks, ROOT / "consumequeue" / "T" / str(queue))) for queue in (0, 1)]
        assert cleaned.queue_files == sum(before) - sum(after) > 0
        assert cleaned.index_files == index_before - len(names(disks, ROOT / "index")) > 0
        gone = int(first.body[: first.body.index(b"|")])
        assert gone > 0
        assert store.find("T", f"k{gone - 1}") == []
        assert [one.queue_offset for one in store.find("T", f"k{end - 1}")] == [(end - 1) // 2]
        assert store.engine.parts.page is not None
        assert store.engine.parts.page.queue_files == sum(after)
        assert store.engine.parts.page.index_files == len(names(disks, ROOT / "index"))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("gone", ["nothing", "consumequeue"])
def test_a_queue_whose_messages_are_all_gone_goes_on_where_it_was(disks: Disks, clean: bool, gone: str) -> None:
    """Also when its files are deleted with it, which know its end as well."""
    clock = noon()
    plan = builder(disks, clock)
    store = plan.open()
    for _ in range(11):
        store.append(Message("Idle", b"x"))
    fill(store, 3)
    age(disks, clock, 72)
    assert store.delete_expired().segments == 2
    left = disks.disk.crash(keep_everything)
    store.close()
    files: Any = disks if clean else left
    if gone == "consumequeue":
        remove_tree(files, ROOT / "consumequeue")
    for _ in range(2):  # And over a second restart.
        with plan.on(files).open() as again:
            assert again.message_count("Idle", 0) == 0 or again.fetch("Idle", 0, 0).messages == []
            assert ("Idle", 0, 11) in again.engine.parts.next_offsets
    with plan.on(files).open() as again:
        assert again.append(Message("Idle", b"new")).queue_offset == 11
        outcome = again.fetch("Idle", 0, 11)
        assert [one.body for one in outcome.messages] == [b"new"]
    with plan.on(files).open() as again:
        assert again.max_offset("Idle", 0) == 12


def remove_tree(files: Any, path: Path) -> None:
    for entry in files.list_directory(path):
        if entry.is_file:
            files.remove(path / entry.name)
        else:
            remove_tree(files, path / entry.name)
    files.remove_directory(path)
    files.sync_directory(path.parent)


def test_without_dispatch_offsets_go_on_after_a_crash_as_well(disks: Disks) -> None:
    clock = noon()
    settings = builder(disks, clock).settings
    store = MessageStore.open(ROOT, settings, clock=clock, files=disks, dispatch="none")
    for _ in range(11):
        store.append(Message("Idle", b"x"))
    while store.stats().segments < 3:
        store.append(Message("T", BODY))
    store.wait_for_dispatch()
    age(disks, clock, 72)
    assert store.delete_expired().segments == 2
    left = disks.disk.crash()
    store.close()
    for files in (left, disks):
        with MessageStore.open(ROOT, settings, clock=clock, files=files, dispatch="none") as again:
            assert again.append(Message("Idle", b"new")).queue_offset == 11


def test_a_queue_that_has_messages_again_is_no_longer_kept(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        store.append(Message("Idle", b"x"))
        fill(store, 3)
        age(disks, clock, 72)
        store.delete_expired()
        assert load_kept_offsets(disks, ROOT) == [("Idle", 0, 1)]
        n = fill(store, 3)
        store.append(Message("Idle", b"y"))
        fill(store, 5, start=n)
        age(disks, clock, 72)
        disks.set_mtime(LOG / str(4 * SEGMENT_BYTES).zfill(20), clock.now_ms() * 1_000_000)
        assert store.delete_expired().segments == 2
        assert [entry for entry in load_kept_offsets(disks, ROOT) if entry[0] == "Idle"] == []


def test_kept_offsets_that_cannot_be_read_keep_nothing(disks: Disks) -> None:
    builder(disks).open().close()
    assert load_kept_offsets(disks, ROOT) == []
    save_kept_offsets(disks, ROOT, [("b", 1, 5), ("a", 0, 7)])
    assert load_kept_offsets(disks, ROOT) == [("a", 0, 7), ("b", 1, 5)]
    good = disks.read_all(ROOT / KEPT_OFFSETS)
    for bad in (b"", b"{", b"\xff", good.replace(b"7", b"8"), good.replace(b'"version":1', b'"version":2')):
        disks.replace_file(ROOT / KEPT_OFFSETS, bad)
        assert load_kept_offsets(disks, ROOT) == []
        with builder(disks).open() as store:  # And no reason to refuse to start.
            assert store.max_offset("a", 0) == 0


def test_what_was_kept_never_lowers_an_offset() -> None:
    assert sorted(raised_offsets([("a", 0, 5), ("b", 0, 1)], [("a", 0, 3), ("b", 0, 9), ("c", 1, 2)])) == [
        ("a", 0, 5),
        ("b", 0, 9),
        ("c", 1, 2),
    ]


# -- who needs the log -----------------------------------------------------------------------------


def test_the_dispatcher_is_never_overtaken(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        n = fill(store, 2)
        stuck, go_on = threading.Event(), threading.Event()

        def wait(arrival: object) -> None:
            stuck.set()
            assert go_on.wait(60)

        remove = store.on_arrival(wait)
        while store.stats().segments < 5:
            store.append(Message("T", b"%d|" % n + BODY, queue_id=n % 2))
            n += 1
        assert stuck.wait(60)
        age(disks, clock, 72)
        cleaned = store.delete_expired()
        assert cleaned.segments <= 2
        assert cleaned.held_by is not None
        assert store.min_physical <= store.engine.dispatcher.position
        remove()
        go_on.set()
        assert store.wait_for_dispatch()
        assert store.delete_expired().segments == 4 - cleaned.segments


def test_derived_files_are_durable_before_their_records_go(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        fill(store, 4)
        age(disks, clock, 72)
        assert store.engine.services.housekeeping.durable_position < 3 * SEGMENT_BYTES
        store.delete_expired()
        assert store.engine.services.housekeeping.durable_position >= 3 * SEGMENT_BYTES


def test_derived_files_that_cannot_be_made_durable_hold_the_log(disks: Disks) -> None:
    clock = noon()
    store = builder(disks, clock).open()
    fill(store, 4)
    age(disks, clock, 72)
    disks.fail("sync", path_contains="consumequeue", times=None)
    with pytest.raises(StorePathInvalid, match="Input/output error"):
        store.delete_expired()
    assert store.stats().segments == 4
    disks.heal()
    with pytest.raises(StoreError, match="not closed cleanly"):
        store.close()


def test_a_delayed_message_holds_its_file_until_it_is_delivered(disks: Disks, caplog: pytest.LogCaptureFixture) -> None:
    clock = noon()
    levels = "1s 100h"
    with builder(disks, clock, delayed_delivery=True, delay_levels=levels).open() as store:
        store.append(Message("Later", b"parked", delay_level=2))
        fill(store, 4)
        age(disks, clock, 72)
        with caplog.at_level(logging.WARNING, "embermq.store.services.retention"):
            for _ in range(3):
                assert store.delete_expired().held_by == "a delayed message that is not delivered yet"
        assert sum("log file kept" in line for line in caplog.messages) == 1  # Said once.
        assert store.stats().segments == 4
        clock.advance(ms=28 * HOUR_MS)
        wait_until(lambda: store.engine.services.delayed is not None and store.engine.services.delayed.delivered == 1)
        assert store.delete_expired().segments >= 3
        assert [one.body for one in store.fetch("Later", 0, 0).messages] == [b"parked"]


def test_parked_messages_that_nobody_delivers_hold_nothing(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock, delayed_delivery=False).open() as store:
        store.append(Message("Later", b"parked", delay_level=2))
        fill(store, 4)
        age(disks, clock, 72)
        assert store.delete_expired().segments == 3


def quiet(disks: Disks, clock: ManualClock, **settings: Any) -> MessageStore:
    plan = builder(disks, clock, delayed_delivery=True, delay_levels="1h", **settings)
    return open_for_maintenance(ROOT, plan.settings, clock=clock, files=disks)


def test_a_quiet_store_delivers_nothing_and_keeps_what_is_parked(disks: Disks) -> None:
    clock = noon()
    with quiet(disks, clock) as store:
        store.append(Message("Later", b"parked", delay_level=1))
        fill(store, 4)
        age(disks, clock, 72)
        cleaned = store.delete_expired()
        assert (cleaned.segments, cleaned.held_by) == (0, "a delayed message that is not delivered yet")
        assert store.message_count("Later", 0) == 0
    with builder(disks, clock, delayed_delivery=True, delay_levels="1h").open() as store:
        wait_until(lambda: store.message_count("Later", 0) == 1)
    with quiet(disks, clock) as store:  # It knows what was delivered.
        assert store.delete_expired().segments >= 3


def test_before_a_time_means_every_message_of_the_file(disks: Disks) -> None:
    """A clock that was wrong for a while stored a message of the second file two hours later than those behind it."""
    clock = noon()
    start_ms = clock.now_ms()
    with builder(disks, clock).open() as store:
        fill(store, 2)
        clock.jump(ms=2 * HOUR_MS)
        store.append(Message("T", b"late"))
        clock.jump(ms=-2 * HOUR_MS)
        fill(store, 4)
        assert store.delete_expired(before_ms=start_ms).segments == 0
        assert store.delete_expired(before_ms=start_ms + HOUR_MS).segments == 1
        assert [one.body for one in store.scan() if one.body == b"late"] == [b"late"]
        assert store.delete_expired(before_ms=start_ms + 2 * HOUR_MS).segments == 0  # The time itself is not before it.
        assert store.delete_expired(before_ms=start_ms + 2 * HOUR_MS + 1).segments == 2


def test_before_a_time_a_file_without_messages_goes_with_its_neighbours(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        fill(store, 4)
    disks.remove(LOG / f"{SEGMENT_BYTES:020d}")
    with builder(disks, clock).open() as store:  # One blank takes its place.
        assert len(store.recovery.damages) == 1
        assert store.delete_expired(before_ms=clock.now_ms()).segments == 0
        assert store.delete_expired(before_ms=clock.now_ms() + 1).segments == 3


def test_the_archive_guard_may_say_not_yet(disks: Disks) -> None:
    clock = noon()
    plan = builder(disks, clock)
    asked: list[OldSegment] = []
    archived = 0

    def guard(old: OldSegment) -> bool:
        asked.append(old)
        return old.end <= archived

    with MessageStore.open(ROOT, plan.settings, clock=clock, files=disks, retention_guard=guard) as store:
        fill(store, 4)
        age(disks, clock, 72)
        cleaned = store.delete_expired()
        assert (cleaned.segments, cleaned.held_by) == (0, "the archive guard")
        first = asked[0]
        assert (first.path, first.start, first.end, first.expired) == (LOG / "0".zfill(20), 0, SEGMENT_BYTES, True)
        archived = 2 * SEGMENT_BYTES
        assert store.delete_expired().segments == 2
        disks.default_percent = 95
        asked.clear()
        clock.jump(ms=-72 * HOUR_MS)
        assert look(store).held_by == "the archive guard"  # Nor by force.
        assert not asked[0].expired


def test_a_guard_that_fails_has_not_said_yes(disks: Disks, caplog: pytest.LogCaptureFixture) -> None:
    clock = noon()
    plan = builder(disks, clock)

    def guard(old: OldSegment) -> bool:
        raise ValueError("no archive")

    with MessageStore.open(ROOT, plan.settings, clock=clock, files=disks, retention_guard=guard) as store:
        fill(store, 3)
        age(disks, clock, 72)
        assert store.delete_expired().held_by == "the archive guard, which failed"
    assert "no archive" in caplog.text


def test_files_in_read_only_directories_stay_and_hold_the_rest(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        fill(store, 4)
    archive = ROOT.parent / "archive"
    disks.make_directory(archive)
    disks.rename(LOG / "0".zfill(20), archive / "0".zfill(20))
    with builder(disks, clock, commit_log_read_only_paths=(archive,)).open() as store:
        assert store.min_physical == 0
        for entry in disks.list_directory(archive):
            disks.set_mtime(archive / entry.name, clock.now_ms() * 1_000_000)
        age(disks, clock, 72)
        cleaned = store.delete_expired()
        assert cleaned.segments == 0
        assert cleaned.held_by is not None
        assert "readOnlyCommitLogStorePaths" in cleaned.held_by


# -- files that are still being read ---------------------------------------------------------------


def test_a_reader_keeps_what_it_holds_and_others_see_it_gone(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        fill(store, 3)
        segment = store.engine.log.segments.all[0]
        before = segment.read(0, SEGMENT_BYTES)
        scan = store.scan()
        first = next(scan)
        with segment.array_for_scan() as held:
            age(disks, clock, 72)
            assert store.delete_expired().segments == 2
            assert names(disks)[0] == 2 * SEGMENT_BYTES
            assert bytes(held) == before
            assert store.at(0) is None
        rest = list(scan)  # A scan under way goes on where the log begins now.
        assert first.physical_offset == 0
        assert rest[0].physical_offset == store.min_physical


def test_a_deleted_file_that_keeps_its_space_holds_up_force_for_a_while(
    disks: Disks, caplog: pytest.LogCaptureFixture
) -> None:
    clock = noon()
    with builder(disks, clock, destroy_interval_ms=120_000, redelete_interval_ms=60_000).open() as store:
        fill(store, 6)
        disks.default_percent = 86
        with store.engine.log.segments.all[0].array_for_scan() as held:
            cleaned = look(store)
            assert cleaned.segments == 1
            assert "whose space is not free yet" in (cleaned.held_by or "")
            assert look(store).segments == 0
            clock.advance(ms=61_000)
            with caplog.at_level(logging.WARNING, "embermq.store.services.retention"):
                assert look(store).segments == 0
                assert look(store).segments == 0
            assert sum("is still being read" in line for line in caplog.messages) == 1
            clock.advance(ms=60_000)
            disks_get_room_after(disks, 1)
            assert look(store).segments == 1  # Long enough.
            assert len(held) == SEGMENT_BYTES
        del held
        disks.default_percent = 86
        disks_get_room_after(disks, 2)
        assert look(store).segments == 2


def disks_get_room_after(disks: Disks, removals: int) -> None:
    seen: list[Path] = []

    def count(kind: str, path: Path) -> None:
        seen.append(path)
        if len(seen) == removals:
            disks.default_percent = 50

    watch_removals(disks, count)


def test_expired_files_do_not_wait_for_readers(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        fill(store, 4)
        age(disks, clock, 72)
        with store.engine.log.segments.all[0].array_for_scan() as held:
            assert store.delete_expired().segments == 3
            assert len(held) == SEGMENT_BYTES


# -- when the disk is full -------------------------------------------------------------------------


def test_a_full_disk_refuses_appends_in_one_line_and_takes_them_again(
    disks: Disks, caplog: pytest.LogCaptureFixture
) -> None:
    clock = noon()
    with builder(disks, clock, delete_when_full=False).open() as store:
        fill(store, 2)
        disks.default_percent = 91
        with caplog.at_level(logging.WARNING, "embermq.store.services.disk_watch"):
            look(store)
            look(store)
        with pytest.raises(DiskFull) as refused:
            store.append(Message("T", b"no"))
        text = str(refused.value)
        assert "\n" not in text
        for part in ("mounted at /", "91% full", "90%", "emberDiskFullPercent", "/store/commitlog"):
            assert part in text
        assert refused.value.status == "SERVICE_NOT_AVAILABLE"
        assert store.fetch("T", 0, 0).status is FetchStatus.FOUND  # Reads go on.
        disks.default_percent = 90
        with caplog.at_level(logging.WARNING, "embermq.store.services.disk_watch"):
            look(store)
        assert store.append(Message("T", b"yes")).ok
        assert [line.split(":")[0] for line in caplog.messages] == ["appends refused", "appends taken again"]


def test_what_retention_frees_is_noticed_in_the_same_look(disks: Disks) -> None:
    with builder(disks).open() as store:
        fill(store, 4)
        disks.default_percent = 95
        store.engine.services.housekeeping.check_disk()
        with pytest.raises(DiskFull):
            store.append(Message("T", b"no"))
        disks_get_room_after(disks, 1)
        assert look(store).segments == 1
        assert store.append(Message("T", b"yes")).ok


def test_a_full_disk_still_delivers_what_is_parked_so_that_its_files_can_go(disks: Disks) -> None:
    """Otherwise the disk would stay full: the file with the parked message waits for its delivery."""
    clock = noon()
    with builder(disks, clock, delayed_delivery=True, delay_levels="1h").open() as store:
        store.append(Message("Later", b"parked", delay_level=1))
        fill(store, 4)
        disks.default_percent = 95
        assert look(store).held_by == "a delayed message that is not delivered yet"
        with pytest.raises(DiskFull):
            store.append(Message("T", b"no"))
        clock.advance(ms=HOUR_MS)
        wait_until(lambda: store.engine.services.delayed is not None and store.engine.services.delayed.delivered == 1)
        disks_get_room_after(disks, 2)
        assert look(store).segments == 2
        assert store.append(Message("T", b"yes")).ok


def test_the_disk_of_the_queues_may_be_the_full_one(disks: Disks) -> None:
    with builder(disks, delete_when_full=False).open() as store:
        disks.percent = {"consumequeue": 97}
        look(store)
        with pytest.raises(DiskFull, match=r"97% full.*consumequeue"):
            store.append(Message("T", b"no"))


def test_a_disk_that_cannot_be_looked_at_is_not_full(disks: Disks, caplog: pytest.LogCaptureFixture) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        fill(store, 3)
        disks.fail("usage", times=None)
        with caplog.at_level(logging.WARNING, "embermq.store.services.disk_watch"):
            assert look(store).segments == 0
            look(store)
        assert store.append(Message("T", b"yes")).ok
        assert len(caplog.messages) == 2  # One for each directory, once.
        disks.heal()


def test_a_refusal_for_good_is_not_taken_back_by_an_emptier_disk(disks: Disks) -> None:
    store = builder(disks, noon(), delete_when_full=False).open()
    fill(store, 2)
    disks.fail("sync", path_contains="commitlog")
    with pytest.raises(FlushFailed):
        store.flush()
    disks.default_percent = 95
    store.engine.services.housekeeping.check_disk()
    disks.default_percent = 10
    store.engine.services.housekeeping.check_disk()
    with pytest.raises(FlushFailed):
        store.append(Message("T", b"no"))
    store.close()


def test_offsets_that_cannot_be_kept_for_lack_of_space_do_not_stop_deletion(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        store.append(Message("Idle", b"x"))
        fill(store, 4)
        age(disks, clock, 72)
        store.engine.services.housekeeping.make_durable()
        disks.fail("create", path_contains=KEPT_OFFSETS, error=errno.ENOSPC)
        assert store.delete_expired().segments == 3
        assert ("Idle", 0, 1) in load_kept_offsets(disks, ROOT)  # With the next file there was room.


def test_offsets_that_cannot_be_kept_for_another_reason_do(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        store.append(Message("Idle", b"x"))
        fill(store, 4)
        age(disks, clock, 72)
        disks.fail("create", path_contains=KEPT_OFFSETS)
        with pytest.raises(StorePathInvalid, match="Input/output error"):
            store.delete_expired()
        assert store.stats().segments == 4
        assert store.delete_expired().segments == 3


# -- when files do not go --------------------------------------------------------------------------


def test_a_log_file_that_cannot_be_removed_stays_readable(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        fill(store, 4)
        age(disks, clock, 72)
        disks.fail("remove", path_contains="commitlog")
        with pytest.raises(StorePathInvalid, match="Input/output error"):
            store.delete_expired()
        assert store.stats().segments == 4
        assert store.at(0) is not None
        assert store.delete_expired().segments == 3


@pytest.mark.parametrize("family", ["consumequeue", "index"])
def test_derived_files_that_cannot_be_removed_are_tried_again(disks: Disks, family: str) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        fill(store, 6)
        age(disks, clock, 72)
        disks.fail("remove", path_contains=f"{family}/", nth=2)
        with pytest.raises(StorePathInvalid, match="Input/output error"):
            store.delete_expired()
        look(store)
        assert not any(queue.let_go for queue in store.engine.queues.all())  # type: ignore[union-attr]
        for queue in (0, 1):
            directory = ROOT / "consumequeue" / "T" / str(queue)
            expected = {start * 20 for start in store.engine.queues.find("T", queue).file_starts}  # type: ignore[union-attr]
            assert set(names(disks, directory)) == expected


def test_a_log_file_deleted_by_hand_leaves_the_log(disks: Disks, caplog: pytest.LogCaptureFixture) -> None:
    with builder(disks).open() as store:
        store.append(Message("Idle", b"x"))
        fill(store, 4)
        for start in (0, SEGMENT_BYTES):
            disks.remove(LOG / str(start).zfill(20))
        assert store.at(0) is not None
        assert look(store).segments == 2
        assert store.min_physical == 2 * SEGMENT_BYTES
        assert "deleted by hand" in caplog.text
        assert ("Idle", 0, 1) in load_kept_offsets(disks, ROOT)
        assert store.fetch("T", 0, store.min_offset("T", 0)).status is FetchStatus.FOUND


def test_a_log_directory_that_vanished_is_no_deletion(disks: Disks) -> None:
    clock = noon()
    with builder(disks, clock).open() as store:
        fill(store, 4)
        age(disks, clock, 72)
        away = ROOT.parent / "away"
        disks.rename(LOG, away)
        assert look(store).segments == 0
        assert store.stats().segments == 4
        disks.rename(away, LOG)


# -- beside everything else ------------------------------------------------------------------------


def test_the_thread_looks_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On real files, with the pauses as they are set."""
    monkeypatch.setattr(retention, "FIRST_LOOK_SECONDS", 0.01)
    plan = StoreBuilder(
        tmp_path / "store",
        segment_bytes=SEGMENT_BYTES,
        retention_hours=0,
        clean_interval_ms=5,
        delete_segment_pause_ms=1,
        delete_when=";".join(str(hour) for hour in range(24)),
    )
    with plan.open() as store:
        n = 0
        while store.min_physical < 20 * SEGMENT_BYTES:
            store.append(Message("T", b"%d|" % n + BODY, keys=[f"k{n}"]))
            n += 1
        low = store.min_offset("T", 0)
        outcome = store.fetch("T", 0, store.max_offset("T", 0) - 1)
        assert outcome.messages[0].body == b"%d|" % (n - 1) + BODY
        assert low > 0
        low_physical = store.min_physical
    left = sorted(int(path.name) for path in (tmp_path / "store" / "commitlog").iterdir())
    assert left[0] >= low_physical >= 20 * SEGMENT_BYTES
    with plan.open() as again:
        assert again.recovery.clean
        assert again.recovery.reason == "closed cleanly"
        assert again.max_offset("T", 0) == n


def test_appends_and_reads_go_on_while_files_go(tmp_path: Path) -> None:
    plan = StoreBuilder(
        tmp_path / "store",
        segment_bytes=SEGMENT_BYTES,
        retention_hours=0,
        delete_segment_pause_ms=0,
        delete_queue_pause_ms=0,
        queue_file_bytes=160,
        index_slots_max=16,
        index_entries_max=40,
    )
    failures: list[BaseException] = []
    done = threading.Event()
    with plan.open() as store:

        def read() -> None:
            at = 0
            try:
                while not done.is_set() or at < store.max_offset("T", 0):
                    outcome = store.fetch("T", 0, at)
                    for one in outcome.messages:
                        assert int(one.body[: one.body.index(b"|")]) == one.queue_offset >= at
                    at = outcome.next_offset
            except BaseException as failure:
                failures.append(failure)

        def clean() -> None:
            try:
                while not done.is_set():
                    store.delete_expired()
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=read), threading.Thread(target=clean)]
        for thread in threads:
            thread.start()
        for n in range(800):
            store.append(Message("T", b"%d|" % n + BODY, keys=[f"k{n}"]))
        done.set()
        for thread in threads:
            thread.join()
        assert not failures, failures
        assert store.max_offset("T", 0) == 800
        assert store.min_physical > 0
