"""The parts of the audit that need no Spark: what a piece counts, silences, duplicates."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from embermq import Message
from embermq.columns import QueueSlots
from embermq.files import RealFiles
from embermq.inspect.snapshot import Survey
from embermq.spark.jobs import audit_duplicates, audit_tally, audit_totals
from embermq.spark.jobs.audit_duplicates import find_duplicates, part_count, split
from embermq.spark.jobs.audit_tally import HOUR_MS, KEY_ROW, OTHER_TAGS, Gap, PieceTally, is_rhythmic
from embermq.spark.jobs.audit_totals import Totals
from embermq.store.log.file_scan import DamagedRange
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock

START_MS = 1_700_000_000_000 // HOUR_MS * HOUR_MS


# -- how much is one task ---------------------------------------------------------------------------

GIB, MILLION = 1 << 30, 1_000_000


@pytest.mark.parametrize(
    ("log_bytes", "entries", "cores", "parts"),
    [
        (0, 0, 4, 1),
        (1 << 20, 1_000, 4, 1),  # Not worth a task for each core.
        (GIB, MILLION, 2, 2),
        (4 * GIB, 4 * MILLION, 2, 2),
        (5 * GIB, 5 * MILLION, 2, 4),
        (4 * GIB, 0, 2, 2),  # No queue files.
        (4 * GIB, 1 << 60, 1, 23),  # Queue files with impossible offsets.
    ],
)
def test_hashes_are_cut_into_as_many_parts_for_each_core(log_bytes: int, entries: int, cores: int, parts: int) -> None:
    assert part_count(log_bytes, entries, cores) == parts


# -- what a piece counts ---------------------------------------------------------------------------


def tallied(root: Path, step_ms: int = 1000) -> tuple[PieceTally, NDArray[np.void]]:
    tally, routes, survey = PieceTally(step_ms), QueueSlots(), Survey.open(root)
    for batch in survey.scan(survey.log_min, survey.log_end, rows_max=7):
        assert not isinstance(batch, DamagedRange)
        tally.take(batch, routes.route(batch).astype(np.int64), routes.names)
    return tally, tally.finish()


@pytest.fixture
def store(tmp_path: Path) -> StoreBuilder:
    """Three hours, a message a minute, of two topics in turn; every fifth record is of a retry topic."""
    clock = ManualClock(START_MS)
    builder = StoreBuilder(tmp_path / "store", clock=clock)
    with builder.open() as opened:
        for n in range(180):
            clock.set(START_MS + 60_000 * n)
            topic = "%RETRY%g" if n % 5 == 0 else f"T{n % 2}"
            opened.append(
                Message(topic, b"x" * (n % 7), tags=("a", "b", None)[n % 3], properties={"UNIQ_KEY": f"k{n}"})
            )
    return builder


def test_records_by_topic_tag_and_hour(store: StoreBuilder) -> None:
    tally, keys = tallied(store.root)
    expected: dict[tuple[str, str, int], tuple[int, int]] = {}
    with store.open(read_only=True) as opened:
        for one in opened.scan():
            key = one.topic, one.tags or "", one.store_timestamp // HOUR_MS * HOUR_MS
            before = expected.get(key, (0, 0))
            expected[key] = before[0] + 1, before[1] + one.size
    assert tally.counts == expected
    assert {hour for _, _, hour in tally.counts} == {START_MS, START_MS + HOUR_MS, START_MS + 2 * HOUR_MS}
    assert len(tally.volume) == 180
    assert sum(messages for messages, _ in tally.volume.values()) == 180
    assert len(keys) == 144  # Not those of the retry topic.
    assert len(np.unique(keys["hash"])) == 144
    assert set(tally.rhythms) == {"T0", "T1"}


def test_too_many_tags_are_counted_together(store: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_tally, "TAGS_MAX", 2)
    tally, _ = tallied(store.root)
    assert {tag for _, tag, _ in tally.counts} == {"", "a", OTHER_TAGS}
    assert sum(messages for messages, _ in tally.counts.values()) == 180
    totals = Totals(1000)
    monkeypatch.setattr(audit_totals, "COUNTS_MAX", 1)
    totals.add(tally)
    assert sum(messages for messages, _ in totals.counts.values()) == 180
    assert sum(messages for messages, _ in totals.topics().values()) == 180


def test_times_that_make_no_sense(tmp_path: Path) -> None:
    """Nothing sums up the times of a record."""
    builder = StoreBuilder(tmp_path / "store")
    with builder.open() as opened:
        places = [opened.append(Message("T", b"x")).physical_offset for _ in range(6)]
    path = next((builder.root / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    for place, value in zip(places, (-1, 0, 1 << 62, -(1 << 62), (1 << 63) - 1), strict=False):
        data[place + 56 : place + 64] = value.to_bytes(8, "big", signed=True)
    path.write_bytes(data)
    tally, _ = tallied(builder.root)
    assert sum(messages for messages, _ in tally.counts.values()) == 6
    totals = Totals(1000)
    totals.add(tally)
    assert list(totals.silences(0, 0)) == []  # Fewer than fifty messages have no rhythm.


@pytest.mark.parametrize(
    ("topic", "counts"),
    [
        ("orders", True),
        ("%RETRY%g", False),
        ("%DLQ%g", False),
        ("SCHEDULE_TOPIC_XXXX", False),
        ("RMQ_SYS_TRANS_HALF_TOPIC", False),
        ("rmq_sys_wheel_timer", False),
    ],
)
def test_topics_by_which_messages_come_again(topic: str, counts: bool) -> None:
    assert is_rhythmic(topic) is counts


# -- silences --------------------------------------------------------------------------------------


def silences(tmp_path: Path, gaps_ms: list[int], pieces: int = 1, since_ms: int = 0) -> list[tuple[str, Gap, int]]:
    """What is reported of a topic with these gaps and none since so long, counted in so many pieces."""
    clock = ManualClock(START_MS)
    builder = StoreBuilder(tmp_path / "store", clock=clock)
    with builder.open() as opened:
        places = [opened.append(Message("T", b"x")).physical_offset]
        now = START_MS
        for gap in gaps_ms:
            clock.set(now := now + gap)
            places.append(opened.append(Message("T", b"x")).physical_offset)
    survey, totals, routes = Survey.open(builder.root), Totals(1000), QueueSlots()
    borders = [*(places[len(places) * n // pieces] for n in range(pieces)), survey.log_end]
    for start, end in pairwise(borders):
        tally = PieceTally(1000)
        for batch in survey.scan(start, end):
            assert not isinstance(batch, DamagedRange)
            tally.take(batch, routes.route(batch).astype(np.int64), routes.names)
        tally.finish()
        totals.add(tally)
    assert totals.rhythms["T"].messages == len(places)
    return list(totals.silences(now + since_ms, survey.log_end))


@pytest.mark.parametrize("pieces", [1, 7])
def test_an_hour_without_a_message_where_one_comes_every_second(tmp_path: Path, pieces: int) -> None:
    found = silences(tmp_path, [1000] * 100 + [HOUR_MS] + [1000] * 60, pieces)
    ((topic, gap, usual_ms),) = found
    assert (topic, gap.start_ms, gap.length_ms, usual_ms) == ("T", START_MS + 100_000, HOUR_MS, 1024)


@pytest.mark.parametrize(
    "gaps_ms",
    [
        pytest.param([1000] * 100 + [50_000] + [1000] * 100, id="less than a minute"),
        pytest.param([60_000] * 100 + [900_000] + [60_000] * 100, id="not twenty times the usual gap"),
        pytest.param([*[1] * 30, HOUR_MS] * 6, id="a burst every hour"),
        pytest.param([1000] * 20 + [86_400_000] + [1000] * 20, id="too few messages"),
    ],
)
def test_no_silence(tmp_path: Path, gaps_ms: list[int]) -> None:
    assert silences(tmp_path, gaps_ms) == []


def test_a_silence_longer_than_all_the_rest_does_not_hide_itself(tmp_path: Path) -> None:
    ((_, gap, _),) = silences(tmp_path, [1000] * 40 + [100 * HOUR_MS] + [1000] * 40, 3)
    assert gap.length_ms == 100 * HOUR_MS


def test_several_outages_do_not_make_each_other_usual(tmp_path: Path) -> None:
    outages = [3 * HOUR_MS, 5 * HOUR_MS, 9 * HOUR_MS]
    gaps = [gap for outage in outages for gap in (*[1000] * 40, outage)]
    found = silences(tmp_path, [*gaps, *[1000] * 40], 4)
    assert [gap.length_ms for _, gap, _ in found] == outages
    assert {usual_ms for _, _, usual_ms in found} == {1024}


def test_a_silence_that_lasts_until_now_comes_first(tmp_path: Path) -> None:
    found = silences(tmp_path, [1000] * 60 + [2 * HOUR_MS] + [1000] * 60, since_ms=HOUR_MS)
    assert [gap.length_ms for _, gap, _ in found] == [HOUR_MS, 2 * HOUR_MS]
    assert found[0][1].place > found[1][1].place


def test_an_outage_of_a_topic_with_a_burst_every_hour(tmp_path: Path) -> None:
    """The hours between bursts stay the rhythm of the topic."""
    found = silences(tmp_path, [*[*[1] * 30, HOUR_MS] * 6, 40 * HOUR_MS, *[*[1] * 30, HOUR_MS] * 4])
    assert [gap.length_ms for _, gap, _ in found] == [40 * HOUR_MS]


def test_the_usual_gap_of_simultaneous_messages(tmp_path: Path) -> None:
    ((_, gap, usual_ms),) = silences(tmp_path, [0] * 60 + [HOUR_MS] + [0] * 3)
    assert (gap.length_ms, usual_ms) == (HOUR_MS, 1)


# -- duplicates ------------------------------------------------------------------------------------


def key_rows(root: Path) -> NDArray[np.void]:
    return tallied(root)[1]


def test_parts_hold_every_row_once(store: StoreBuilder) -> None:
    rows = key_rows(store.root)
    for parts in (1, 3, 40_000):
        found = {part: np.frombuffer(block, KEY_ROW) for part, block in split(rows, parts)}
        assert all((block["hash"] % np.uint64(parts) == part).all() for part, block in found.items())
        assert sorted(np.concatenate(list(found.values())).tolist()) == sorted(rows.tolist())
    assert list(split(rows[:0], 3)) == []


def test_so_many_duplicates_that_not_all_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StoreBuilder(tmp_path / "store")
    with builder.open() as opened:
        opened.append_many([Message("T", b"x", properties={"UNIQ_KEY": f"k{n % 100}"}) for n in range(300)])
    segments, rows = Survey.open(builder.root).segments, key_rows(builder.root)
    every = find_duplicates([rows[:50].tobytes(), rows[50:].tobytes()], segments, RealFiles())
    assert (len(every.found), every.more) == (100, 0)
    assert {one.unique_key for one in every.found} == {f"k{n}" for n in range(100)}
    monkeypatch.setattr(audit_duplicates, "COMPARED_MAX", 10)
    some = find_duplicates([rows.tobytes()], segments, RealFiles())
    assert some.found == every.found[:10]
    assert (some.more, some.more_messages) == (90, 180)


def test_hashes_that_agree_by_chance_are_told_apart_by_their_texts(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    with builder.open() as opened:
        opened.append_many([Message("T", b"x", properties={"UNIQ_KEY": key}) for key in ("a", "b", "a", "c")])
        opened.append(Message("U", b"x", properties={"UNIQ_KEY": "b"}))
    rows = key_rows(builder.root).copy()
    rows["hash"] = 7
    (one,) = find_duplicates([rows.tobytes()], Survey.open(builder.root).segments, RealFiles()).found
    assert (one.topic, one.unique_key, one.messages, one.queue_offset) == ("T", "a", 2, 2)


def test_a_log_file_that_went_meanwhile(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    with builder.open() as opened:
        opened.append_many([Message("T", b"x", properties={"UNIQ_KEY": "k"}) for _ in range(2)])
    rows, segments = key_rows(builder.root), Survey.open(builder.root).segments
    for segment in segments:
        segment.path.unlink()
    assert find_duplicates([rows.tobytes()], segments, RealFiles()).found == []
