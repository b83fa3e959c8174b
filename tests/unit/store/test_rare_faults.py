"""Turns that a store takes rarely: pools that run dry, disks that stumble, entries that lie, lives that end."""

import errno
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from embermq import FlushDisk, Message, MessageStore, StoreSettings, errors
from embermq.files import RealFile
from embermq.files.open_files import OpenFiles
from embermq.files.segments import Segments
from embermq.repair.rebuild.follower import DerivedFollower
from embermq.store.log.commit_log import CommitLog
from embermq.store.queues import damaged_entries
from embermq.store.queues.next_offsets import NextOffsets, _Tail
from embermq.testing import FaultyFiles, LossyFiles

SMALL = StoreSettings(
    segment_bytes=64 << 10, queue_file_bytes=20 * 500, index_slots_max=100, index_entries_max=400, disk_full_percent=100
)


def bodies(store: MessageStore, topic: str = "t", queue_id: int = 0) -> list[bytes]:
    found, at = [], 0
    while at < store.max_offset(topic, queue_id):
        outcome = store.fetch(topic, queue_id, at, 1000)
        found += [message.body for message in outcome.messages]
        at = outcome.next_offset
    return found


# -- dispatch --------------------------------------------------------------------------------------------------


def test_a_pool_that_runs_dry_hides_nothing_from_the_queues(tmp_path: Path) -> None:
    """Files without a private buffer lie behind one whose buffer is not committed yet."""
    settings = SMALL.replace(transient_pool=True, transient_pool_buffers=2, index=False)
    with MessageStore.open(tmp_path, settings) as store:
        for start in range(0, 6000, 500):
            store.append_many(Message("t", b"%06d" % n + bytes(300)) for n in range(start, start + 500))
        store.flush()
        assert store.wait_for_dispatch()
        assert [int(body[:6]) for body in bodies(store)] == list(range(6000))


class File(NamedTuple):
    """A log file of 100 bytes, as far as it can be read and was flushed."""

    start: int
    readable: int
    flushed: int
    size: int = 100


@pytest.mark.parametrize(
    ("files", "end"),
    [
        ([File(0, 100, 100), File(100, 30, 0)], 130),
        ([File(0, 100, 100), File(100, 40, 0), File(200, 10, 0)], 140),
        ([File(0, 100, 100), File(100, 40, 0), File(200, 100, 0), File(300, 10, 0)], 140),
        ([File(0, 20, 0), File(100, 40, 0), File(200, 100, 0), File(300, 10, 0)], 20),
        ([File(0, 100, 0), File(100, 100, 0), File(200, 10, 0)], 210),
    ],
)
def test_the_readable_end_lies_in_the_oldest_file_that_is_not_whole(files: list[File], end: int) -> None:
    segments = Segments([Path("/log")], LossyFiles(), 100)
    segments._all = tuple(files)  # type: ignore[arg-type]
    assert segments.max_offset == CommitLog(segments).readable_offset == end


def test_a_moment_without_descriptors_does_not_end_dispatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed: list[str] = []
    whole = RealFile.map

    def map_file(file: RealFile, writable: bool, size: int | None = None) -> memoryview:
        if threading.current_thread().name.startswith(("embermq-dispatch", "embermq-scan")) and len(failed) < 2:
            failed.append(str(file.path))
            raise OSError(errno.EMFILE, "Too many open files")
        return whole(file, writable, size)

    gate = threading.Event()
    with MessageStore.open(tmp_path, SMALL) as store:
        store.on_arrival(lambda arrival: wait_for(gate))
        monkeypatch.setattr(RealFile, "map", map_file)
        for _ in range(40):
            store.append_many([Message("t", bytes(1000))] * 20)
        gate.set()
        assert store.wait_for_dispatch(30)
        assert store.max_offset("t", 0) == 800


def wait_for(gate: threading.Event) -> None:
    assert gate.wait(30)


# -- entries that lie ------------------------------------------------------------------------------------------


def damage_entry(root: Path, queue_offset: int, physical_offset: int) -> None:
    (file,) = (root / "consumequeue" / "t" / "0").iterdir()
    with file.open("r+b") as opened:
        opened.seek(20 * queue_offset)
        opened.write(physical_offset.to_bytes(8, "big"))


@pytest.mark.parametrize("distance", [0, 1], ids=["found", "too far apart"])
def test_an_entry_past_the_end_of_the_log_costs_itself_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, distance: int
) -> None:
    if distance:
        monkeypatch.setattr(damaged_entries, "SEARCH_BYTES_MAX", 0)
    with MessageStore.open(tmp_path, SMALL) as store:
        store.append_many(Message("t", b"%d" % n) for n in range(11))
        assert store.wait_for_dispatch()
        store.engine.services.housekeeping.make_durable()
        damage_entry(tmp_path, 1, 1 << 40)
        expected = [b"%d" % n for n in range(11) if n != 1 or not distance]
        assert bodies(store) == expected


