"""Failures known from other stores, and tests that walk into them.

docs/crash-proof.md lists them all with their tests, here and elsewhere; this file has those that fit nowhere else.
"""

import threading
from pathlib import Path

import pytest

from embermq import FetchStatus, Message
from embermq.errors import StoreError
from embermq.format.queue_entry import ENTRY
from embermq.settings import FlushDisk
from embermq.store.layout.state_page import create_state_page, load_state_page
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from embermq.testing.faulty_files import FaultyFiles
from embermq.testing.lossy_files import LossyFiles
from tests.crash import disks, numbered

PLAN = disks.builder()
ENTRY_BYTES = 20


def test_a_message_is_not_visible_before_it_is_durable() -> None:
    """While the sync of SYNC_FLUSH is under way, no consumer sees the message it is about."""
    files = FaultyFiles(LossyFiles())
    with PLAN.on(files).open() as store:
        numbered.append(store, 0)
        store.wait_for_dispatch()
        arrived: list[str] = []
        store.on_arrival(lambda arrival: arrived.append(arrival.topic))
        under_way, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            under_way.set()
            assert go_on.wait(30)

        files.before(step=len(files.steps) + 1, call=hold)
        appending = threading.Thread(target=numbered.append, args=(store, 1))
        appending.start()
        assert under_way.wait(30)
        assert files.steps[-1][0] == "sync"
        try:
            assert store.fetch("Topic0", 1, 0).status is FetchStatus.NO_MESSAGE_IN_QUEUE
            assert store.find("Topic0", "id1") == []
            assert arrived == []
            assert not store.engine.dispatcher.wait_for(store.engine.log.wrote_offset, 0.0)
        finally:
            go_on.set()
            appending.join()
        numbered.check(store, [0, 1])


@pytest.mark.parametrize("wrong", ["another queue", "between records", "past the end", "other size"])
def test_queue_entries_that_point_elsewhere(wrong: str) -> None:
    """An entry is believed only as far as the record agrees with it."""
    disk = disks.closed(60, PLAN)
    path = disks.ROOT / "consumequeue" / "Topic0" / "0" / "0".zfill(20)
    at = ENTRY_BYTES * 1
    physical_offset, size, tag_code = ENTRY.unpack(disk.read_all(path)[at : at + ENTRY_BYTES])
    other = next(start for start, _ in disks.places(disk, PLAN)[1:] if start != physical_offset)
    changed = {
        "another queue": (other, size, tag_code),
        "between records": (physical_offset + 3, size, tag_code),
        "past the end": (1 << 40, size, tag_code),
        "other size": (physical_offset, size - 1, tag_code),
    }[wrong]
    disks.overwrite(disk, path, at, ENTRY.pack(*changed))
    with PLAN.on(disk).open() as store:
        delivered = numbered.fetch_all(store, "Topic0", 0)
        expected = [n for n in range(60) if known_place(n) == ("Topic0", 0)]
        assert {offset: n for offset, n in delivered if offset != 1} == {
            offset: n for offset, n in enumerate(expected) if offset != 1
        }
        assert all(n == expected[1] for offset, n in delivered if offset == 1)


def known_place(n: int) -> tuple[str, int] | None:
    one = numbered.known(n)
    return (one.topic, one.queue_id) if one.queued else None


@pytest.mark.parametrize("name", ["..", "01", "x", "0.tmp"])
def test_foreign_names_among_the_queues_are_left_alone(tmp_path: Path, name: str) -> None:
    builder = StoreBuilder(tmp_path / "store", **numbered.TINY)
    with builder.open() as store:
        end = numbered.append_until(store, 0, 20)
    foreign = builder.root / "consumequeue" / "Topic0" / name
    outside = builder.root / "consumequeue" / "Strange.Topic" / "0"
    outside.mkdir(parents=True)
    if name != "..":
        foreign.mkdir()
        (foreign / "0".zfill(20)).write_bytes(b"hello")
    with builder.open() as store:
        numbered.check_keys(store, list(range(end)))
        assert numbered.numbers_in(store) == list(range(end))
    assert outside.is_dir()
    if name != "..":
        assert (foreign / "0".zfill(20)).read_bytes() == b"hello"


