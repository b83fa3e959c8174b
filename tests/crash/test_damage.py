"""Damage in the middle of a log: what is after it survives, what was there is kept aside, and it is reported once."""

import json
import tracemalloc
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.repair.verify.store_check import verify
from embermq.testing.lossy_files import LossyFiles
from tests.crash import disks, numbered

COUNT = 60  # Several segments.
PLAN = disks.builder()
SEGMENT_BYTES = 8192
REPORT = disks.ROOT / "quarantine" / "report.jsonl"


def segment_of(physical_offset: int) -> Path:
    start = physical_offset - physical_offset % SEGMENT_BYTES
    return disks.ROOT / "commitlog" / f"{start:020d}"


def damage(disk: LossyFiles, start: int, data: bytes) -> bytes:
    """Overwrite the log at a physical offset; what was there before."""
    path, at = segment_of(start), start % SEGMENT_BYTES
    before = disk.read_all(path)[at : at + len(data)]
    disks.overwrite(disk, path, at, data)
    return before


def reports(disk: LossyFiles) -> list[dict[str, object]]:
    return [json.loads(line) for line in disk.read_all(REPORT).splitlines()]


def check_second_start(disk: LossyFiles, alive: list[int], reported: int) -> None:
    """Nothing new to tell, nothing more to do, and the store goes on."""
    with PLAN.on(disk).open() as again:
        assert again.recovery.clean
        assert not again.recovery.damages
        assert not again.recovery.findings
        numbered.check(again, alive, damaged=True)
        end = numbered.append_until(again, alive[-1] + 1, alive[-1] + 2)
    assert len(reports(disk)) == reported
    with PLAN.on(disk).open() as again:
        now = [*alive, *range(alive[-1] + 1, end)]
        assert numbered.numbers_in(again) == now
        numbered.check_keys(again, now)


@pytest.mark.parametrize("number", [0, 5, 14, 20, 33])
@pytest.mark.parametrize("fill", ["body", "header", "zeros", "random"])
def test_a_damaged_record_in_the_middle(number: int, fill: str) -> None:
    disk = disks.closed(COUNT, PLAN)
    places = disks.places(disk, PLAN)
    start, end = places[number]
    body_at = start + 88
    match fill:
        case "body":
            before = damage(disk, body_at, bytes([disk.read_all(segment_of(start))[body_at % SEGMENT_BYTES] ^ 1]))
            assert before
        case "header":
            damage(disk, start, b"\xff" * 8)
        case "zeros":
            damage(disk, start, bytes(end - start))
        case _:
            damage(disk, start, bytes((7 * at + 13) % 251 for at in range(end - start)))
    alive = [n for n in range(len(places)) if n != number]
    with PLAN.on(disk).open() as store:
        numbered.check(store, alive, damaged=True)
        (reported,) = store.recovery.damages
    assert (reported.physical_offset, reported.length) == (start, end - start)
    assert reported.action == "replaced by a filler record"
    if fill == "zeros":
        assert reported.kept_in is None  # There is nothing to keep.
    else:
        assert reported.kept_in is not None
        kept = disk.read_all(disks.ROOT / reported.kept_in)
        assert len(kept) == end - start
        if fill == "body":
            assert kept[: body_at - start] != b""
    (line,) = reports(disk)
    assert (line["physical_offset"], line["length"], line["reason"]) == (start, end - start, reported.reason)
    check_second_start(disk, alive, reported=1)


def test_several_records_in_a_row_are_one_damage() -> None:
    disk = disks.closed(COUNT, PLAN)
    places = disks.places(disk, PLAN)
    start, end = places[3][0], places[6][1]
    damage(disk, start, b"\x55" * (end - start))
    alive = [n for n in range(len(places)) if not 3 <= n <= 6]
    with PLAN.on(disk).open() as store:
        numbered.check(store, alive, damaged=True)
        (reported,) = store.recovery.damages
        assert (reported.physical_offset, reported.length) == (start, end - start)
    check_second_start(disk, alive, reported=1)


def test_the_end_of_a_segment_is_closed_by_a_blank() -> None:
    disk = disks.closed(COUNT, PLAN)
    places = disks.places(disk, PLAN)
    last = max(n for n, (start, _) in enumerate(places) if start < SEGMENT_BYTES)
    start = places[last][0]
    damage(disk, start, b"\x55" * (SEGMENT_BYTES - start))
    alive = [n for n in range(len(places)) if n != last]
    with PLAN.on(disk).open() as store:
        numbered.check(store, alive, damaged=True)
        (reported,) = store.recovery.damages
        assert reported.action == "segment closed by a blank"
        assert (reported.physical_offset, reported.length) == (start, SEGMENT_BYTES - start)
    check_second_start(disk, alive, reported=1)


