"""Index files by hand-made logs: what is found, what a file remembers, and what survives what."""

from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.files import Files
from embermq.format.index import IndexHeader, decode_entry, decode_header
from embermq.format.java import index_key_hash
from embermq.model.flags import COMMIT, PREPARED, ROLLBACK
from embermq.store.index.index_file import IndexFile
from embermq.store.index.index_files import IndexFiles, stamp_after
from embermq.testing.clock import ManualClock
from embermq.testing.faulty_files import FaultyFiles
from embermq.testing.lossy_files import LossyFiles
from embermq.testing.unsynced import random_fates
from tests.support.kernels import force_compiled, force_plain
from tests.support.records import START_MS, LogOfRecords

DIRECTORY = Path("/store/index")
SLOTS, ENTRIES = 7, 12
FOREVER = 2**62


def opened(files: Files, *, clock: ManualClock | None = None, read_only: bool = False) -> IndexFiles:
    files.make_directory(DIRECTORY.parent)
    return IndexFiles(DIRECTORY, files, SLOTS, ENTRIES, clock or ManualClock(), read_only=read_only)


def reopened(files: Files) -> IndexFiles:
    index = opened(files)
    assert index.load() == []
    return index


def names(files: Files) -> list[str]:
    return [entry.name for entry in files.list_directory(DIRECTORY)] if files.exists(DIRECTORY) else []


def headers(files: Files) -> list[IndexHeader]:
    return [decode_header(files.read_all(DIRECTORY / name)) for name in names(files)]


def entries(files: Files) -> list[tuple[int, int, int]]:
    """Hash, physical offset and seconds of every entry of every file."""
    found = []
    for name, header in zip(names(files), headers(files), strict=True):
        content = files.read_all(DIRECTORY / name)
        for number in range(1, header.count):
            entry = decode_entry(content, number, SLOTS)
            found.append((entry.key_hash, entry.physical_offset, entry.seconds))
    return found


