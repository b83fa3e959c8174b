"""Consume queues by hand-made logs: what becomes an entry and where, and what survives what."""

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.files import Files
from embermq.format.queue_entry import ENTRY, ENTRY_BYTES
from embermq.model.flags import COMMIT, PREPARED, ROLLBACK
from embermq.store.queues import consume_queues as module
from embermq.store.queues import entry_intake as entry_intake
from embermq.store.queues.consume_queue import BLANK, ConsumeQueue, Entry
from embermq.store.queues.consume_queues import ConsumeQueues
from embermq.store.queues.multi_dispatch import MultiDispatch
from embermq.testing.clock import ManualClock
from embermq.testing.faulty_files import FaultyFiles
from embermq.testing.lossy_files import LossyFiles
from tests.support.derived import last_physical, pending_count
from tests.support.records import LogOfRecords

ROOT = Path("/store/consumequeue")
ENTRIES = 10  # per file


def opened(files: Files, **options: object) -> ConsumeQueues:
    files.make_directory(ROOT)
    return ConsumeQueues(ROOT, files, ENTRIES * ENTRY_BYTES, ManualClock(), **options)  # type: ignore[arg-type]


def reopened(files: Files, **options: object) -> ConsumeQueues:
    queues = opened(files, **options)
    assert queues.load() == []
    return queues


def physicals(queue: ConsumeQueue | None) -> list[int]:
    """Physical offsets of all entries, read file by file."""
    assert queue is not None
    found: list[int] = []
    at = queue.min_offset
    while at < queue.max_offset:
        entries = queue.entries(at, 1000)
        assert 0 < len(entries) <= ENTRIES
        found += entries["physical_offset"].tolist()
        at += len(entries)
    return found


def path_of(topic: str, queue_id: int, number: int) -> Path:
    return ROOT / topic / str(queue_id) / f"{number * ENTRIES * ENTRY_BYTES:020d}"


def log_of(count: int, topic: str = "T", first: int = 0) -> LogOfRecords:
    log = LogOfRecords()
    for n in range(count):
        log.append(topic, 0, first + n)
    return log


# What becomes an entry


@pytest.mark.parametrize("batch", [1, 1000], ids=["one by one", "together"])
def test_only_plain_and_committed_records_get_a_entry(batch: int) -> None:
    log = LogOfRecords()
    for n in range(100):
        for sys_flag in (0, PREPARED, ROLLBACK):
            log.append("T", 1, n if sys_flag == 0 else 0, sys_flag=sys_flag)
    log.append("T", 1, 100, sys_flag=COMMIT)
    queues = opened(LossyFiles())
    log.feed(queues, batch=batch)
    assert physicals(queues.find("T", 1)) == [*log.offsets[:-1:3], log.offsets[-1]]
    assert queues.topics() == {"T": [1]}
    assert queues.position == queues.max_physical == log.end


@pytest.mark.parametrize("batch", [1, 1000], ids=["one by one", "together"])
@pytest.mark.parametrize("topic", ["..", ".", "../up", "a/b", "x" * 126 + "é"])
def test_a_topic_never_leads_out_of_the_directory(topic: str, batch: int) -> None:
    files = LossyFiles()
    queues = opened(files)
    log = LogOfRecords()
    for n in range(80):
        log.append(topic if len(topic.encode()) < 128 else "ok", 0, n)
        log.append("T", 0, n)
    log.feed(queues, batch=batch)
    queues.flush()
    assert set(queues.topics()) <= {"T", "ok"}
    assert [entry.name for entry in files.list_directory(Path("/store"))] == ["consumequeue"]


@pytest.mark.parametrize("batch", [1, 1000], ids=["one by one", "together"])
def test_a_hole_is_filled_with_copies_of_the_entry_behind_it(batch: int) -> None:
    log = LogOfRecords()
    for n in range(130):  # Others stand where 23 records of the queue were lost.
        log.append("U" if 40 <= n < 63 else "T", 0, n - 40 if 40 <= n < 63 else n)
    files = LossyFiles()
    queues = opened(files)
    log.feed(queues, batch=batch)
    expected = [log.offsets[63 if 40 <= wanted < 63 else wanted] for wanted in range(130)]
    assert physicals(queues.find("T", 0)) == expected
    queues.flush()
    assert physicals(reopened(files).find("T", 0)) == expected