def test_a_whole_segment_of_rubbish() -> None:
    disk = disks.closed(COUNT, PLAN)
    places = disks.places(disk, PLAN)
    damage(disk, SEGMENT_BYTES, b"\x55" * SEGMENT_BYTES)
    alive = [n for n, (start, _) in enumerate(places) if start // SEGMENT_BYTES != 1]
    assert alive[-1] == len(places) - 1
    with PLAN.on(disk).open() as store:
        numbered.check(store, alive, damaged=True)
        assert store.recovery.damages
        reported = len(store.recovery.damages)
    check_second_start(disk, alive, reported=reported)


def test_a_missing_segment_in_the_middle() -> None:
    disk = disks.closed(COUNT, PLAN)
    places = disks.places(disk, PLAN)
    disk.remove(segment_of(SEGMENT_BYTES))
    alive = [n for n, (start, _) in enumerate(places) if start // SEGMENT_BYTES != 1]
    with PLAN.on(disk).open() as store:
        numbered.check_queues(store, alive, range(len(places)))
        numbered.check_keys(store, alive)
        (reported,) = store.recovery.damages
        assert (reported.physical_offset, reported.length, reported.reason) == (
            SEGMENT_BYTES,
            SEGMENT_BYTES,
            "log file missing",
        )
    check_second_start(disk, alive, reported=1)


def test_a_damaged_end_of_a_segment_before_a_missing_one() -> None:
    """Both are reported, and the missing file is replaced: the second start has nothing to do."""
    disk = disks.closed(COUNT, PLAN)
    places = disks.places(disk, PLAN)
    last = max(n for n, (start, _) in enumerate(places) if start < SEGMENT_BYTES)
    start = places[last][0]
    damage(disk, start, b"\x55" * (SEGMENT_BYTES - start))
    disk.remove(segment_of(SEGMENT_BYTES))
    alive = [n for n, (at, _) in enumerate(places) if at < start or at >= 2 * SEGMENT_BYTES]
    with PLAN.on(disk).open() as store:
        numbered.check_queues(store, alive, range(len(places)))
        numbered.check_keys(store, alive)
        assert [reported.physical_offset for reported in store.recovery.damages] == [start, SEGMENT_BYTES]
    assert verify(disks.ROOT, files=disk).is_sound
    check_second_start(disk, alive, reported=2)


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
def test_missing_segments_at_the_end_are_told(closed: bool) -> None:
    disk = disks.closed(COUNT, PLAN) if closed else disks.killed(COUNT, PLAN, at_rest=True)
    places = disks.places(disk, PLAN)
    for path in disks.paths(disk, disks.ROOT / "commitlog"):
        if path > segment_of(0):
            disk.remove(path)
    alive = [n for n, (start, _) in enumerate(places) if start < SEGMENT_BYTES]
    with PLAN.on(disk).open() as store:
        numbered.check(store, alive)
        if closed:
            (reported,) = store.recovery.damages
            assert (reported.physical_offset, reported.reason) == (SEGMENT_BYTES, "log files missing at the end")
        else:
            assert any("commitlog: ends at 8192" in finding for finding in store.recovery.findings)
    with PLAN.on(disk).open() as again:
        assert not again.recovery.damages
        assert not again.recovery.findings
        end = numbered.append_until(again, alive[-1] + 1, COUNT)
        numbered.check(again, range(end))


def test_two_damages_are_told_one_by_one() -> None:
    disk = disks.closed(COUNT, PLAN)
    places = disks.places(disk, PLAN)
    for number in (2, 30):
        damage(disk, places[number][0], b"\xff" * 8)
    alive = [n for n in range(len(places)) if n not in (2, 30)]
    with PLAN.on(disk).open() as store:
        assert [reported.physical_offset for reported in store.recovery.damages] == [places[2][0], places[30][0]]
        numbered.check(store, alive, damaged=True)
    assert len(reports(disk)) == 2
    check_second_start(disk, alive, reported=2)


def test_a_reader_reports_damage_and_changes_nothing() -> None:
    disk = disks.closed(COUNT, PLAN)
    places = disks.places(disk, PLAN)
    damage(disk, places[7][0], b"\xff" * 8)
    before = disks.contents(disk)
    with PLAN.on(disk).open(read_only=True) as store:
        assert [reported.physical_offset for reported in store.recovery.damages] == [places[7][0]]
        assert [n for _, n in numbered.fetch_all(store, numbered.BATCH_TOPIC, 1)][:2] == [8, 9]
    assert disks.contents(disk) == before


def test_a_body_that_looks_like_a_record_is_not_taken_for_one() -> None:
    """The bad record's own size is believed before anything inside it is."""
    disk = LossyFiles()
    with PLAN.on(disk).open() as store:
        first = numbered.append(store, 0)[0]
        inner = disk.read_all(segment_of(0))[: first.size]
        outer = store.append(Message("Outer", b"x" * 40 + inner))
        at = outer.physical_offset
    # Make the inner copy a perfect record of its place, and the outer one damaged.
    inner_at = at + 88 + 40
    damage(disk, inner_at + 28, inner_at.to_bytes(8, "big"))
    with PLAN.on(disk).open() as store:
        assert store.at(inner_at) is None or store.recovery.damages
        assert numbered.fetch_all(store, "Topic0", 0) == [(0, 0)]


def test_a_torn_tail_of_a_large_file_is_kept_without_reading_it_all(tmp_path: Path) -> None:
    settings = StoreSettings(segment_bytes=256 << 20, disk_full_percent=100)
    with MessageStore.open(tmp_path, settings) as store:
        end = store.append_many([Message("t", b"x" * 100)] * 3)[-1].physical_offset
    log = tmp_path / "commitlog" / f"{0:020d}"
    with log.open("r+b") as file:
        file.seek(end + 120)
        file.write(b"\xff" * 10)
    (tmp_path / "abort").touch()
    (tmp_path / "embermq.state").unlink()
    tracemalloc.start()
    try:
        with MessageStore.open(tmp_path, settings) as store:
            assert store.max_offset("t", 0) == 2
            (damage,) = store.recovery.damages
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert damage.kept_in is not None
    kept = (tmp_path / damage.kept_in).read_bytes()
    assert 100 < len(kept) < 400
    assert b"\xff" * 10 in kept
    assert peak_bytes < 64 << 20
    assert not list((tmp_path / "quarantine").glob("*.tmp"))