@pytest.fixture(autouse=True, params=[False, True], ids=["plain", "kernel"])
def by_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs with the plain loop and with the kernel."""
    force = force_compiled if request.param else force_plain
    force(monkeypatch)


# What is found


def test_keys_are_found_newest_first() -> None:
    log, index = LogOfRecords(), opened(LossyFiles())
    first = log.append("T", 0, 0, keys="order-1 order-2", unique_key="U1")
    second = log.append("T", 0, 1, keys=" order-1  order-3 ", store_ms=START_MS + 5000)
    log.append("other", 0, 0, keys="order-1")
    log.feed(index)
    assert index.query("T", "order-1", None, 0, FOREVER) == [second, first]
    assert index.query("T", "order-3", 10, 0, FOREVER) == [second]
    assert index.query("T", "U1", 10, 0, FOREVER) == [first]
    assert index.query("T", "", None, 0, FOREVER) == []
    assert index.query("T", "order-1", 1, 0, FOREVER) == [second]
    assert index.query("T", "order-1", 0, 0, FOREVER) == []
    assert index.query("T", "order-1", None, 0, START_MS + 4999) == [first]
    assert index.last_update == (START_MS, log.offsets[-1])
    assert index.position == log.end


def test_a_limit_is_never_more_than_the_query_maximum() -> None:
    log, files = LogOfRecords(), LossyFiles()
    for n in range(100):
        log.append("T", 0, n, keys="k")
    index = opened(files)
    log.feed(index)
    assert len(index.query("T", "k", 100, 0, FOREVER)) == 64
    assert index.query("T", "k", None, 0, FOREVER) == log.offsets[::-1]


def test_a_walk_reads_no_more_entries_than_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    log, index = LogOfRecords(), opened(LossyFiles())
    for n in range(100):
        log.append("T", 0, n, keys="k")
    log.feed(index)
    assert list(index.walk("T", "k", FOREVER)) == index.query("T", "k", None, 0, FOREVER) == log.offsets[::-1]
    read = IndexFile._confirmed
    reads = []

    def noted(file: IndexFile, count: int, at: int) -> bytes:
        reads.append(at)
        return read(file, count, at)

    monkeypatch.setattr(IndexFile, "_confirmed", noted)
    places = index.walk("T", "k", FOREVER)
    assert [next(places) for _ in range(3)] == log.offsets[:-4:-1]
    assert len(reads) <= 3 + 3  # An entry for each, and the slots of the files they are in.


def test_rolled_back_records_are_not_indexed_and_prepared_ones_are() -> None:
    log, index = LogOfRecords(), opened(LossyFiles())
    for n, sys_flag in enumerate((ROLLBACK, PREPARED, COMMIT, 0)):
        log.append("T", 0, n, keys="k", sys_flag=sys_flag)
    log.feed(index)
    assert index.query("T", "k", None, 0, FOREVER) == log.offsets[:0:-1]


def test_without_keys_there_is_no_file() -> None:
    log, files = LogOfRecords(), LossyFiles()
    log.append("T", 0, 0)
    log.append("T", 0, 1, keys="k", sys_flag=ROLLBACK)
    index = opened(files)
    log.feed(index)
    index.flush()
    assert names(files) == []
    assert index.last_update == (0, 0)
    assert index.position == log.end


def test_the_hash_without_an_absolute_value_and_unicode_keys() -> None:
    assert index_key_hash("TopicTest", "ogaQmc") == 0
    log, index = LogOfRecords(), opened(LossyFiles())
    for n, key in enumerate(("ogaQmc", "订单", "😀", "é")):
        log.append("TopicTest", 0, n, keys=key)
    log.feed(index)
    for at, key in zip(log.offsets, ("ogaQmc", "订单", "😀", "é"), strict=True):
        assert index.query("TopicTest", key, None, 0, FOREVER) == [at]


KEYS = st.lists(st.sampled_from(["Aa", "BB", "AaAa", "BBBB", "k1", "k2", "k3", "ключ", "😀", ""]), max_size=5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.tuples(KEYS, st.integers(0, 3000)), min_size=1, max_size=20)),
        st.tuples(st.sampled_from(["again", "reload", "restore"]), st.just([])),
        st.tuples(st.sampled_from(["truncate"]), st.just([])),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(1, 25), st.randoms(use_true_random=False))
@pytest.mark.slow
def test_an_index_is_a_dictionary(steps: list[tuple[str, list[tuple[list[str], int]]]], batch: int, random) -> None:  # type: ignore[no-untyped-def]
    files, log = LossyFiles(), LogOfRecords()
    index = opened(files)
    model: dict[int, list[int]] = defaultdict(list)
    now_ms = START_MS
    for what, records in steps:
        if what == "append":
            first = len(log.offsets)
            for keys, passed_ms in records:
                now_ms += passed_ms
                at = log.append("T", 0, 0, keys=" ".join(keys), store_ms=now_ms)
                for key in keys:
                    if key:
                        model[index_key_hash("T", key)].append(at)
            log.feed(index, first, batch=batch)
        elif what == "again":
            log.feed(index, batch=batch)
        elif what == "reload":
            index.flush()
            index = reopened(files)
        elif what == "restore":
            index.flush()
            state = index.state()
            index = opened(files)
            assert index.restore(state) == []
            assert index.matches(state) == []
        elif what == "truncate" and log.offsets:
            keep = random.randrange(len(log.offsets))
            cut = log.offsets[keep]
            index.truncate_to(cut)
            log = log.cut(keep)
            model = defaultdict(list, {code: [at for at in found if at < cut] for code, found in model.items()})
        for key in ("Aa", "BB", "AaAa", "k1", "k3", "ключ", "😀"):
            assert index.query("T", key, None, 0, FOREVER) == model[index_key_hash("T", key)][::-1]


# Files


def test_a_file_that_is_full_in_the_middle_of_a_record_is_followed_by_the_next() -> None:
    log, files = LogOfRecords(), LossyFiles()
    log.append("T", 0, 0, keys=" ".join(f"k{n}" for n in range(8)), store_ms=START_MS)
    log.append("T", 0, 1, keys=" ".join(f"k{n}" for n in range(8)), store_ms=START_MS + 7000)
    log.append("T", 0, 2, keys="later", store_ms=START_MS + 9000)
    index = opened(files)
    log.feed(index)
    index.flush()
    first, second = headers(files)
    assert (first.count, second.count) == (ENTRIES, 1 + 5 + 1)
    assert (first.begin_physical, first.end_physical) == (log.offsets[0], log.offsets[1])
    assert (second.begin_physical, second.end_physical) == (log.offsets[1], log.offsets[2])
    # The first entry counts its seconds from the end of the file before, the next from the file's own beginning.
    assert [seconds for _, _, seconds in entries(files)] == [0] * 8 + [7] * 3 + [0] * 5 + [2]
    assert index.query("T", "k7", None, 0, FOREVER) == [log.offsets[1], log.offsets[0]]


def test_a_file_born_by_roll_over_carries_the_end_of_the_one_before() -> None:
    log, files = LogOfRecords(), LossyFiles()
    for n in range(ENTRIES - 1):
        log.append("T", 0, n, keys="k", store_ms=START_MS + 1000 * n)
    log.append("T", 0, 99, keys="k", store_ms=START_MS + 60_000)
    index = opened(files)
    log.feed(index)
    index.flush()
    first, second = headers(files)
    assert entries(files)[-1][2] == (START_MS + 60_000 - first.end_timestamp) // 1000 == 50
    assert second.begin_timestamp == second.end_timestamp == START_MS + 60_000


@pytest.mark.parametrize(("later_ms", "seconds"), [(-5000, 0), (2**41 * 1000, 2**31 - 1)])
def test_seconds_are_clamped(later_ms: int, seconds: int) -> None:
    log, files = LogOfRecords(), LossyFiles()
    log.append("T", 0, 0, keys="k")
    log.append("T", 0, 1, keys="k", store_ms=START_MS + later_ms)
    index = opened(files)
    log.feed(index)
    index.flush()
    assert [entry[2] for entry in entries(files)] == [0, seconds]


def test_names_ascend_whatever_the_clock_does() -> None:
    log, files, clock = LogOfRecords(), LossyFiles(), ManualClock()
    for n in range(60):
        log.append("T", 0, n, keys="k")
    index = opened(files, clock=clock)
    log.feed(index, 0, 30)
    clock.jump(ms=-3_600_000)
    log.feed(index, 30)
    index.flush()
    stamp = clock.local_stamp(clock.now_ms() + 3_600_000)
    assert names(files) == [f"{int(stamp) + n:017d}" for n in range(6)]
    assert reopened(files).query("T", "k", None, 0, FOREVER) == log.offsets[::-1]


@pytest.mark.parametrize(
    ("stamp", "later"),
    [
        ("20240101000000000", "20240101000000001"),
        ("20231231235959999", "20240101000000000"),
        ("20240228235959999", "20240229000000000"),
        ("20241399000000000", "20241399000000001"),
    ],
)
def test_the_stamp_after(stamp: str, later: str) -> None:
    assert stamp_after(stamp) == later


def test_expired_files_go_never_the_newest() -> None:
    log, files = LogOfRecords(), LossyFiles()
    for n in range(60):
        log.append("T", 0, n, keys="k")
    index = opened(files)
    log.feed(index)
    index.flush()
    assert index.delete_before(log.offsets[10]) == 0
    assert index.delete_before(log.offsets[25]) == 2
    assert index.delete_before(log.end) == 3
    assert index.count == len(names(files)) == 1
    assert index.query("T", "k", None, 0, FOREVER) == log.offsets[:54:-1]
    index.destroy_all()
    assert names(files) == []
    assert index.query("T", "k", None, 0, FOREVER) == []


# Failing disks


@pytest.mark.parametrize("nth", [1, 2])
def test_a_take_that_fails_can_be_repeated_and_indexes_nothing_twice(nth: int) -> None:
    files, log = FaultyFiles(LossyFiles()), LogOfRecords()
    for n in range(6):
        log.append("T", 0, n, keys=" ".join(f"k{m}" for m in range(5)))
    index = opened(files)
    files.fail("create", nth=nth)
    with pytest.raises(OSError):
        log.feed(index)
    assert index.position == 0
    found = index.query("T", "k0", None, 0, FOREVER)
    assert found == log.offsets[: len(found)][::-1]
    log.feed(index)
    index.flush()
    assert [entry[1] for entry in entries(files)] == [at for at in log.offsets for _ in range(5)]


def test_a_failed_sync_is_never_forgotten() -> None:
    files, log = FaultyFiles(LossyFiles()), LogOfRecords()
    log.append("T", 0, 0, keys="k")
    index = opened(files)
    log.feed(index)
    files.fail("sync")
    for _ in range(2):
        with pytest.raises(OSError):
            index.flush()


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_loses_nothing_that_was_proven(seed: int) -> None:
    files, log = LossyFiles(), LogOfRecords()
    for n in range(80):
        log.append("T", 0, n, keys=f"k{n % 5} common", store_ms=START_MS + 1000 * n)
    index = opened(files)
    log.feed(index, 0, 37)
    state = index.state()
    index.flush()
    log.feed(index, 37)
    after = files.crash(random_fates(seed))
    index = opened(after)
    index.load()
    assert index.restore(state) == []
    assert index.query("T", "common", None, 0, FOREVER) == log.offsets[:37][::-1]
    assert index.position == log.offsets[36]
    log.feed(index, 30)
    assert index.query("T", "common", None, 0, FOREVER) == log.offsets[::-1]
    assert index.query("T", "k3", None, 0, FOREVER) == log.offsets[3::5][::-1]
    index.flush()
    assert reopened(after).query("T", "common", None, 0, FOREVER) == log.offsets[::-1]


def filled(files: LossyFiles) -> tuple[LogOfRecords, IndexFiles]:
    log = LogOfRecords()
    for n in range(40):
        log.append("T", 0, n, keys="k")
    index = opened(files)
    log.feed(index)
    index.flush()
    return log, index


@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize("damage", ["short", "empty", "zeros", "count", "missing", "long"])
def test_damage_is_reported_and_mended_from_the_place_named(damage: str, number: int) -> None:
    files = LossyFiles()
    log, index = filled(files)
    state = index.state()
    assert index.matches(state) == []
    path = DIRECTORY / names(files)[number]
    if damage == "missing":
        files.remove(path)
    else:
        file = files.open(path, True)
        match damage:
            case "short":
                file.truncate(file.size - 1)
            case "empty":
                file.truncate(0)
            case "long":
                file.truncate(file.size + 1)
            case "zeros":
                file.pwrite(bytes(file.size), 0)
            case _:
                file.pwrite(b"\x7f\xff\xff\xff", 36)
    index = opened(files)
    findings = index.load(state)
    assert len(findings) == 1
    assert findings[0].where == path.name
    only_header = damage == "count" and number == 3  # The newest file's header comes back from the state.
    assert (index.restore(state) == []) == only_header
    replay_from = findings[0].replay_from
    assert replay_from <= log.offsets[11 * number]
    index.truncate_to(replay_from)
    log.feed(index, next(i for i, at in enumerate(log.offsets) if at >= replay_from))
    assert index.query("T", "k", None, 0, FOREVER) == log.offsets[::-1]
    index.flush()
    assert reopened(files).query("T", "k", None, 0, FOREVER) == log.offsets[::-1]


def test_a_state_of_something_else_is_refused() -> None:
    files = LossyFiles()
    _, index = filled(files)
    for state in (None, {}, {"slots_max": 1, "entries_max": 2, "files": []}):
        assert index.matches(state)
        assert index.restore(state)
    assert index.count == 4
    assert index.matches({**index.state(), "files": []})


# Read-only


def test_read_only_takes_in_memory() -> None:
    files = LossyFiles()
    log, _ = filled(files)
    for n in range(40, 60):
        log.append("T", 0, n, keys="k k", store_ms=START_MS + 1000)
    steps = FaultyFiles(files)
    index = IndexFiles(DIRECTORY, steps, SLOTS, ENTRIES, ManualClock(), read_only=True)
    assert index.load() == []
    log.feed(index, batch=7)
    log.feed(index, 50)
    twice = [at for at in log.offsets[:39:-1] for _ in range(2)]
    assert index.query("T", "k", None, 0, FOREVER) == twice + log.offsets[39::-1]
    assert index.query("T", "k", 5, 0, FOREVER) == twice[:5]
    assert index.query("T", "k", None, 0, START_MS + 999) == log.offsets[39::-1]
    assert index.last_update == (START_MS + 1000, log.offsets[-1])
    index.flush()
    index.destroy_all()
    index.close()
    assert steps.steps == []
