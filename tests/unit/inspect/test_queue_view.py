"""Queues seen from outside: from files as far as they can be believed, from the log otherwise; never wrong."""

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.errors import StorePathInvalid
from embermq.files import RealFiles
from embermq.format.queue_entry import ENTRY_BYTES, ENTRY_DTYPE
from embermq.inspect import queue_view as survey_queues
from embermq.inspect.snapshot import Survey
from embermq.model.hosts import Host
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from embermq.testing.faulty_files import FaultyFiles
from tests.crash import numbered
from tests.support import golden
from tests.support.surveys import bounds_of, check_against_log, expected_bounds, frames_of


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", **numbered.TINY)


def fill(store: MessageStore, count: int, first: int = 0) -> int:
    n = first
    while n < first + count:
        n += len(numbered.append(store, n))
    return n


def closed(builder: StoreBuilder, count: int = 200) -> Path:
    with builder.open() as store:
        fill(store, count)
    return builder.root


def queue_files(root: Path) -> list[Path]:
    return sorted(path for path in (root / "consumequeue").rglob("*") if path.is_file())


def write_noise(path: Path) -> int:
    return path.write_bytes(random.Random(1).randbytes(path.stat().st_size))


DISASTERS: dict[str, Callable[[Path], object]] = {
    "all gone": lambda root: shutil.rmtree(root / "consumequeue"),
    "one topic gone": lambda root: shutil.rmtree(root / "consumequeue" / "Topic1"),
    "one queue gone": lambda root: shutil.rmtree(root / "consumequeue" / "Topic0" / "1"),
    "first file gone": lambda root: queue_files(root)[0].unlink(),
    "last file gone": lambda root: queue_files(root)[-1].unlink(),
    "all zeros": lambda root: [path.write_bytes(bytes(160)) for path in queue_files(root)],
    "one zeros": lambda root: queue_files(root)[3].write_bytes(bytes(160)),
    "all empty": lambda root: [path.write_bytes(b"") for path in queue_files(root)],
    "one short": lambda root: queue_files(root)[2].write_bytes(queue_files(root)[2].read_bytes()[:70]),
    "noise": lambda root: [write_noise(path) for path in queue_files(root)],
    "one noise": lambda root: write_noise(queue_files(root)[1]),
    "a foreign file": lambda root: (root / "consumequeue" / "Topic0" / "0" / "notes.txt").write_text("?"),
    "a file for a topic": lambda root: (root / "consumequeue" / "file").write_text("?"),
    "another queue's files": lambda root: shutil.copytree(
        root / "consumequeue" / "Topic0" / "0", root / "consumequeue" / "Topic0" / "2", dirs_exist_ok=True
    ),
}


@pytest.mark.parametrize("aborted", [False, True])
@pytest.mark.parametrize("disaster", DISASTERS)
@pytest.mark.slow
def test_queue_files_that_cannot_be_used(builder: StoreBuilder, disaster: str, aborted: bool) -> None:
    root = closed(builder)
    DISASTERS[disaster](root)
    if aborted:
        (root / "abort").touch()
    before = golden.tree_state(root)
    check_against_log(Survey.open(root), frames_of(root))
    assert golden.tree_state(root) == before


@pytest.mark.parametrize("disaster", [name for name in DISASTERS if "gone" not in name])
def test_queue_files_of_rocketmq_that_cannot_be_used(builder: StoreBuilder, disaster: str) -> None:
    """Without a page nobody knows how many files there should be; those that are there must be right."""
    root = closed(builder)
    (root / "embermq.state").unlink()
    DISASTERS[disaster](root)
    check_against_log(Survey.open(root), frames_of(root))


@pytest.mark.parametrize("kind", ["list_directory", "open", "pread"])
def test_queue_files_that_cannot_be_read(builder: StoreBuilder, kind: str) -> None:
    """The log has everything; what is derived is never a reason to refuse."""
    root = closed(builder)
    disk = FaultyFiles(RealFiles())
    disk.fail(kind, nth=1, times=None, path_contains="consumequeue")
    check_against_log(Survey.open(root, files=disk), frames_of(root))