def test_each_reason_has_its_own_answer() -> None:
    disk = LossyFiles()
    with PLAN.on(disk).open() as store:
        store.append(Message("T", b"x", tags="a"))
        assert store.fetch("T", 0, 0).status is FetchStatus.FOUND
        assert store.fetch("T", 0, 0, tags="b").status is FetchStatus.NO_MATCHED_MESSAGE
        assert store.fetch("T", 0, 1).status is FetchStatus.OFFSET_OVERFLOW_ONE
        assert store.fetch("T", 0, 2).status is FetchStatus.OFFSET_OVERFLOW_BADLY
        assert store.fetch("U", 0, 0).status is FetchStatus.NO_MESSAGE_IN_QUEUE
        assert store.find("T", "k") == []
    with PLAN.changed(index=False).on(disk).open() as store, pytest.raises(StoreError) as refused:
        store.find("T", "k")  # Not an empty list: nobody knows.
    assert "index" in str(refused.value)


def test_the_last_message_is_not_delivered_again_after_a_restart() -> None:
    disk = disks.closed(20, PLAN)
    with PLAN.on(disk).open() as store:
        outcome = store.fetch("Topic0", 0, 0)
        again = store.fetch("Topic0", 0, outcome.next_offset)
        assert (again.status, again.messages) == (FetchStatus.OFFSET_OVERFLOW_ONE, [])
    with PLAN.on(disk).open() as store:
        assert store.fetch("Topic0", 0, outcome.next_offset).messages == []


@pytest.mark.parametrize("name", ["checkpoint", "embermq.state", "embermq.inventory.json", "embermq.index.json", "all"])
def test_nothing_is_deleted_for_want_of_metadata(name: str) -> None:
    disk = disks.closed(60, PLAN)
    count = len(disks.places(disk, PLAN))
    small = [path for path in disks.paths(disk) if path.parent == disks.ROOT]
    for path in small:
        if name in (path.name, "all"):
            disk.remove(path)
    logs = {path: disk.read_all(path) for path in disks.paths(disk, disks.ROOT / "commitlog")}
    with PLAN.on(disk).open() as store:
        numbered.check(store, range(count))
    assert {path: disk.read_all(path) for path in disks.paths(disk, disks.ROOT / "commitlog")} == logs


@pytest.mark.parametrize("field", ["tail_mark", "flushed", "queues_durable"])
def test_a_wrong_proof_never_cuts_into_the_log(field: str) -> None:
    """A page that speaks of a place inside a record, even one that holds zeros as the end of a log does."""
    whole = disks.killed(10, PLAN, at_rest=True)
    for place in range(1, 260, 3):
        disk = disks.copy(whole)
        page = load_state_page(disk, disks.ROOT, writable=True)
        if page is None:  # A copy has another identity.
            page = create_state_page(disk, disks.ROOT, 1)
            page.flushed = page.queues_written = page.queues_durable = disks.places(whole, PLAN)[-1][1]
        setattr(page, field, place)
        with PLAN.on(disk).open() as store:
            numbered.check(store, range(10))


@pytest.mark.parametrize("jump_ms", [-3_600_000, 86_400_000, 0])
def test_a_clock_that_jumps(jump_ms: int) -> None:
    """Back by an hour, forward by a day, or standing still: files keep their order, and all is found again."""
    disk = LossyFiles()
    clock = ManualClock()
    plan = StoreBuilder(disks.ROOT, clock=clock, flush=FlushDisk.SYNC, **numbered.TINY).on(disk)
    with plan.open() as store:
        end = numbered.append_until(store, 0, 40)
        store.wait_for_dispatch()
        clock.jump(ms=jump_ms)
        end = numbered.append_until(store, end, 80)
        numbered.check(store, range(end))
    with plan.open() as store:
        numbered.check(store, range(end))
        end = numbered.append_until(store, end, 100)
    for path in disks.paths(disk, disks.ROOT / "index"):
        disk.remove(path)
    with plan.open() as store:
        numbered.check(store, range(end))
        assert 0 <= store.offset_at("Topic0", 0, clock.now_ms()) <= store.max_offset("Topic0", 0)