def test_a_hole_is_not_searched_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MessageStore.open(tmp_path, SMALL.replace(segment_bytes=1 << 20)) as store:
        receipts = [store.append(Message("t", b"%d" % n)) for n in range(600)]
    log = tmp_path / "commitlog" / f"{0:020d}"
    with log.open("r+b") as opened:
        opened.seek(receipts[100].physical_offset)
        opened.write(b"\xff" * (receipts[400].physical_offset - receipts[100].physical_offset))
    for path in (tmp_path / "consumequeue" / "t" / "0").iterdir():
        path.unlink()
    looked: list[int] = []
    monkeypatch.setattr(damaged_entries.DamagedEntries, "record_of", lambda *given: looked.append(given[2]))
    with MessageStore.open(tmp_path, SMALL.replace(segment_bytes=1 << 20)) as store:
        assert [int(body) for body in bodies(store)] == [*range(100), *range(400, 600)]
    assert looked == []


def test_many_damaged_entries_are_found_from_the_last_sound_one(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        store.append_many(Message("t", b"%d" % n) for n in range(300))
        assert store.wait_for_dispatch()
        store.engine.services.housekeeping.make_durable()
        for queue_offset in range(50, 90):
            damage_entry(tmp_path, queue_offset, 7)
        assert [int(body) for body in bodies(store)] == list(range(300))


def test_a_damaged_entry_does_not_bring_a_deleted_life_back(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        store.append_many(Message("t", b"old %d" % n) for n in range(10))
        store.delete_topic("t")
        store.append_many(Message("t", b"new %d" % n) for n in range(10))
        assert store.wait_for_dispatch()
        store.engine.services.housekeeping.make_durable()
        damage_entry(tmp_path, 0, 7)
        assert bodies(store) == [b"new %d" % n for n in range(10)]


# -- queue offsets from the log alone --------------------------------------------------------------------------


def with_offset(root: Path, physical_offset: int, queue_offset: int) -> None:
    """Damage the queue offset of a record."""
    with (root / "commitlog" / f"{0:020d}").open("r+b") as opened:
        opened.seek(physical_offset + 20)
        opened.write(queue_offset.to_bytes(8, "big"))


@pytest.mark.parametrize("wrong", [2**63 - 1, 2**50, 2**20, 7_000])
@pytest.mark.parametrize("at", [0, 5, 8])
def test_a_damaged_offset_is_not_gone_on_from(tmp_path: Path, wrong: int, at: int) -> None:
    with MessageStore.open(tmp_path, SMALL, dispatch="none") as store:
        receipts = [store.append(Message("t", b"%d" % n)) for n in range(10)]
    with_offset(tmp_path, receipts[at].physical_offset, wrong)
    (tmp_path / "embermq.inventory.json").unlink()
    with MessageStore.open(tmp_path, SMALL, dispatch="none") as store:
        assert store.append(Message("t", b"next")).queue_offset == 10


@pytest.mark.parametrize("count", [0, 1, 2, 5])
@pytest.mark.parametrize("keep_inventory", [True, False])
def test_a_deleted_topic_goes_on_in_its_new_life(tmp_path: Path, count: int, keep_inventory: bool) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        store.append_many(Message("t", b"old") for _ in range(100))
        store.delete_topic("t")
        store.append_many(Message("t", b"new") for _ in range(count))
    if not keep_inventory:
        (tmp_path / "embermq.inventory.json").unlink()
    with MessageStore.open(tmp_path, SMALL, dispatch="none") as store:
        assert store.append(Message("t", b"next")).queue_offset == count


def test_a_topic_that_another_store_deleted_begins_anew() -> None:
    """Without a note of it: 0 after higher ones, and 1 behind it."""
    for offsets, expected in (
        ([3, 4, 5, 0, 1, 2], 3),
        ([3, 4, 5, 0], 1),
        ([3, 4, 5, 0, 6], 7),
        ([0, 1, 900, 2, 3], 4),
        ([900, 1, 2], 3),
        ([0, 1, 2, 2, 1], 3),
    ):
        tail = _Tail(offsets[0] + 1, -2)
        for offset in offsets[1:]:
            tail.meet(offset)
        assert tail.settled == expected, offsets
    assert NextOffsets().all() == []


@pytest.mark.parametrize("dispatch", ["live", "none"])
def test_further_queues_go_on_where_they_were(tmp_path: Path, dispatch: Any) -> None:
    settings = SMALL.replace(multi_dispatch=True, light_queues=True)
    message = Message("t", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
    for _ in range(3):
        with MessageStore.open(tmp_path, settings, dispatch=dispatch) as store:
            store.append_many([message] * 3)
        (tmp_path / "embermq.inventory.json").unlink()
    with MessageStore.open(tmp_path, settings) as store:
        offsets = [message.properties["INNER_MULTI_QUEUE_OFFSET"] for message in store.scan()]
        assert offsets == [str(n) for n in range(9)]
        assert store.max_offset("%LMQ%a", 0) == 9


# -- further queues --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("names", "queue"), [("a,a", "a"), ("t", "t"), ("a,t,a", "a")])
def test_a_name_that_is_there_twice_takes_one_place(tmp_path: Path, names: str, queue: str) -> None:
    with MessageStore.open(tmp_path, SMALL.replace(multi_dispatch=True)) as store:
        for n in range(3):
            receipt = store.append(Message("t", b"%d" % n, properties={"INNER_MULTI_DISPATCH": names}))
            assert receipt.queue_offset == n
        assert store.max_offset(queue, 0) == 3
        assert bodies(store, queue) == [b"0", b"1", b"2"]


def test_a_refused_message_takes_no_light_queue(tmp_path: Path) -> None:
    settings = SMALL.replace(multi_dispatch=True, light_queues=True, light_queues_max=3)
    with MessageStore.open(tmp_path, settings) as store:
        four = ",".join(f"%LMQ%{n}" for n in range(4))
        with pytest.raises(errors.AppendRefused, match="'%LMQ%3' is one light queue too many"):
            store.append(Message("t", b"x", properties={"INNER_MULTI_DISPATCH": four}))
        three = "%LMQ%x,%LMQ%y,%LMQ%z"
        assert store.append(Message("t", b"x", properties={"INNER_MULTI_DISPATCH": three})).ok


def test_a_follower_derives_further_queues_too(tmp_path: Path) -> None:
    settings = SMALL.replace(multi_dispatch=True)
    with MessageStore.open(tmp_path, settings, dispatch="none") as store:
        store.append(Message("t", b"x", properties={"INNER_MULTI_DISPATCH": "a"}))
    with DerivedFollower.open(tmp_path, settings) as follower:
        follower.advance()
        assert follower.queues.topics() == {"a": [0], "t": [0]}


@pytest.mark.parametrize("queue_id", [1.0, True])
def test_a_queue_id_is_a_whole_number_also_when_the_queue_is_known(tmp_path: Path, queue_id: Any) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        store.append(Message("t", b"x", queue_id=1))
        with pytest.raises(errors.QueueIdInvalid):
            store.append(Message("t", b"x", queue_id=queue_id))


# -- closing, syncing, cleaning --------------------------------------------------------------------------------


def test_a_future_is_done_although_the_store_was_closed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MessageStore.open(tmp_path, SMALL.replace(flush=FlushDisk.SYNC))
    whole = store.engine.services.flusher.when_durable

    def late(end: int, callback: Any) -> None:
        store.close()
        whole(end, callback)

    monkeypatch.setattr(store.engine.services.flusher, "when_durable", late)
    assert store.append_async(Message("t", b"x")).result(30).ok
    with MessageStore.open(tmp_path, SMALL) as again:
        assert bodies(again) == [b"x"]


def test_a_file_that_cannot_be_opened_for_its_sync_is_synced_later() -> None:
    disk = LossyFiles()
    disk.make_directory(Path("/d"))
    faulty = FaultyFiles(disk)
    files = OpenFiles(faulty, read_only=False, open_max=1)
    for name in ("a", "b", "c"):
        files.obtain(Path(f"/d/{name}"), 100, fresh=True).pwrite(name.encode(), 0)
        files.touch(Path(f"/d/{name}"))
    faulty.fail("open", error=errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files"):
        files.sync()
    files.sync()
    assert files.unsynced_count == 0
    after = disk.crash()
    assert [after.read_all(Path(f"/d/{name}"))[:1] for name in ("a", "b", "c")] == [b"a", b"b", b"c"]


@pytest.mark.slow
def test_as_many_old_files_go_as_there_are(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL.replace(segment_bytes=4096, index=False)) as store:
        store.append_many(Message("t", bytes(3000)) for _ in range(230))
        store.flush()
        assert store.wait_for_dispatch()
        cleaned = store.delete_expired(before_ms=1 << 50)
        assert (cleaned.segments, cleaned.held_by) == (229, None)
