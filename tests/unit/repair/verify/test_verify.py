"""Verify: a sound store has no faults, and whatever is changed in one is found, with its file and its place."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.format.checkpoint import Checkpoint, encode_checkpoint
from embermq.format.frame import encode
from embermq.format.index import HEADER_BYTES, entry_at
from embermq.format.queue_entry import ENTRY
from embermq.model.hosts import Host
from embermq.repair.verify.findings import Flaw
from embermq.repair.verify.store_check import VerifyReport, verify
from embermq.settings import FlushDisk
from embermq.store.compare import entries as verify_entries
from embermq.store.compare import keys
from embermq.store.compare import log_pieces as verify_log
from embermq.store.services import retention
from embermq.testing.builder import StoreBuilder
from embermq.testing.lossy_files import LossyFiles
from embermq.testing.unsynced import random_fates
from tests.crash import disks, numbered
from tests.crash.disks import ROOT
from tests.support.bad_disk import BadDisk
from tests.support.kernels import force_compiled, force_plain
from tests.support.waiting import wait_until

COUNT = 120
SLOTS, ENTRIES = 16, 40  # As in numbered.TINY.


def look(disk: LossyFiles, *, fast: bool = False) -> VerifyReport:
    return verify(ROOT, fast=fast, files=disk)


def faults(report: VerifyReport) -> list[Flaw]:
    return [flaw for flaw in report.flaws if flaw.is_fault]


def only_fault(disk: LossyFiles) -> Flaw:
    found = faults(look(disk))
    assert len(found) == 1, found
    return found[0]


def paths(disk: LossyFiles, family: str) -> list[Path]:
    return disks.paths(disk, ROOT / family)


@pytest.fixture(scope="module")
def sound() -> LossyFiles:
    """A store of all kinds of messages, closed cleanly. Copy it before changing anything."""
    return disks.closed(COUNT)


@pytest.fixture(params=["twins", "kernels"])
def tools(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both forms of the loops."""
    force = force_compiled if request.param == "kernels" else force_plain
    force(monkeypatch)
    return str(request.param)


# -- sound stores --------------------------------------------------------------------------------------


def test_a_store_closed_cleanly(sound: LossyFiles, tools: str) -> None:
    before = disks.contents(sound)
    report = look(sound)
    assert report.flaws == []
    assert report.is_clean
    assert report.records == len(disks.places(sound))
    assert report.segments > 2
    assert report.queues > 5
    assert report.queue_entries > 80
    assert report.index_entries > 150
    assert disks.contents(sound) == before


def test_fast(sound: LossyFiles) -> None:
    report = look(sound, fast=True)
    assert report.flaws == []
    assert report.is_fast
    assert report.queue_entries == look(sound).queue_entries


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_what_a_kill_leaves_is_sound(flush: FlushDisk) -> None:
    for at_rest in (False, True):
        disk = disks.killed(COUNT, disks.builder(flush), at_rest=at_rest)
        for fast in (False, True):
            report = look(disk, fast=fast)
            assert report.is_sound, report.flaws
            assert "the store was not closed" in {flaw.fault for flaw in report.flaws}
            assert not report.is_clean


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.slow(5)
def test_what_a_power_cut_leaves_is_sound(seed: int) -> None:
    """Whatever it leaves: the next start repairs it by itself."""
    disk = LossyFiles()
    store = disks.builder().on(disk).open()
    end = numbered.append_until(store, 0, 60)
    disks.rest(store)
    numbered.append_until(store, end, COUNT)
    store.wait_for_dispatch()
    left = disk.crash(random_fates(seed))
    store.close()
    for fast in (False, True):
        report = look(left, fast=fast)
        assert report.is_sound, report.flaws


def test_messages_on_their_way_to_queues_are_counted_and_no_fault() -> None:
    disk = LossyFiles()
    store = disks.builder().on(disk).open()
    numbered.append_until(store, 0, 40)
    left = disk.crash()  # Nothing of the queues was written yet; SYNC_FLUSH has the log.
    store.close()
    report = look(left)
    assert report.is_sound
    assert report.pending_entries > 20
    assert report.pending_keys == 0  # Without index files nobody knows whether there should be any.


