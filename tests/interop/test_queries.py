"""Questions with windows, limits, tags and odd offsets: the same answers from both sides."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq import MessageStore
from embermq.format.java import string_hash
from embermq.testing.clock import ManualClock
from tests.interop.appender import append, opened
from tests.interop.compare import align_queue_times
from tests.interop.reference import ReferenceSession
from tests.interop.workload import SMALL_FILES, TOPICS, mixed

pytestmark = pytest.mark.interop

START_MS = 1_700_000_000_000
PAUSE_MS = 350
COUNT = 400
Sides = tuple[MessageStore, ReferenceSession]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """The same store open on both sides at once: ours, and a copy in RocketMQ's hands."""
    folder = tmp_path_factory.mktemp("queries")
    clock = ManualClock(START_MS)
    with opened(folder / "ours", SMALL_FILES, clock=clock) as store:
        for put in mixed(COUNT, seed=50):
            append(store, put)
            clock.advance(ms=PAUSE_MS)
    _hand_over(folder / "ours", folder / "theirs")
    with (
        opened(folder / "ours", SMALL_FILES, clock=clock) as store,
        ReferenceSession(folder / "theirs", SMALL_FILES) as session,
    ):
        yield store, session
    shutil.rmtree(folder)


def _hand_over(source: Path, target: Path) -> None:
    shutil.copytree(source, target)
    with ReferenceSession(target, SMALL_FILES) as session:
        records = session.dump().records
    align_queue_times(target, records)


@pytest.mark.parametrize("limit", [1, 3, 64])
def test_keys_in_windows_of_time(sides: Sides, limit: int) -> None:
    store, session = sides
    span_ms = COUNT * PAUSE_MS
    edges = [START_MS + part * span_ms // 7 + odd for part in range(-1, 9) for odd in (0, 1, 999)]
    found = 0
    for number, (begin_ms, end_ms) in enumerate(zip(edges, edges[5:], strict=False)):
        topic, key = TOPICS[number % len(TOPICS)], f"k{number}"
        theirs = session.find(topic, key, limit=limit, begin_ms=begin_ms, end_ms=end_ms)
        ours = store.index_offsets(topic, key, begin_ms, end_ms, limit)
        assert sorted(ours) == theirs, (topic, key, begin_ms, end_ms)
        found += len(theirs)
    assert found > 0


@pytest.mark.parametrize("tags", ["*", "paid", "paid || sent", "zurückgestellt", "nobody-uses-this"])
@pytest.mark.parametrize("max_messages", [1, 7, 32])
def test_pulls(sides: Sides, tags: str, max_messages: int) -> None:
    store, session = sides
    codes = None if tags == "*" else [string_hash(tag.strip()) for tag in tags.split("||")]
    for topic in TOPICS:
        end = store.max_offset(topic, 1)
        for queue_offset in (0, 1, end // 2, end - 1, end, end + 1, end + 1000):
            theirs = session.fetch(topic, 1, queue_offset, max_messages, codes)
            ours = store.fetch(topic, 1, offset=queue_offset, max_messages=max_messages, tags=tags)
            assert [message.physical_offset for message in ours.messages] == theirs["phys"]
            assert (ours.status, ours.next_offset) == (theirs["status"], theirs["next"])
            assert (ours.min_offset, ours.max_offset) == (theirs["min"], theirs["max"])


def test_offsets_by_time(sides: Sides) -> None:
    store, session = sides
    for topic in TOPICS:
        for time_ms in range(START_MS - 1000, START_MS + COUNT * PAUSE_MS + 2000, 1777):
            assert store.offset_at(topic, 2, time_ms) == session.offset_at(topic, 2, time_ms), (topic, time_ms)