@pytest.mark.parametrize("queue_offset", [-1, 1 << 40, (1 << 62), -(1 << 63)])
def test_an_impossible_queue_offset_makes_no_entry(queue_offset: int) -> None:
    log = log_of(3)
    log.append("T", 0, queue_offset)
    log.append("T", 0, 3)
    queues = opened(LossyFiles())
    log.feed(queues)
    assert physicals(queues.find("T", 0)) == [*log.offsets[:3], log.offsets[4]]


@pytest.mark.parametrize("first", [5, 20, 23])
def test_a_queue_that_does_not_begin_at_zero_begins_with_blanks(first: int) -> None:
    log = log_of(15, first=first)
    files = LossyFiles()
    queues = opened(files)
    log.feed(queues)
    queues.flush()
    for seen in (queues, reopened(files)):
        queue = seen.find("T", 0)
        assert queue is not None
        assert (queue.min_offset, queue.max_offset) == (first, first + 15)
        assert queue.entry(first - 1) is None
        assert physicals(queue) == log.offsets
    content = files.read_all(path_of("T", 0, first // ENTRIES))
    assert content[: first % ENTRIES * ENTRY_BYTES] == ENTRY.pack(*BLANK) * (first % ENTRIES)
    assert len(files.list_directory(ROOT / "T" / "0")) == -(-(first + 15) // ENTRIES) - first // ENTRIES


def test_a_queue_whose_records_have_all_left_the_log_goes_on_further_up() -> None:
    files = LossyFiles()
    log = log_of(25)
    late = log.append("T", 0, 10_000)
    queues = opened(files, log_min=lambda: late)
    log.feed(queues)
    queues.flush()
    queue = reopened(files).find("T", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (10_000, 10_001)
    assert [entry.name for entry in files.list_directory(ROOT / "T" / "0")] == [f"{10_000 * ENTRY_BYTES:020d}"]


def test_multi_dispatch_gives_each_named_queue_a_entry() -> None:
    log = LogOfRecords()
    for n in range(100):
        named = {"INNER_MULTI_DISPATCH": "%LMQ%a,other", "INNER_MULTI_QUEUE_OFFSET": f"{n // 2},{n}"}
        log.append("T", 3, n, properties=named if n % 2 == 0 else None, body=b"INNER_MULTI_DISPATCH\x01")
        if n % 2:
            log.append("other", 3, n)
    for batch in (1, 1000):
        queues = opened(LossyFiles(), multi_dispatch=MultiDispatch(light_queues=True))
        log.feed(queues, batch=batch)
        assert queues.topics() == {"%LMQ%a": [0], "T": [3], "other": [3]}
        assert len(physicals(queues.find("%LMQ%a", 0))) == 50
        assert len(physicals(queues.find("other", 3))) == 100
    plain = opened(LossyFiles())
    log.feed(plain)
    assert plain.find("%LMQ%a", 0) is None


@pytest.mark.parametrize("offsets", ["", "1", "1,x", "1,2,3"])
def test_multi_dispatch_lists_that_disagree_are_ignored(offsets: str) -> None:
    log = LogOfRecords()
    log.append("T", 0, 0, properties={"INNER_MULTI_DISPATCH": "a,b", "INNER_MULTI_QUEUE_OFFSET": offsets})
    queues = opened(LossyFiles(), multi_dispatch=MultiDispatch(light_queues=False))
    log.feed(queues)
    assert queues.topics() == {"T": [0]}


# Against a model


class Model:
    """Queues as plain lists."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, int], list[tuple[int, int]]] = {}

    def cut(self, physical_offset: int) -> None:
        for key, entries in list(self.entries.items()):
            self.entries[key] = [entry for entry in entries if entry[1] < physical_offset]
            if not self.entries[key]:
                del self.entries[key]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 5), min_size=1, max_size=150)),
        st.tuples(st.sampled_from(["write_out", "flush", "reload", "again", "replay"]), st.just([0])),
        st.tuples(st.sampled_from(["truncate", "discard", "late_replay"]), st.lists(st.integers(0, 99), min_size=1)),
    ),
    max_size=12,
)


@settings(max_examples=80, deadline=None)
@given(STEPS)
def test_queues_are_lists(steps: list[tuple[str, list[int]]]) -> None:
    files = LossyFiles()
    queues, log, model = opened(files), LogOfRecords(), Model()
    alive = 0  # Records before this one were cut or are of deleted queues.
    for what, numbers in steps:
        if what == "append":
            first = len(log.offsets)
            for number in numbers:
                key = f"T{number % 3}", number // 3
                entries = model.entries.setdefault(key, [])
                at = log.append(*key, len(entries), tags=f"tag{number}")
                entries.append((len(entries), at))
            log.feed(queues, first)
        elif what == "write_out":
            queues.write_out()
        elif what == "flush":
            queues.flush()
        elif what == "reload":
            queues.flush()
            queues = opened(files)
            assert queues.load() == []
        elif what == "again":
            log.feed(queues, alive)
        elif what in ("replay", "late_replay"):
            start = alive + (len(log.offsets) - alive) * numbers[0] // 100
            queues.begin_replay()
            log.feed(queues, start)
            queues.finish_replay(log.offsets[start] if start < len(log.offsets) else log.end, log.end)
        elif what == "truncate" and log.offsets:
            keep = alive + (len(log.offsets) - alive) * numbers[0] // 100
            if keep < len(log.offsets):
                cut = log.offsets[keep]
                queues.truncate_to(cut)
                model.cut(cut)
                log = log.cut(keep)
        elif what == "discard" and model.entries:
            key = sorted(model.entries)[numbers[0] % len(model.entries)]
            queues.discard(*key)
            del model.entries[key]
            alive = len(log.offsets)
            queues.flush()
        agree(queues, model)
    queues.flush()
    agree(reopened(files), model)


def agree(queues: ConsumeQueues, model: Model) -> None:
    assert {(q.topic, q.queue_id) for q in queues.all()} == set(model.entries)
    assert {f"T{n}": queues.ids_of(f"T{n}") for n in range(3) if queues.ids_of(f"T{n}")} == queues.topics()
    for key, entries in model.entries.items():
        queue = queues.find(*key)
        assert queue is not None
        assert (queue.min_offset, queue.max_offset) == (0, len(entries))
        assert physicals(queue) == [at for _, at in entries]
        assert queue.entry(len(entries)) is None
        assert not len(queue.entries(-1, 5))


# Reading


def test_entries_never_reach_past_the_file_of_the_first() -> None:
    queues = opened(LossyFiles())
    log = log_of(35)
    log.feed(queues)
    for _ in range(2):
        queue = queues.find("T", 0)
        assert queue is not None
        assert len(queue.entries(7, 100)) == 3
        assert len(queue.entries(30, 100)) == 5
        assert len(queue.entries(7, 2)) == 2
        assert not len(queue.entries(35, 10))
        assert queue.roll_next_file(7) == 10
        assert queue.roll_next_file(10) == 20
        queues.write_out()


def test_pending_entries_are_bounded_and_get_old() -> None:
    clock = ManualClock()
    queues = ConsumeQueues(ROOT, LossyFiles(), 200, clock)
    log = log_of(30)
    log.feed(queues, 0, 10)
    assert pending_count(queues) == 10
    clock.advance(s=module.PENDING_AGE_MAX_S)
    log.feed(queues, 10, 20)
    assert pending_count(queues) == 10
    log.feed(queues, 20, 30)
    assert pending_count(queues) == 20


def test_too_many_pending_entries_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING_ROWS_MAX", 25)
    queues = opened(LossyFiles())
    log_of(100).feed(queues, batch=10)
    assert pending_count(queues) == 20
    assert queues.next_offset("T", 0) == 100


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([1000, 2000, 2000, 2000, 3000], {500: 0, 1000: 0, 1500: 0, 1501: 1, 2000: 2, 2500: 3, 2501: 4, 9999: 4}),
        *[([7] * n, {7: (n - 1) // 2}) for n in range(1, 9)],
    ],
)
def test_offset_by_time(times: list[int], expected: dict[int, int]) -> None:
    log, queues = log_of(len(times)), opened(LossyFiles())
    log.feed(queues)
    queue = queues.find("T", 0)
    assert queue is not None
    known = dict(zip(log.offsets, times, strict=True))
    for timestamp, offset in expected.items():
        assert queue.offset_at(timestamp, lambda at, _size: known[at], 0) == offset


def test_offset_by_time_chooses_the_file_by_its_newest_message() -> None:
    log, queues = log_of(35), opened(LossyFiles())
    log.feed(queues)
    queue = queues.find("T", 0)
    assert queue is not None
    times = {at: 100 * n for n, at in enumerate(log.offsets)}
    for n in range(35):
        assert queue.offset_at(100 * n, lambda at, _size: times[at], 0) == n
    assert queue.offset_at(99_999, lambda at, _size: times[at], 0) == 34
    assert queue.offset_at(1000, lambda at, _size: -1, 0) == 0  # nothing can be read
    assert queue.offset_at(0, lambda at, _size: times[at], log.offsets[12]) == 12


# Deleting and minimum


def test_expired_files_go_and_the_minimum_follows() -> None:
    files = LossyFiles()
    log, queues = log_of(35), opened(files)
    log.feed(queues)
    queues.flush()
    queue = queues.find("T", 0)
    assert queue is not None
    assert queues.delete_before(log.offsets[9]) == 0
    assert queue.min_offset == 9
    assert queues.delete_before(log.offsets[23]) == 2
    assert (queue.min_offset, queue.max_offset) == (23, 35)
    assert queue.entry(22) is None
    assert queues.delete_before(log.end) == 1  # never the last
    assert queue.max_offset == 35
    assert len(files.list_directory(ROOT / "T" / "0")) == 1
    again = reopened(files)
    again.correct_min(log.offsets[33])
    assert again.find("T", 0).min_offset == 33  # type: ignore[union-attr]


def test_a_discarded_queue_begins_anew() -> None:
    files = LossyFiles()
    log, queues = log_of(25), opened(files)
    log.feed(queues)
    queues.write_out()
    log.append("T", 0, 25)
    log.feed(queues, 25)
    held = queues.find("T", 0)
    queues.discard("T", 0)
    queues.discard("never", 7)
    assert held is not None
    assert (held.min_offset, held.max_offset, len(held.entries(0, 9)), last_physical(held)) == (0, 0, 0, -1)
    assert queues.find("T", 0) is None
    assert queues.next_offset("T", 0) == 0
    assert files.list_directory(ROOT) == []
    first = log.append("T", 0, 0)
    log.feed(queues, 26)
    assert physicals(queues.find("T", 0)) == [first]
    queues.destroy_all()
    assert queues.all() == []


# Failing disks


def test_entries_that_cannot_be_written_stay_pending_and_readable() -> None:
    files = FaultyFiles(LossyFiles())
    log, queues = log_of(30), opened(files)
    log.feed(queues, 0, 25)
    files.fail("pwrite", nth=2, partial=True)
    with pytest.raises(OSError):
        queues.write_out()
    log.feed(queues, 25)
    assert pending_count(queues) == 30
    assert physicals(queues.find("T", 0)) == log.offsets
    queues.flush()
    assert pending_count(queues) == 0
    assert physicals(reopened(files).find("T", 0)) == log.offsets


@pytest.mark.parametrize("kind", ["create", "make_directory", "pwrite"])
def test_a_take_that_fails_can_be_repeated(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING_ROWS_MAX", 10)
    files = FaultyFiles(LossyFiles())
    log, queues = log_of(30), opened(files)
    log.feed(queues, 0, 10)
    files.fail(kind)
    with pytest.raises(OSError):
        log.feed(queues, 10, 20)
    assert queues.position == log.offsets[10]
    log.feed(queues, 10)
    assert physicals(queues.find("T", 0)) == log.offsets


def test_a_failed_sync_is_never_forgotten() -> None:
    files = FaultyFiles(LossyFiles())
    log, queues = log_of(30), opened(files)
    log.feed(queues)
    files.fail("sync", nth=2)
    for _ in range(3):
        with pytest.raises(OSError):
            queues.flush()
    assert physicals(queues.find("T", 0)) == log.offsets


def test_everything_is_durable_after_flush() -> None:
    files = LossyFiles()
    log, queues = LogOfRecords(), opened(files)
    for n in range(300):
        log.append(f"T{n % 7}", n % 3, n // 21)
    log.feed(queues)
    queues.flush()
    after = reopened(files.crash())
    assert {(q.topic, q.queue_id): physicals(q) for q in after.all()} == {
        (q.topic, q.queue_id): physicals(q) for q in queues.all()
    }


def test_a_failed_removal_does_not_bring_old_entries_back() -> None:
    files = FaultyFiles(LossyFiles())
    log, queues = log_of(25), opened(files)
    log.feed(queues)
    queues.flush()
    files.fail("remove", nth=2)
    with pytest.raises(OSError):
        queues.discard("T", 0)
    assert queues.find("T", 0) is None
    first = log.append("T", 0, 0)
    log.feed(queues, 25)
    queues.flush()
    assert physicals(queues.find("T", 0)) == [first]
    queues.discard("T", 0)
    assert files.list_directory(ROOT) == []


# Read-only


def test_read_only_takes_in_memory() -> None:
    files = LossyFiles()
    log, queues = log_of(25), opened(files)
    log.feed(queues, 0, 12)
    queues.flush()
    steps = FaultyFiles(files)
    reader = ConsumeQueues(ROOT, steps, 200, ManualClock(), read_only=True)
    reader.load()
    log.feed(reader, 12)
    reader.flush()
    assert physicals(reader.find("T", 0)) == log.offsets
    reader.begin_replay()
    log.feed(reader, 5)
    reader.finish_replay(log.offsets[5], log.end)
    assert physicals(reader.find("T", 0)) == log.offsets
    reader.truncate_to(log.offsets[8])
    assert physicals(reader.find("T", 0)) == log.offsets[:8]
    reader.discard("T", 0)
    reader.close()
    assert steps.steps == []


# Replays


def replayed(queues: ConsumeQueues, log: LogOfRecords, start: int = 0) -> None:
    queues.begin_replay()
    log.feed(queues, start)
    queues.finish_replay(log.offsets[start], log.end)


def test_a_replay_cuts_what_the_log_does_not_have() -> None:
    files = LossyFiles()
    log, queues = LogOfRecords(), opened(files)
    for n in range(40):
        log.append("T", 0, n)
        log.append("U", 0, n)
    for n in range(5):
        log.append("gone", 0, n)
    log.feed(queues)
    queues.flush()
    shorter = log.cut(50)
    again = reopened(files)
    replayed(again, shorter, 30)
    assert physicals(again.find("T", 0)) == shorter.offsets[0::2]
    assert physicals(again.find("U", 0)) == shorter.offsets[1::2]
    assert again.find("gone", 0) is None
    again.flush()
    assert reopened(files).topics() == {"T": [0], "U": [0]}


def test_a_replay_mends_entries_just_before_and_between_what_it_meets() -> None:
    files = LossyFiles()
    log, queues = log_of(40), opened(files)
    log.feed(queues)
    queues.flush()
    file = files.open(path_of("T", 0, 1), True)
    file.pwrite(bytes(4 * ENTRY_BYTES), 3 * ENTRY_BYTES)  # entries 13..16 never reached the disk
    again = reopened(files)
    again.begin_replay()
    log.feed(again, 15, 20)
    log.feed(again, 23, 40)  # records 20..22 are damaged
    again.finish_replay(log.offsets[13], log.end)
    at = log.offsets
    assert physicals(again.find("T", 0)) == [*at[:13], at[15], at[15], *at[15:20], *[at[23]] * 3, *at[23:]]


def test_a_queue_deleted_and_made_again_inside_the_walked_log() -> None:
    log = log_of(30)
    for n in range(7):
        log.append("T", 0, n)
    for batch in (1, 1000):
        files = LossyFiles()
        queues = opened(files)
        queues.begin_replay()
        log.feed(queues, batch=batch)
        queues.finish_replay(0, log.end)
        assert physicals(queues.find("T", 0)) == log.offsets[30:]
        queues.flush()
        assert physicals(reopened(files).find("T", 0)) == log.offsets[30:]


def test_a_replay_from_before_the_first_file_makes_it_again() -> None:
    files = LossyFiles()
    log, queues = log_of(35, first=3), opened(files)
    log.feed(queues)
    queues.flush()
    files.remove(path_of("T", 0, 0))
    files.remove(path_of("T", 0, 1))
    again = opened(files)
    assert again.load() == []  # nothing on disk tells
    replayed(again, log)
    queue = again.find("T", 0)
    assert queue is not None
    assert (queue.min_offset, physicals(queue)) == (3, log.offsets)
    again.flush()
    queue = reopened(files).find("T", 0)
    assert queue is not None
    assert (queue.min_offset, physicals(queue)) == (3, log.offsets)


# Loading what is damaged


def damage_short(files: LossyFiles, path: Path) -> None:
    files.open(path, True).truncate(100)


def damage_empty(files: LossyFiles, path: Path) -> None:
    files.open(path, True).truncate(0)


def damage_long(files: LossyFiles, path: Path) -> None:
    files.open(path, True).truncate(1000)


def damage_zeros(files: LossyFiles, path: Path) -> None:
    files.open(path, True).pwrite(bytes(200), 0)


def damage_end(files: LossyFiles, path: Path) -> None:
    files.open(path, True).pwrite(bytes(60), 140)


def damage_nonsense(files: LossyFiles, path: Path) -> None:
    files.open(path, True).pwrite(b"\xff" * 200, 0)


def damage_missing(files: LossyFiles, path: Path) -> None:
    files.remove(path)


@pytest.mark.parametrize("number", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "damage",
    [damage_short, damage_empty, damage_long, damage_zeros, damage_end, damage_nonsense, damage_missing],
    ids=lambda damage: damage.__name__.removeprefix("damage_"),
)
def test_damage_is_reported_and_mended_from_the_place_named(damage: object, number: int) -> None:
    files = LossyFiles()
    log, queues = LogOfRecords(), opened(files)
    for n in range(37):
        log.append("T", 0, n)
        log.append("fine", 0, n)
    log.feed(queues)
    queues.flush()
    state = queues.state()
    assert queues.matches(state) == []
    damage(files, path_of("T", 0, number))  # type: ignore[operator]
    again = opened(files)
    findings = again.load(state)
    if number == 3 and damage is damage_end:  # beyond the end of the queue
        assert findings == []
        return
    assert [finding.family for finding in findings] == ["consumequeue"]
    assert findings[0].where.startswith("T/0")
    start = next(i for i, at in enumerate(log.offsets) if at >= findings[0].replay_from)
    assert start <= 2 * (10 * number + (7 if damage is damage_end else 0))
    replayed(again, log, start)
    assert physicals(again.find("T", 0)) == log.offsets[::2]
    again.flush()
    assert again.matches(state) == []
    assert reopened(files).load(state) == []


def test_without_a_state_a_damaged_queue_is_reported_too() -> None:
    for damage in (damage_short, damage_zeros, damage_nonsense, damage_end):
        files = LossyFiles()
        log, queues = log_of(37), opened(files)
        log.feed(queues)
        queues.flush()
        damage(files, path_of("T", 0, 1))
        assert len(opened(files).load()) == 1


def test_state_and_directory_are_compared() -> None:
    files = LossyFiles()
    log, queues = log_of(37), opened(files)
    log.feed(queues)
    queues.flush()
    state = queues.state()
    queues.discard("T", 0)
    assert [finding.replay_from for finding in queues.matches(state)] == [0]
    assert [finding.reason for finding in opened(files).load(state)] == ["is missing"]
    assert queues.matches({"some": "thing"})
    log.feed(queues)
    assert queues.matches(opened(LossyFiles()).state())


def test_a_wrong_file_size_setting_rebuilds_everything() -> None:
    files = LossyFiles()
    log, queues = log_of(37), opened(files)
    log.feed(queues)
    queues.flush()
    other = ConsumeQueues(ROOT, files, 300, ManualClock())
    assert len(other.load(queues.state())) == 1
    replayed(other, log)
    other.flush()
    assert {entry.size for entry in files.list_directory(ROOT / "T" / "0")} == {300}
    reader = ConsumeQueues(ROOT, files, 300, ManualClock())
    assert reader.load() == []
    queue = reader.find("T", 0)
    assert queue is not None
    assert [entry[0] for n in range(37) if (entry := queue.entry(n)) is not None] == log.offsets


# Threads


def test_readers_see_whole_queues_while_others_write_and_delete() -> None:
    files = LossyFiles()
    queues = opened(files)
    log = LogOfRecords()
    for n in range(3000):
        log.append("T", 0, n)
    columns = [(log.columns(n, n + 100), n + 100) for n in range(0, 3000, 100)]
    stop, problems = threading.Event(), list[str]()

    def read() -> None:
        while not stop.is_set():
            queue = queues.find("T", 0)
            if queue is None:
                continue
            end = queue.max_offset
            entries = queue.entries(max(end - 15, 0), 100)
            known = entries["physical_offset"].tolist()
            if known and known != log.offsets[max(end - 15, 0) :][: len(known)]:
                problems.append(f"{end} {known}")

    def write() -> None:
        while not stop.is_set():
            queues.write_out()
            queues.flush()

    threads = [threading.Thread(target=target) for target in (read, read, write)]
    for thread in threads:
        thread.start()
    try:
        for batch, number in columns:
            queues.take(batch, log.offsets[number] if number < 3000 else log.end)
        assert physicals(queues.find("T", 0)) == log.offsets
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert problems == []


def test_deleting_a_topic_under_load() -> None:
    queues = opened(LossyFiles())
    stop = threading.Event()

    def delete() -> None:
        while not stop.is_set():
            queues.discard("T", 0)
            queues.write_out()

    thread = threading.Thread(target=delete)
    thread.start()
    try:
        for _ in range(30):
            log = log_of(100)
            log.feed(queues, batch=10)
    finally:
        stop.set()
        thread.join()
    queues.discard("T", 0)
    log = log_of(20)
    log.feed(queues)
    queues.flush()
    assert physicals(queues.find("T", 0)) == log.offsets


def test_both_ways_of_taking_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogOfRecords()
    random = np.random.default_rng(7)
    nexts: dict[tuple[str, int], int] = {}
    for _ in range(500):
        key = f"T{random.integers(4)}", int(random.integers(2))
        offset = nexts.get(key, int(random.integers(3))) + int(random.integers(20) == 0) * 5
        log.append(*key, offset, tags="x", sys_flag=int(random.choice([0, 0, 0, PREPARED])))
        nexts[key] = offset + 1
    found: list[dict[tuple[str, int], list[Entry | None]]] = []
    for few in (0, 10_000):
        monkeypatch.setattr(entry_intake, "FEW_ROWS", few)
        monkeypatch.setattr(entry_intake, "FEW_ROWS_WITH_KERNEL", few)
        queues = opened(LossyFiles())
        log.feed(queues, batch=50)
        found.append({(q.topic, q.queue_id): [q.entry(n) for n in range(q.max_offset)] for q in queues.all()})
    assert found[0] == found[1]
