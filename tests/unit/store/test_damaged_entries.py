"""Reading on behind damage: every fetch leads further, nothing intact is left out, and the log is searched once."""

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.files import OpenFile, RealFiles
from embermq.store.log import bad_stretches, walked_log
from embermq.store.queues import damaged_entries
from embermq.testing.faulty_files import FaultyFile, FaultyFiles

SEGMENT_BYTES = 256 << 10
SETTINGS = StoreSettings(
    segment_bytes=SEGMENT_BYTES,
    queue_file_bytes=20 * 1000,
    index_slots_max=100,
    index_entries_max=20_000,
    disk_full_percent=100,
)
TOPICS, QUEUES, COUNT = 3, 2, 4_500
LOG_BYTES = COUNT * 280  # At least.

Place = tuple[str, int, int]  # Topic, queue id, queue offset.


class CountingFiles(FaultyFiles):
    """Counts the bytes that are read of log files."""

    def __init__(self) -> None:
        super().__init__(RealFiles())
        self.log_bytes = 0

    def open(self, path: Path, writable: bool) -> OpenFile:
        return _CountingFile(self, self.inner.open(path, writable))


class _CountingFile(FaultyFile):
    def pread(self, count: int, at: int) -> bytes:
        files = self._files
        assert isinstance(files, CountingFiles)
        files.log_bytes += count if self.path.parent.name == "commitlog" else 0
        return super().pread(count, at)


@pytest.fixture
def files() -> CountingFiles:
    return CountingFiles()


@pytest.fixture
def store(tmp_path: Path, files: CountingFiles) -> Iterator[MessageStore]:
    """All its entries are in the files; log files but the last are read by pread."""
    with MessageStore.open(tmp_path, SETTINGS) as made:
        for n in range(0, COUNT, 500):
            made.append_many(Message(f"t{i % TOPICS}", bytes(200), queue_id=i % QUEUES) for i in range(n, n + 500))
    with MessageStore.open(tmp_path, SETTINGS, files=files) as opened:
        yield opened


def places(store: MessageStore) -> dict[Place, tuple[int, int]]:
    """Start and end of the record of each place."""
    return {(one.topic, one.queue_id, one.queue_offset): (one.physical_offset, one.end) for one in store.scan()}


def read_all(store: MessageStore) -> set[Place]:
    """What consumers get that fetch from the beginning of each queue to its end."""
    got: set[Place] = set()
    for topic, queue_ids in store.topics().items():
        for queue_id in queue_ids:
            at, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            while at < end:
                outcome = store.fetch(topic, queue_id, at, 32)
                assert outcome.next_offset > at
                got |= {(one.topic, one.queue_id, one.queue_offset) for one in outcome.messages}
                at = outcome.next_offset
    return got


def log_file(store: MessageStore, number: int) -> Path:
    return store.path / "commitlog" / f"{number * SEGMENT_BYTES:020d}"


def queue_files(store: MessageStore) -> list[Path]:
    return sorted(path for path in (store.path / "consumequeue").rglob("*") if path.is_file())


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def searched(store: MessageStore) -> int:
    damaged = store.engine.fetcher.damaged
    return damaged.stretches.searched_bytes + damaged.walked.walked_bytes


@pytest.mark.parametrize("noise", [False, True], ids=["zeros", "noise"])
@pytest.mark.slow
def test_damage_in_the_log_costs_one_search(
    store: MessageStore, files: CountingFiles, noise: bool, caplog: pytest.LogCaptureFixture
) -> None:
    where = places(store)
    files.log_bytes = 0
    assert read_all(store) == set(where)
    sound_bytes = files.log_bytes
    at, length = 50_000, 150_000
    overwrite(log_file(store, 2), at, random.Random(1).randbytes(length) if noise else bytes(length))
    start, end = 2 * SEGMENT_BYTES + at, 2 * SEGMENT_BYTES + at + length
    intact = {place for place, (begin, after) in where.items() if after <= start or begin >= end}
    assert len(intact) < len(where) - 300
    files.log_bytes = 0
    with caplog.at_level(logging.WARNING):
        assert read_all(store) == intact
    assert files.log_bytes < sound_bytes + 4 * length
    assert searched(store) < 4 * length
    assert [record.message.split(" physical")[0] for record in caplog.records] == ["log damaged"]
    assert store.stats().damages == 1
    before = searched(store)
    assert read_all(store) == intact  # What was found is remembered.
    assert searched(store) == before
    ((known_start, known_end),) = store.engine.fetcher.damaged.stretches.known()
    assert known_start <= start < end <= known_end