def test_a_disk_that_fails_later_is_named(builder: StoreBuilder) -> None:
    root = closed(builder)
    disk = FaultyFiles(RealFiles())
    survey = Survey.open(root, files=disk)
    (root / "consumequeue").rename(root / "elsewhere")
    disk.fail("pread", nth=1, times=None, path_contains="commitlog")
    with pytest.raises(StorePathInvalid) as raised:
        survey.queues()
    assert Path(raised.value.path).parent == root / "commitlog"


def test_a_store_without_queues(builder: StoreBuilder) -> None:
    with MessageStore.open(builder.root, builder.settings, dispatch="none") as store:
        fill(store, 120)
        check_against_log(Survey.open(builder.root), frames_of(builder.root))
    check_against_log(Survey.open(builder.root), frames_of(builder.root))


def test_entries_that_are_not_in_files_yet(builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches are short here, so that queues have many marks."""
    monkeypatch.setattr(survey_queues, "STRETCH_BYTES_MIN", 500)
    with builder.open() as store:
        n = fill(store, 60)
        store.engine.services.housekeeping.make_durable()
        survey = Survey.open(builder.root)
        for _ in range(4):
            n = fill(store, 50, n)
            survey.refresh()
            check_against_log(survey, frames_of(builder.root))
        frames = frames_of(builder.root)
        for key, span in survey.queues().items():
            mine = [one for one in frames if (one.topic, one.queue_id) == key and one.sys_flag & 4 == 0]
            for start in range(span.min_offset, span.max_offset, 3):
                entries = survey.entries(*key, start, start + 5)
                expected = [one.physical_offset for one in mine if start <= one.queue_offset < start + 5]
                assert entries["physical_offset"].tolist() == expected


@pytest.mark.parametrize("filed", [0, 60, 200])
@pytest.mark.slow
def test_where_records_of_a_queue_lie(builder: StoreBuilder, filed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From files, from the log, or partly so: the range holds them all, and the way back is exact."""
    monkeypatch.setattr(survey_queues, "STRETCH_BYTES_MIN", 900)
    with builder.open() as store:
        n = fill(store, filed)
        store.engine.services.housekeeping.make_durable()
        monkeypatch.setattr(store.engine.services.housekeeping, "write_out", lambda: None)
        fill(store, 200 - filed, n)
        survey, frames = Survey.open(builder.root), frames_of(builder.root)
        by_queue = {
            key: [one for one in frames if (one.topic, one.queue_id) == key and one.sys_flag & 4 == 0]
            for key in survey.queues()
        }
        for key, mine in by_queue.items():
            for a in range(0, len(mine), 3):
                for b in range(a + 1, len(mine) + 1, 4):
                    first, last = survey.place_range(*key, mine[a].queue_offset, mine[b - 1].queue_offset + 1)
                    assert first <= mine[a].physical_offset
                    assert mine[b - 1].end <= last
                    assert survey.record_start(first) == first
            for frame in frames:
                behind = [one.queue_offset for one in mine if one.physical_offset >= frame.physical_offset]
                found = survey.offset_from(*key, frame.physical_offset)
                assert found == (behind[0] if behind else mine[-1].queue_offset + 1)
        assert survey.place_range("nobody", 0, 0, 5) == (survey.log_end, survey.log_end)
        assert survey.offset_from("nobody", 0, 0) == 0


def test_few_marks_are_enough(builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_queues, "STRETCH_BYTES_MIN", 200)
    monkeypatch.setattr(survey_queues, "_MARKS_MAX", 50)
    root = closed(builder)
    shutil.rmtree(root / "consumequeue")
    survey = Survey.open(root)
    check_against_log(survey, frames_of(root))
    marks = sum(len(queue.mark_offsets) for queue in survey._queues._current().values())
    assert marks <= 60


@pytest.mark.parametrize("with_files", [True, False])
def test_old_files_go(builder: StoreBuilder, with_files: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Minimums follow the log, file by file, whether entries are in files or only in the log."""
    monkeypatch.setattr(survey_queues, "STRETCH_BYTES_MIN", 1000)
    root = closed(builder, 400)
    if not with_files:
        shutil.rmtree(root / "consumequeue")
    survey = Survey.open(root)
    assert survey.queues()
    paths = sorted((root / "commitlog").iterdir())
    assert len(paths) > 5
    for path in paths[:-1]:
        path.unlink()
        survey.refresh()
        frames = frames_of(root)
        expected = expected_bounds(frames)
        bounds = bounds_of(survey)
        assert {key: bounds[key] for key in expected} == expected
        assert all(bounds[key][0] == bounds[key][1] for key in bounds.keys() - expected.keys())
        for key, (low, high) in expected.items():
            entries = survey.entries(*key, low - 3, high + 3)
            assert len(entries) == high - low
            assert entries["physical_offset"][0] >= survey.log_min
        again = bounds_of(Survey.open(root))
        assert {key: again[key] for key in expected} == expected


def test_a_topic_that_was_deleted_begins_anew(builder: StoreBuilder) -> None:
    """Offsets begin at 0 again in the middle of the log: what lies before belongs to no queue any more."""
    with builder.open() as store:
        store.append_many([Message("gone", b"old %d" % n) for n in range(9)])
        store.append_many([Message("stays", b"s %d" % n) for n in range(5)])
        store.wait_for_dispatch()
        survey = Survey.open(builder.root)
        assert bounds_of(survey) == {("gone", 0): (0, 9), ("stays", 0): (0, 5)}
        assert store.engine.queues is not None
        store.engine.queues.discard("gone", 0)
        store.engine.writer.adopt_offsets([("gone", 0, 0)])
        receipts = store.append_many([Message("gone", b"new %d" % n) for n in range(4)])
        assert receipts[0].queue_offset == 0
        for one in (survey, Survey.open(builder.root)):
            one.refresh()
            assert bounds_of(one) == {("gone", 0): (0, 4), ("stays", 0): (0, 5)}
            entries = one.entries("gone", 0, 0, 10)["physical_offset"].tolist()
            assert entries == [receipt.physical_offset for receipt in receipts]


def test_a_hole_in_a_queue(builder: StoreBuilder) -> None:
    """Records lost to damage leave a hole, which holds copies of the entry behind it; as in queue files."""
    with builder.open() as store:
        receipts = store.append_many([Message("t", b"m %d" % n) for n in range(10)])
    root = builder.root
    with (root / "commitlog" / "0".zfill(20)).open("r+b") as file:
        file.seek(receipts[4].physical_offset)
        file.write(bytes(receipts[4].size + receipts[5].size))
    for without_files in (False, True):
        if without_files:
            shutil.rmtree(root / "consumequeue")
        survey = Survey.open(root)
        assert bounds_of(survey) == {("t", 0): (0, 10)}
        entries = survey.entries("t", 0, 0, 10)
        assert len(entries) == 10
        places = entries["physical_offset"].tolist()
        assert [places[n] for n in (0, 3, 6, 9)] == [receipts[n].physical_offset for n in (0, 3, 6, 9)]
        if without_files:
            assert places[4] == places[5] == places[6]


def test_entries_are_the_bytes_of_the_files_wherever_they_come_from(builder: StoreBuilder) -> None:
    """Over several files, from files and log, and from the log alone."""
    with builder.open() as store:
        store.append_many([Message("t", b"m %d" % n, tags=f"tag{n}") for n in range(50)])
    root = builder.root
    files = sorted((root / "consumequeue" / "t" / "0").iterdir())
    assert len(files) > 2
    written = b"".join(file.read_bytes() for file in files)[: 50 * ENTRY_BYTES]
    for gone in (0, 1, len(files)):
        for file in files[len(files) - gone :]:
            file.unlink(missing_ok=True)
        (root / "abort").touch()  # Not closed: what files do not have comes from the log.
        entries = Survey.open(root).entries("t", 0, 0, 100)
        assert entries.dtype == ENTRY_DTYPE
        assert entries.tobytes() == written
    assert Survey.open(root).entries("t", 0, 7, 7).dtype == ENTRY_DTYPE


def test_what_is_not_there(builder: StoreBuilder) -> None:
    survey = Survey.open(closed(builder, 40))
    assert len(survey.entries("nobody", 0, 0, 10)) == 0
    assert survey.offset_at("nobody", 0, 0) == 0
    assert len(survey.entries("Topic0", 0, 1 << 40, 1 << 41)) == 0
    assert len(survey.entries("Topic0", 0, 2, 2)) == len(survey.entries("Topic0", 0, 3, 2)) == 0


def test_ipv6_hosts_and_strange_topics(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    with builder.open() as store:
        for topic in ("%RETRY%group", "%DLQ%group", "a-b_c", "t" * 127):
            for n in range(8):
                born = Host("2001:db8::1", 4321) if n & 1 else None
                stored = Host("::1", 10911) if n & 2 else None
                store.append(Message(topic, b"x", queue_id=n % 3, born_host=born, store_host=stored))
    check_against_log(Survey.open(builder.root), frames_of(builder.root))
    shutil.rmtree(builder.root / "consumequeue")
    check_against_log(Survey.open(builder.root), frames_of(builder.root))


# -- by time -------------------------------------------------------------------------------------------------


def timed(builder: StoreBuilder, clock: ManualClock, steps: list[int]) -> list[int]:
    """A store whose messages come at these distances; answers their store times."""
    times = []
    with builder.open() as store:
        for number, step in enumerate(steps):
            clock.jump(ms=step)
            receipt = store.append(Message("t", b"%d" % number, queue_id=0))
            times.append(receipt.store_timestamp)
            store.append(Message("other", b"%d" % number))
    return times


@pytest.mark.parametrize("with_files", [True, False])
def test_times_are_found_exactly(tmp_path: Path, with_files: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_queues, "STRETCH_BYTES_MIN", 600)
    monkeypatch.setattr("embermq.inspect.snapshot._NEAR_BYTES", 300)
    clock = ManualClock()
    builder = StoreBuilder(tmp_path / "store", clock=clock, **numbered.TINY)
    source = random.Random(3)
    times = timed(builder, clock, [source.choice([0, 0, 1, 5, 1000]) for _ in range(150)])
    if not with_files:
        shutil.rmtree(builder.root / "consumequeue")
    survey, frames = Survey.open(builder.root), frames_of(builder.root)
    for probe in sorted({0, *times, *(one + 1 for one in times), 1 << 50}):
        late = [n for n, one in enumerate(times) if one >= probe]
        assert survey.offset_at("t", 0, probe) == (late[0] if late else len(times))
        places = [one.physical_offset for one in frames if one.store_timestamp >= probe]
        assert survey.physical_at(probe) == (places[0] if places else survey.log_end)


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """No first place can be given then, but the answer is late enough and what stands before it is not."""
    clock = ManualClock()
    builder = StoreBuilder(tmp_path / "store", clock=clock, **numbered.TINY)
    times = timed(builder, clock, [10] * 40 + [-300] + [10] * 40)
    survey = Survey.open(builder.root)
    for probe in range(min(times), max(times) + 20, 7):
        found = survey.offset_at("t", 0, probe)
        assert found == len(times) or times[found] >= probe
        assert found == 0 or times[found - 1] < probe


def test_times_of_an_empty_store(builder: StoreBuilder) -> None:
    with builder.open():
        pass
    survey = Survey.open(builder.root)
    assert survey.physical_at(0) == survey.log_end == 0
    assert survey.queues() == {}
    assert survey.record_start(0) == 0


# -- many queues -----------------------------------------------------------------------------------------------


def test_a_thousand_queues_are_looked_at_in_no_time(tmp_path: Path) -> None:
    """Nothing new: no queue file is touched. CPU time, and a generous bound: the machine may be busy."""
    builder = StoreBuilder(tmp_path / "store", queue_file_bytes=20 * 10, index=False)
    with builder.open() as store:
        store.append_many([Message(f"t{n % 100}", b"x", queue_id=n // 100 % 10) for n in range(3000)])
        store.wait_for_dispatch()
        survey = Survey.open(builder.root)
        assert len(survey.queues()) == 1000
        began = time.process_time()
        for _ in range(20):
            survey.refresh()
            assert len(survey.queues()) == 1000
        each = (time.process_time() - began) / 20
        assert each < 0.05, each
        store.append(Message("t5", b"new", queue_id=5))
        survey.refresh()
        assert survey.queues()["t5", 5].max_offset == 4


def test_a_hole_in_a_queue_file_is_not_its_end(tmp_path: Path) -> None:
    """One entry zeroed in the middle: what looks like the end of the queue is none."""
    builder = StoreBuilder(tmp_path / "store")
    with builder.open() as store:
        store.append_many([Message("T", b"%d" % number) for number in range(150)])
    path = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[20 * 10 : 20 * 11] = bytes(20)
    path.write_bytes(data)
    survey = Survey.open(builder.root)
    span = survey.queues()["T", 0]
    assert (span.min_offset, span.max_offset) == (0, 150)
    assert len(survey.entries("T", 0, 0, 150)) == 150
