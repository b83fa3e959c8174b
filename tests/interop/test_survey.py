"""Apache RocketMQ writes, and we look on from outside: whole records, all of them, none that is still being copied."""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from embermq.inspect.snapshot import Survey
from embermq.model.flags import has_queue_entry
from embermq.store.layout.owner import is_ours, lock_holder
from tests.interop.appender import append, opened
from tests.interop.reference import Dump, ReferenceSession, copied
from tests.interop.workload import DEFAULT_FILES, SMALL_FILES, mixed, put_of
from tests.support.surveys import bounds_of, seen_by

pytestmark = pytest.mark.interop

PATIENCE_SECONDS = 90.0


def assert_as_dumped(survey: Survey, dump: Dump) -> None:
    assert (survey.log_min, survey.log_end) == (dump.min_physical, dump.max_physical)
    seen = seen_by(survey)
    assert seen.places == [record.phy for record in dump.records]
    assert not seen.damages
    # Queues without a message are there in RocketMQ's memory only.
    queues = {(queue.topic, queue.queue_id): (queue.min, queue.max) for queue in dump.queues if queue.max}
    assert bounds_of(survey) == queues
    for queue in dump.queues:
        entries = survey.entries(queue.topic, queue.queue_id, queue.min, queue.max)
        assert entries["physical_offset"].tolist() == queue.phys


@pytest.mark.parametrize("settings", [SMALL_FILES, DEFAULT_FILES], ids=["small files", "default sizes"])
def test_a_broker_that_is_writing(settings: Mapping[str, str], directory: Path, tmp_path: Path) -> None:
    puts = mixed(3000, seed=61)
    with ReferenceSession(directory, settings) as session:
        assert lock_holder(directory) == session.pid
        assert is_ours(session.pid, directory / "embermq.state") is False
        survey = Survey.open(directory)
        session.feed([put_of(put) for put in puts])
        places: list[int] = []
        position, looks = survey.log_min, 0
        deadline = time.monotonic() + PATIENCE_SECONDS
        coming = session.put_answers()
        acknowledged = 0
        while acknowledged < len(puts) and time.monotonic() < deadline:
            survey.refresh()
            seen = seen_by(survey, position, survey.log_end)
            assert not seen.damages
            places += seen.places
            position, looks = survey.log_end, looks + bool(seen.places)
            low_high = bounds_of(survey)
            for key, (low, high) in list(low_high.items())[:3]:
                assert len(survey.entries(*key, low, high)) == high - low
            acknowledged += sum(1 for _ in zip(range(40), coming, strict=False))
        session.settle()
        survey.refresh()
        places += seen_by(survey, position, survey.log_end).places
        dump = session.dump()
        assert places == [record.phy for record in dump.records]
        assert looks > 3
        assert_as_dumped(survey, dump)
        assert_as_dumped(Survey.open(directory), dump)
        # Copied as it runs: nothing proves the queue files, and nothing is missing.
        shutil.copytree(directory, tmp_path / "copy")
        assert_as_dumped(Survey.open(tmp_path / "copy"), dump)
        keyed = next(record for record in dump.records[-200:] if record.keys)
        word = (keyed.keys or "").split(" ")[0]
        found = Survey.open(directory).find_key(keyed.topic, word, 0, 1 << 62)
        assert found is not None
        assert set(session.find(keyed.topic, word)) <= set(found)
    assert_as_dumped(Survey.open(directory), dump)


def test_a_broker_that_is_killed(directory: Path) -> None:
    puts = mixed(4000, seed=62)
    with ReferenceSession(directory, SMALL_FILES) as session:
        session.feed([put_of(put) for put in puts])
        coming = session.put_answers()
        survey = Survey.open(directory)
        answers = [next(coming) for _ in range(700)]
        survey.refresh()
        before = seen_by(survey).places
        session.kill()
        answers += coming
    survey.refresh()
    after = seen_by(survey).places
    assert after[: len(before)] == before
    assert len(before) >= 600
    acknowledged = {answer.wrote_offset for answer in answers if answer.ok}
    assert acknowledged <= set(after)
    with copied(directory, drop_empty_files=True) as copy, ReferenceSession(copy, SMALL_FILES) as session:
        session.settle()
        assert_as_dumped(survey, session.dump())


def test_a_broker_killed_before_it_made_the_next_file(directory: Path) -> None:
    """Its newest file ends in a filler, and nothing comes after: it writes in place of the filler again."""
    with ReferenceSession(directory, SMALL_FILES) as session:
        assert all(answer.ok for answer in session.put_all(map(put_of, mixed(1000, seed=65))))
        session.settle()
    first, second, *later = sorted((directory / "commitlog").iterdir())
    for path in later:
        path.unlink()
    for derived in ("consumequeue", "index", "checkpoint"):
        path = directory / derived
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (directory / "abort").touch()
    survey = Survey.open(directory)
    assert first.stat().st_size < survey.log_end < first.stat().st_size + second.stat().st_size
    with copied(directory) as copy, ReferenceSession(copy, SMALL_FILES) as session:
        session.settle()
        assert_as_dumped(survey, session.dump())


def test_a_broker_that_goes_on_with_our_store(directory: Path) -> None:
    """Closed here, opened there: our state page is old, and the new records are seen."""
    settings = {**SMALL_FILES, "flushDiskType": "SYNC_FLUSH"}
    ours, theirs = mixed(60, seed=63), mixed(90, seed=64)
    with opened(directory, settings) as store:
        for put in ours:
            append(store, put)
        survey = Survey.open(directory)
    with ReferenceSession(directory, settings) as session:
        for answer in session.put_all(map(put_of, theirs)):
            assert answer.ok
        survey.refresh()
        session.settle()
        dump = session.dump()
        assert is_ours(session.pid, directory / "embermq.state") is False
        assert_as_dumped(survey, dump)
        assert_as_dumped(Survey.open(directory), dump)
    assert_as_dumped(Survey.open(directory), dump)
    assert any(not has_queue_entry(record.sys_flag) for record in dump.records)