def test_two_log_files_that_changed_places(store: MessageStore) -> None:
    where = places(store)
    one, other = log_file(store, 1).read_bytes(), log_file(store, 4).read_bytes()
    overwrite(log_file(store, 1), 0, other)
    overwrite(log_file(store, 4), 0, one)
    intact = {place for place, (begin, _) in where.items() if begin // SEGMENT_BYTES not in (1, 4)}
    assert read_all(store) == intact
    assert searched(store) < 6 * SEGMENT_BYTES
    assert store.stats().damages == 2


def test_many_small_damages(store: MessageStore) -> None:
    where = places(store)
    damaged = set(range(3 * SEGMENT_BYTES + 1000, 4 * SEGMENT_BYTES, 5000))
    for at in damaged:
        overwrite(log_file(store, 3), at % SEGMENT_BYTES, b"\xff")
    intact = {place for place, span in where.items() if damaged.isdisjoint(range(*span))}
    got = read_all(store)
    assert got >= intact  # No checksum covers the head of a record.
    assert len(got) < len(where)
    assert store.stats().damages <= len(damaged)


@pytest.mark.parametrize("noise", [False, True], ids=["zeros", "noise"])
def test_damaged_queue_files_cost_one_walk_over_the_log(
    store: MessageStore, files: CountingFiles, noise: bool, caplog: pytest.LogCaptureFixture
) -> None:
    where = places(store)
    chance = random.Random(2)
    for path in queue_files(store):
        overwrite(path, 20 * 30, chance.randbytes(20 * 700) if noise else bytes(20 * 700))
    with caplog.at_level(logging.WARNING):
        assert read_all(store) == set(where)
    log_bytes = max(end for _, end in where.values())
    assert log_bytes >= LOG_BYTES
    assert searched(store) < 2 * log_bytes
    assert len(caplog.records) < 10 * TOPICS * QUEUES
    assert store.stats().damages == 0


def test_what_a_short_memory_has_forgotten_is_found_again(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds of what is remembered cost time, and nothing else."""
    monkeypatch.setattr(walked_log, "BLOCK_BYTES", 64 << 10)
    monkeypatch.setattr(walked_log, "RECORDS_KEPT_MAX", 100)
    monkeypatch.setattr(walked_log, "_WINDOW_BYTES", 4096)
    monkeypatch.setattr(damaged_entries, "RUNS_MAX", 1)
    monkeypatch.setattr(damaged_entries, "REPORTED_MAX", 1)
    monkeypatch.setattr(bad_stretches, "STRETCHES_MAX", 2)
    where = places(store)
    for path in queue_files(store):
        overwrite(path, 20 * 500, bytes(20 * 50))
    for at in range(0, SEGMENT_BYTES, 50_000):
        overwrite(log_file(store, 0), at, b"\xff" * 1000)
    damaged = [range(at, at + 1000) for at in range(0, SEGMENT_BYTES, 50_000)]
    intact = {
        place for place, (begin, end) in where.items() if all(end <= one.start or begin >= one.stop for one in damaged)
    }
    assert read_all(store) == intact


def test_damage_in_log_and_queue(store: MessageStore) -> None:
    where = places(store)
    overwrite(log_file(store, 1), 100_000, bytes(100_000))
    start, end = SEGMENT_BYTES + 100_000, SEGMENT_BYTES + 200_000
    for path in queue_files(store):
        overwrite(path, 20 * 100, random.Random(3).randbytes(20 * 300))
    intact = {place for place, (begin, after) in where.items() if after <= start or begin >= end}
    assert read_all(store) == intact
    assert searched(store) < 3 * LOG_BYTES


@pytest.mark.parametrize("size", [1 << 30, 0x7FFFFFFF, 1, -5])
@pytest.mark.slow
def test_an_entry_with_a_wrong_size_reads_no_more_of_the_log_than_its_record(
    store: MessageStore, files: CountingFiles, size: int
) -> None:
    path = queue_files(store)[0]
    for queue_offset in range(100, 400):
        overwrite(path, 20 * queue_offset + 8, (size & 0xFFFFFFFF).to_bytes(4, "big"))
    files.log_bytes = 0
    assert len(read_all(store)) == COUNT
    assert files.log_bytes < 4 * COUNT * 320 + (8 << 20)


def test_records_longer_than_a_window_and_of_both_kinds_of_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walked_log, "_WINDOW_BYTES", 1024)
    monkeypatch.setattr(bad_stretches, "_WINDOW_BYTES", 1024)
    settings = SETTINGS.replace(broker_ip="::1")
    with MessageStore.open(tmp_path, settings) as store:
        sizes = [10, 5000, 200, 40_000, 900, 1, 30_000]
        store.append_many(Message("t", bytes(size)) for size in sizes * 4)
        assert store.wait_for_dispatch()
        store.engine.services.housekeeping.make_durable()
        (path,) = queue_files(store)
        overwrite(path, 20, bytes(20 * 20))
        assert len(read_all(store)) == 28


def test_prepared_records_take_no_place_in_a_queue(tmp_path: Path) -> None:
    """They have queue offset 0, and are of the same topic and queue."""
    with MessageStore.open(tmp_path, SETTINGS) as store:
        store.append(Message("t", b"prepared", sys_flag=4))
        first = store.append(Message("t", b"first"))
        store.append(Message("t", b"second"))
        assert store.wait_for_dispatch()
        store.engine.services.housekeeping.make_durable()
        (path,) = queue_files(store)
        overwrite(path, 0, (7).to_bytes(8, "big"))
        assert [one.body for one in store.fetch("t", 0, 0).messages] == [b"first", b"second"]
        assert first.queue_offset == 0


def test_a_damaged_entry_says_nothing_about_tags(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SETTINGS) as store:
        store.append_many(Message("t", b"%d" % n, tags="paid" if n % 2 else "sent") for n in range(40))
        assert store.wait_for_dispatch()
        store.engine.services.housekeeping.make_durable()
        (path,) = queue_files(store)
        overwrite(path, 20 * 10, bytes(20 * 10))
        got = store.fetch("t", 0, 0, 100, tags="paid").messages
        assert [int(one.body) for one in got] == list(range(1, 40, 2))