def test_an_empty_store() -> None:
    disk = LossyFiles()
    disks.builder().on(disk).open().close()
    report = look(disk)
    assert (report.flaws, report.records, report.segments) == ([], 0, 0)


@pytest.mark.slow
def test_a_store_after_retention() -> None:
    disk = LossyFiles()
    plan = StoreBuilder(ROOT, flush=FlushDisk.SYNC, **(numbered.TINY | {"retention_hours": 0}))
    with plan.on(disk).open() as store:
        numbered.append_until(store, 0, COUNT)
        store.wait_for_dispatch()
        assert store.delete_expired().segments > 0
    report = look(disk)
    assert report.flaws == []
    assert report.log_min > 0


def test_a_topic_that_was_deleted_and_made_again() -> None:
    """Its older records are in the log and have no entries any more."""
    disk = LossyFiles()
    with disks.builder().on(disk).open() as store:
        for n in range(20):
            store.append(Message("T", b"old %d" % n))
        store.wait_for_dispatch()
        assert store.engine.queues is not None
        store.engine.queues.discard("T", 0)
        store.engine.writer.forget_topic("T")
        for n in range(5):
            store.append(Message("T", b"new %d" % n))
    assert look(disk).flaws == []


def test_small_pieces_say_the_same(sound: LossyFiles, tools: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = look(sound)
    for size in (100, 777, 5000):
        monkeypatch.setattr(verify_log, "PIECE_BYTES", size)
        report = look(sound)
        assert (report.flaws, report.records) == ([], expected.records)


def test_many_queues_and_little_memory(tools: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_entries, "POOL_BYTES", 4000)
    disk = LossyFiles()
    with disks.builder().on(disk).open() as store:
        for n in range(600):
            store.append(Message(f"T{n % 150}", b"x", queue_id=n % 2))
    report = look(disk)
    assert (report.flaws, report.queues) == ([], 150)


def test_a_record_inside_a_body_is_no_record(tools: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece of the log may begin inside a body that holds a whole record, even one with the right place."""
    host = Host("127.0.0.1", 10911)
    disk = LossyFiles()
    with disks.builder().on(disk).open() as store:
        receipt = store.append(Message("T", b"x"))
        place = receipt.physical_offset + receipt.size + 88 + 50  # Where the bait will lie.
        bait = encode(
            physical_offset=place,
            queue_id=0,
            queue_offset=77,
            topic="Bait",
            body=b"!",
            properties=b"KEYS\x01bait",
            born_timestamp=1,
            born_host=host,
            store_timestamp=1,
            store_host=host,
        )
        store.append(Message("T", bytes(50) + bait + bytes(300)))
        numbered.append_until(store, 0, 20)
        assert store.engine.log.read(place, len(bait)) == bait
    for size in (97, 300, 350, 1000):
        monkeypatch.setattr(verify_log, "PIECE_BYTES", size)
        assert look(disk).flaws == [], size


# -- damage in the log ---------------------------------------------------------------------------------


# Of a record with two IPv4 hosts: what something else sums up or repeats. The rest nobody can check.
CHECKED = [*range(16), *range(20, 36), *range(84, 88)]


@pytest.mark.parametrize("record", [0, 3, 20])
@pytest.mark.slow(3)
def test_a_turned_bit_in_the_head_of_a_record(sound: LossyFiles, record: int) -> None:
    start, _ = disks.places(sound)[record]
    path, base = segment_of(sound, start)
    for at in CHECKED:
        disk = disks.copy(sound)
        disks.flip(disk, path, 8 * (start - base + at) + 1)
        report = look(disk)
        assert not report.is_sound, at
        assert any(flaw.physical_offset == start or flaw.family != "commitlog" for flaw in faults(report))


def segment_of(disk: LossyFiles, place: int) -> tuple[Path, int]:
    start = max(int(path.name) for path in paths(disk, "commitlog") if int(path.name) <= place)
    return ROOT / "commitlog" / f"{start:020d}", start


def test_a_turned_bit_in_a_body(sound: LossyFiles, tools: str) -> None:
    places = disks.places(sound)
    for start, end in places[5:60:9]:
        path, base = segment_of(sound, start)
        disk = disks.copy(sound)
        disks.flip(disk, path, 8 * (start - base + 89))
        found = [flaw for flaw in faults(look(disk)) if flaw.family == "commitlog"]
        assert [(flaw.physical_offset, flaw.byte_offset) for flaw in found] == [(start, start - base)]
        assert found[0].fault == f"bad crc: {end - start} bytes hold no whole record"
        assert "salvage" in found[0].remedy
        assert found[0].file == f"commitlog/{path.name}"


def test_everything_else_is_still_compared(sound: LossyFiles) -> None:
    """Damage in the log hides no damage in queues and index, and is not reported as theirs."""
    disk = disks.copy(sound)
    start, _ = disks.places(sound)[30]
    path, base = segment_of(sound, start)
    disks.flip(disk, path, 8 * (start - base + 89))
    assert {flaw.family for flaw in faults(look(disk))} == {"commitlog"}
    queue = paths(disk, "consumequeue/Topic1/0")[0]
    disks.flip(disk, queue, 8 * 9)
    assert {flaw.family for flaw in faults(look(disk))} == {"commitlog", "consumequeue"}


def test_zeros_garbage_and_a_cut_in_the_middle(sound: LossyFiles) -> None:
    start, end = disks.places(sound)[10][0], disks.places(sound)[14][0]
    path, base = segment_of(sound, start)
    for filling in (bytes(end - start), b"\xff" * (end - start), bytes(range(256)) * 40):
        disk = disks.copy(sound)
        disks.overwrite(disk, path, start - base, filling[: end - start])
        (found,) = (flaw for flaw in faults(look(disk)) if flaw.family == "commitlog")
        assert found.physical_offset == start
        assert f"{end - start} bytes" in found.fault


@pytest.mark.parametrize("which", [0, 1, -2])
def test_a_missing_log_file(sound: LossyFiles, which: int) -> None:
    disk = disks.copy(sound)
    path = paths(disk, "commitlog")[which]
    disk.remove(path)
    for fast in (False, True):
        report = look(disk, fast=fast)
        if which == 0 and fast:
            continue  # The log just begins later; queues and index are not compared with it.
        found = [flaw for flaw in faults(report) if flaw.family == "commitlog"]
        if which != 0:
            assert [flaw.physical_offset for flaw in found] == [int(path.name)]
            assert "log file missing" in found[0].fault


def test_log_files_missing_at_the_end(sound: LossyFiles) -> None:
    disk = disks.copy(sound)
    last = paths(disk, "commitlog")[-1]
    disk.remove(last)
    report = look(disk)
    found = {flaw.family: flaw for flaw in faults(report)}
    assert found["state"].physical_offset == report.log_end
    assert "once was durable up to" in found["state"].fault
    assert "past the end of the log" in found["consumequeue"].fault
    assert "past the end of the log" in found["index"].fault


def test_short_long_empty_and_foreign_log_files(sound: LossyFiles) -> None:
    first, last = paths(sound, "commitlog")[0], paths(sound, "commitlog")[-1]
    for path, size in ((first, 8192 - 100), (first, 9000), (last, 0), (last, 100)):
        disk = disks.copy(sound)
        disks.shorten(disk, path, size)
        assert any(flaw.file == f"commitlog/{path.name}" for flaw in faults(look(disk))), (path, size)
    disk = disks.copy(sound)
    disk.put(ROOT / "commitlog" / "notes.txt", b"mine")
    report = look(disk)
    assert report.is_sound
    assert [flaw.file for flaw in report.flaws] == ["commitlog/notes.txt"]


def test_damage_that_was_mended_is_known_and_no_fault(sound: LossyFiles) -> None:
    disk = disks.copy(sound)
    start, _ = disks.places(sound)[30]
    path, base = segment_of(sound, start)
    disks.flip(disk, path, 8 * (start - base + 89))
    disk.remove(ROOT / "embermq.inventory.json")  # So that the next start walks the whole log.
    with disks.builder().on(disk).open() as store:
        assert len(store.recovery.damages) == 1
    report = look(disk)
    assert report.is_sound, report.flaws
    reported = "\n".join(flaw.fault for flaw in report.flaws)
    assert "records of topic EMBERMQ_DAMAGED stand where damage was" in reported
    assert "put aside earlier" in reported
    assert "of the queue are lost" in reported


def test_a_torn_tail_of_a_killed_store_is_a_note() -> None:
    disk = disks.killed(40)
    end = disks.places(disk)[-1][1]
    path, base = segment_of(disk, end)
    disks.overwrite(disk, path, end - base, b"\x00\x00\x01\x00\xda\xa3")
    report = look(disk)
    assert report.is_sound
    (note,) = (flaw for flaw in report.flaws if flaw.family == "commitlog")
    assert (note.physical_offset, note.remedy) == (end, "nothing: the next start makes it again")


def test_a_disk_with_bad_blocks(sound: LossyFiles) -> None:
    path = paths(sound, "commitlog")[1]
    bad = BadDisk(disks.copy(sound), {path: [4096 + 7]})
    found = faults(verify(ROOT, files=bad))
    blocks = [flaw for flaw in found if "cannot read" in flaw.fault]
    assert [(flaw.file, flaw.byte_offset, flaw.count) for flaw in blocks] == [(f"commitlog/{path.name}", 4096, 1)]
    assert any("hold no whole record" in flaw.fault for flaw in found)


# -- damage in queues ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_byte_of_a_queue_entry_counts(sound: LossyFiles) -> None:
    path = paths(sound, "consumequeue/Topic0/1")[0]
    for at in range(40):
        disk = disks.copy(sound)
        disks.flip(disk, path, 8 * at + at % 8)
        flaw = only_fault(disk)
        assert flaw.file == str(path.relative_to(ROOT))
        assert (flaw.queue_offset, flaw.byte_offset) == (at // 20, at // 20 * 20)
        assert "rebuild /store --queues" in flaw.remedy


def test_a_entry_that_nobody_claims(sound: LossyFiles) -> None:
    """Behind the last entry of a queue lies one that leads to a record of another queue."""
    queue = ROOT / "consumequeue/Topic0/1"
    path = paths(sound, "consumequeue/Topic0/1")[-1]
    entries = sound.read_all(path)
    end = next(at for at in range(0, len(entries), 20) if not entries[at + 8 : at + 12].strip(b"\0"))
    start, after = disks.places(sound)[-1]
    disk = disks.copy(sound)
    disks.overwrite(disk, path, end, ENTRY.pack(start, after - start, 0))
    flaw = only_fault(disk)
    assert "where no record of it is" in flaw.fault
    assert flaw.file.startswith(str(queue.relative_to(ROOT)))


@pytest.mark.parametrize("fast", [False, True])
def test_queue_files_missing_short_and_zeroed(sound: LossyFiles, fast: bool) -> None:
    files = paths(sound, "consumequeue/Topic0/1")
    assert len(files) > 1
    for path in files:
        for change in ("remove", "shorten", "zero"):
            disk = disks.copy(sound)
            if change == "remove":
                disk.remove(path)
            elif change == "shorten":
                disks.shorten(disk, path, 40)
            else:
                disks.overwrite(disk, path, 0, bytes(160))
            report = look(disk, fast=fast)
            is_last = path == files[-1]
            if not (fast and change == "remove" and is_last):  # Without the length of the log it cannot be known.
                assert any("Topic0/1" in flaw.file for flaw in faults(report)), (path, change)


def test_a_whole_queue_is_missing(sound: LossyFiles) -> None:
    disk = disks.copy(sound)
    for path in paths(disk, "consumequeue/Topic0/1"):
        disk.remove(path)
    flaw = only_fault(disk)
    assert flaw.queue_offset == 0
    assert flaw.fault == "the record of queue offset 0 has no entry"
    assert flaw.count > 5


def test_of_a_killed_store_only_what_a_start_believes_is_a_fault() -> None:
    """Below the proofs a wrong entry stays wrong; behind them it is made again."""
    disk = disks.killed(COUNT, at_rest=True)
    path = paths(disk, "consumequeue/Topic0/1")[0]
    disks.flip(disk, path, 8 * 3)
    assert "Topic0/1" in only_fault(disk).file
    disk.remove(ROOT / "embermq.state")
    report = look(disk)
    assert report.is_sound  # Now everything is made again.


def test_two_records_with_the_same_queue_offset(sound: LossyFiles) -> None:
    """The CRC does not cover the head: a queue offset that repeats another is found by counting."""
    disk = disks.copy(sound)
    with disks.builder().on(disks.copy(sound)).open(read_only=True) as store:
        records = [one for one in store.scan() if (one.topic, one.queue_id) == ("Topic0", 1)]
    one = records[3]
    path, base = segment_of(disk, one.physical_offset)
    disks.overwrite(disk, path, one.physical_offset - base + 20, (one.queue_offset - 1).to_bytes(8, "big"))
    found = {flaw.fault: flaw for flaw in faults(look(disk))}
    assert "this queue offset was given twice: two records of the log claim it" in found


# -- damage in the index -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [16 << 20, 700])
@pytest.mark.slow(4)
def test_every_byte_of_an_index_entry_counts(
    sound: LossyFiles, size: int, tools: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_log, "PIECE_BYTES", size)
    path = paths(sound, "index")[1]
    for number in (1, 7, 39):
        for at in range(0, 20, 3):
            disk = disks.copy(sound)
            place = entry_at(number, SLOTS) + at
            disks.flip(disk, path, 8 * place + 1)
            found = faults(look(disk))
            if 12 <= at < 16 and number == 1:
                continue  # Seconds of a file's first record count from the file before it.
            assert found, (number, at)
            assert {flaw.file for flaw in found} == {f"index/{path.name}"}
            assert any(flaw.byte_offset == entry_at(number, SLOTS) for flaw in found), (number, at, found)
            assert all("rebuild /store --index" in flaw.remedy for flaw in found)


@pytest.mark.slow(2)
def test_slots_and_headers(sound: LossyFiles) -> None:
    for path in paths(sound, "index")[:2]:
        for at in (*range(32), 36, 39):
            disk = disks.copy(sound)
            disks.flip(disk, path, 8 * at + 5)
            if at not in (6, 7, 14, 15):  # Less than a second.
                assert not look(disk).is_sound, at
        for slot in range(SLOTS):
            disk = disks.copy(sound)
            disks.flip(disk, path, 8 * (HEADER_BYTES + 4 * slot + 3))
            found = faults(look(disk))
            assert [flaw.byte_offset for flaw in found] == [HEADER_BYTES + 4 * slot], slot


@pytest.mark.parametrize("count", [0, -5])
def test_a_header_that_counts_no_entries(sound: LossyFiles, count: int) -> None:
    disk = disks.copy(sound)
    path = paths(disk, "index")[0]
    disks.overwrite(disk, path, 36, count.to_bytes(4, "big", signed=True))
    assert any("counts no entries" in flaw.fault and flaw.file.endswith(path.name) for flaw in faults(look(disk)))


def test_index_files_without_any_entry_are_told(sound: LossyFiles) -> None:
    disk = disks.copy(sound)
    for path in paths(disk, "index"):
        disks.overwrite(disk, path, 0, bytes(disk.stat(path).size))
    assert any("holds no entries" in flaw.fault for flaw in look(disk).flaws)


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_missing_index_file(sound: LossyFiles, which: int) -> None:
    disk = disks.copy(sound)
    disk.remove(paths(disk, "index")[which])
    found = faults(look(disk))
    assert {flaw.family for flaw in found} == {"index"}
    assert any("no entry" in flaw.fault for flaw in found)


def test_keys_without_entries_are_few_findings_with_their_number(sound: LossyFiles, tools: str) -> None:
    disk = disks.copy(sound)
    disk.remove(paths(disk, "index")[0])
    report = look(disk)
    missing = [flaw for flaw in faults(report) if "have no entry" in flaw.fault]
    assert sum(flaw.count for flaw in missing) == ENTRIES - 1
    assert len(missing) <= 3  # one for each piece of the log that was read
    assert missing[0].fault.startswith(f"keys of records from {missing[0].physical_offset} to ")
    assert report.faulty_places >= ENTRIES - 1 > report.faults


def test_every_wrong_entry_counts_however_many_there_are(
    sound: LossyFiles, tools: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Single entries all over a file are wrong: as many places as are wrong, in a bounded number of findings."""
    monkeypatch.setattr(keys, "_RUNS_MAX", 1)
    path, wrong = paths(sound, "index")[1], range(2, ENTRIES - 2, 4)
    disk = disks.copy(sound)
    for number in wrong:
        disks.flip(disk, path, 8 * entry_at(number, SLOTS) + 1)
    found = [flaw for flaw in faults(look(disk)) if "the log has" in flaw.fault or "are not those" in flaw.fault]
    assert sum(flaw.count for flaw in found) == len(wrong)
    assert len(found) <= 3 < len(wrong)  # one for each piece of the log that was read
    assert {flaw.file for flaw in found} == {f"index/{path.name}"}


def test_an_entry_too_many_and_one_too_few(sound: LossyFiles, tools: str) -> None:
    """Move the entries of a full file by one: the first is lost and the last is there twice."""
    path = paths(sound, "index")[0]
    content = sound.read_all(path)
    first, after = entry_at(1, SLOTS), entry_at(ENTRIES, SLOTS)
    entries = content[first:after]
    disk = disks.copy(sound)
    disks.overwrite(disk, path, first, entries[20:] + entries[-20:])
    faulty = [flaw.fault for flaw in faults(look(disk))]
    assert any("no entry" in fault for fault in faulty), faulty


@pytest.mark.parametrize("size", [0, 100, 2000])
def test_an_index_file_of_the_wrong_length(sound: LossyFiles, size: int) -> None:
    disk = disks.copy(sound)
    path = paths(disk, "index")[1]
    disks.shorten(disk, path, size)
    for fast in (False, True):
        assert f"index/{path.name}" in {flaw.file for flaw in faults(look(disk, fast=fast))}


# -- checkpoint, config, proofs ------------------------------------------------------------------------


def test_checkpoint(sound: LossyFiles) -> None:
    path = ROOT / "checkpoint"
    far = encode_checkpoint(Checkpoint(1 << 45, 0, 0))
    for content in (b"", b"short", far):
        disk = disks.copy(sound)
        disk.replace_file(path, content)
        assert only_fault(disk).family == "checkpoint"
    disk = disks.copy(sound)
    disk.remove(path)
    assert [flaw.fault for flaw in look(disk).flaws] == ["is missing"]


def test_config(sound: LossyFiles) -> None:
    disk = disks.copy(sound)
    config = ROOT / "config"
    disk.put(config / "consumerOffset.json", json.dumps({"offsetTable": {"Topic0@g": {"1": 3}}}).encode())
    assert look(disk).flaws == []
    disk.replace_file(config / "consumerOffset.json", b'{"offsetTable":{"Topic0@g":{1:3000}}}')
    flaw = only_fault(disk)
    assert flaw.file == "config/consumerOffset.json"
    assert "group g is at offset 3000 of Topic0/1, which ends at" in flaw.fault
    disk.replace_file(config / "consumerOffset.json", b"{")
    assert "cannot be read" in only_fault(disk).fault
    disk.remove(config / "consumerOffset.json")
    disk.put(config / "delayOffset.json", b'{"offsetTable":{1:99}}')
    assert "delivery of level 1 is at offset 99" in only_fault(disk).fault


@pytest.mark.slow
def test_proofs_that_cannot_be_read_are_notes(sound: LossyFiles) -> None:
    for name in ("embermq.index.json", "embermq.inventory.json"):
        disk = disks.copy(sound)
        disk.replace_file(ROOT / name, b"{}")
        report = look(disk)
        assert report.is_sound
        assert [flaw.file for flaw in report.flaws] == [name]
    disk = disks.copy(sound)
    disks.flip(disk, ROOT / "embermq.state", 8 * 20)
    report = look(disk)
    assert [flaw.file for flaw in report.flaws] == ["embermq.state"]
    assert report.is_sound


# -- a store that is being written ---------------------------------------------------------------------


@contextmanager
def busy(store: MessageStore, bytes_max: int = 1 << 40) -> Iterator[None]:
    """Somebody appends, as long as the log is not longer than that."""
    stop = threading.Event()

    def append() -> None:
        n = 0
        while not stop.is_set():
            store.append(Message(f"T{n % 5}", b"%d" % n * 20, keys=[f"k{n}", "all"], tags="t", queue_id=n % 3))
            n += 1
            while n % 20 == 0 and not stop.wait(0.002) and store.max_physical - store.min_physical > bytes_max:
                pass

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("flush", list(FlushDisk))
@pytest.mark.slow(6)
def test_no_false_alarm_while_somebody_writes(tmp_path: Path, flush: FlushDisk) -> None:
    plan = StoreBuilder(
        tmp_path / "store",
        flush=flush,
        segment_bytes=1 << 18,
        queue_file_bytes=20 * 500,
        index_slots_max=500,
        index_entries_max=2000,
    )
    with plan.open() as store, busy(store):
        wait_until(lambda: store.max_physical > 1 << 19)
        for fast in (False, True, False):
            report = verify(plan.root, fast=fast)
            assert report.is_live
            assert report.is_sound, report.flaws
    assert verify(plan.root).flaws == []


def test_no_false_alarm_while_old_files_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "FIRST_LOOK_SECONDS", 0.01)
    plan = StoreBuilder(
        tmp_path / "store",
        segment_bytes=1 << 16,
        queue_file_bytes=20 * 50,
        index_slots_max=100,
        index_entries_max=400,
        retention_hours=0,
        clean_interval_ms=20,
        delete_segment_pause_ms=1,
        delete_queue_pause_ms=0,
        delete_when=";".join(str(hour) for hour in range(24)),
    )
    with plan.open() as store, busy(store, 1 << 20):
        wait_until(lambda: store.min_physical > 1 << 18)
        for _ in range(5):
            gone = store.min_physical
            report = verify(plan.root)
            wait_until(lambda: store.min_physical > gone)  # noqa: B023
            assert report.is_sound, report.flaws


@pytest.mark.slow
def test_a_fault_in_a_running_store_is_found(tmp_path: Path) -> None:
    plan = StoreBuilder(tmp_path / "store", queue_file_bytes=20 * 50)
    with plan.open() as store:
        for n in range(200):
            store.append(Message("T", b"%d" % n))
        disks.rest(store)
        path = sorted((plan.root / "consumequeue/T/0").iterdir())[1]
        raw = bytearray(path.read_bytes())
        raw[105] ^= 1
        path.write_bytes(raw)
        found = faults(verify(plan.root))
        assert [(flaw.queue_offset, flaw.byte_offset) for flaw in found] == [(55, 100)]


def test_a_file_that_retention_takes_between_two_others_is_no_hole(
    sound: LossyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first file was read, then both it and the second go: the queues still have entries of the second."""
    disk = disks.copy(sound)
    first, second = paths(disk, "commitlog")[:2]
    read = verify_log.LogPieces.read_cut

    def read_late(pieces: verify_log.LogPieces, cut: verify_log.Cut) -> verify_log.CheckedPiece | None:
        if cut.segment.path == second and disk.exists(second):
            disk.remove(first)
            disk.remove(second)
        return read(pieces, cut)

    monkeypatch.setattr(verify_log, "_THREADS_MAX", 1)
    monkeypatch.setattr(verify_log.LogPieces, "read_cut", read_late)
    report = look(disk)
    assert not disk.exists(second)
    assert [flaw for flaw in faults(report) if flaw.family in ("commitlog", "consumequeue")] == []


def test_a_log_alone_is_sound(sound: LossyFiles) -> None:
    """The next start makes queues and index again: nothing is wrong that it would not repair."""
    disk = disks.copy(sound)
    for family in ("consumequeue", "index"):
        for path in paths(disk, family):
            disk.remove(path)
    report = look(disk)
    assert faults(report) == []
    assert report.queue_entries == 0
    assert report.pending_entries > COUNT // 2
    assert faults(look(disk, fast=True)) == []


def test_a_log_file_that_grew(sound: LossyFiles) -> None:
    disk = disks.copy(sound)
    first = paths(disk, "commitlog")[0]
    length = len(disk.read_all(first))
    file = disk.open(first, True)
    file.pwrite(b"x", length)
    file.close()
    flaw = only_fault(disk)
    assert flaw.file == f"commitlog/{first.name}"
    assert flaw.fault == f"{length + 1} bytes instead of {length}"
    assert f"truncate -s {length} {first}" in flaw.remedy
