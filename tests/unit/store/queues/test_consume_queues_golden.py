"""Consume queues derived from RocketMQ's logs have RocketMQ's bytes."""

import shutil
from pathlib import Path

import pytest

from embermq.columns.rows import C_PHYSICAL, RecordColumns
from embermq.files import RealFiles
from embermq.store.queues.consume_queues import ConsumeQueues
from embermq.store.queues.extension import ExtensionSettings
from embermq.store.queues.multi_dispatch import MultiDispatch
from embermq.testing.clock import ManualClock
from tests.support.derived import last_physical, pending_count
from tests.support.golden import CLEAN_STORES, Manifest, content, manifest, restore
from tests.support.records import feed_golden

# The log of deleted-segments has lost its beginning; its queues are rebuilt in a test of their own.
REBUILT = [name for name in CLEAN_STORES if name not in ("deleted-segments", "default-size")]


def bitmaps(facts: Manifest) -> dict[int, bytes]:
    """RocketMQ's bit map of each record, by physical offset."""
    places = {
        (record.topic, record.queue_id, record.queue_offset): record.phy for record in facts.records if not record.blank
    }
    return {
        places[entry.topic, entry.queue_id, entry.offset]: bytes.fromhex(entry.bitmap or "")
        for entry in facts.ext_entries
    }


def derived(name: str, root: Path, log_min: int = 0) -> ConsumeQueues:
    facts = manifest(name)
    extension = None
    if facts.settings.get("enableConsumeQueueExt"):
        known = bitmaps(facts)

        def bitmap_for(batch: RecordColumns, i: int) -> bytes:
            return known[int(batch.rows[i, C_PHYSICAL])]

        extension = ExtensionSettings(
            root.with_name(root.name + "_ext"), int(facts.settings["mappedFileSizeConsumeQueueExt"]), bitmap_for
        )
    multi = MultiDispatch(light_queues=True) if facts.settings.get("enableMultiDispatch") else None
    file_bytes = int(facts.settings.get("mappedFileSizeConsumeQueue", 6_000_000))
    return ConsumeQueues(
        root, RealFiles(), file_bytes, ManualClock(), extension=extension, log_min=lambda: log_min, multi_dispatch=multi
    )


def levels(name: str) -> str:
    return str(manifest(name).settings["messageDelayLevel"])


@pytest.mark.parametrize("batch", [1, 7, 10_000])
@pytest.mark.parametrize("name", REBUILT)
def test_derived_queues_have_the_bytes_of_rocketmq(name: str, batch: int, tmp_path: Path) -> None:
    store = restore(name, tmp_path)
    queues = derived(name, tmp_path / "consumequeue")
    feed_golden(store, levels(name), queues, batch=batch)
    queues.flush()
    assert content(tmp_path / "consumequeue") == content(store / "consumequeue")
    assert content(tmp_path / "consumequeue_ext") == content(store / "consumequeue_ext")


@pytest.mark.parametrize("name", REBUILT)
def test_pending_entries_read_like_written_ones(name: str, tmp_path: Path) -> None:
    store = restore(name, tmp_path)
    queues = derived(name, tmp_path / "consumequeue")
    feed_golden(store, levels(name), queues)
    assert not (tmp_path / "consumequeue").exists()
    pending = {(q.topic, q.queue_id): queue_entries_of(q) for q in queues.all()}
    queues.flush()
    assert pending == {(q.topic, q.queue_id): queue_entries_of(q) for q in queues.all()}


def queue_entries_of(queue: object) -> list[object]:
    assert hasattr(queue, "entry")
    return [queue.entry(n) for n in range(queue.min_offset, queue.max_offset)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", CLEAN_STORES)
def test_bounds_and_times_of_a_loaded_store(name: str, tmp_path: Path) -> None:
    store = restore(name, tmp_path)
    answers = manifest(name).answers
    queues = derived(name, store / "consumequeue", answers.min_phy_offset)
    assert queues.load() == []
    queues.correct_min(answers.min_phy_offset)
    for known in answers.queues:
        queue = queues.find(known.topic, known.queue_id)
        assert queue is not None
        assert (queue.min_offset, queue.max_offset) == (known.min, known.max)
        assert last_physical(queue) == queue.max_physical == known.max_physic_offset
        if isinstance(known.last_offset, int):
            assert last_physical(queue) == known.last_offset
    assert len(queues.all()) == len(answers.queues)
    times = {record.phy: record.store_timestamp for record in manifest(name).records}
    for row in answers.get_offset_in_queue_by_time:
        queue = queues.find(row.topic, row.queue_id)
        assert queue is not None
        for timestamp, offset in row.time_to_offset:
            found = queue.offset_at(timestamp, lambda at, _size: times.get(at, -1), answers.min_phy_offset)
            assert found == offset, (queue, timestamp)
    for entries in answers.entries:
        queue = queues.find(entries.topic, entries.queue_id)
        for offset, physical, _ in entries.offset_phy_store_time:
            entry = None if queue is None else queue.entry(offset)
            assert (0 if entry is None else entry[0]) == physical


@pytest.mark.parametrize("name", REBUILT)
def test_feeding_again_changes_nothing(name: str, tmp_path: Path) -> None:
    store = restore(name, tmp_path)
    before = content(store / "consumequeue"), content(store / "consumequeue_ext")
    queues = derived(name, store / "consumequeue")
    queues.load()
    feed_golden(store, levels(name), queues)
    assert pending_count(queues) == 0
    queues.begin_replay()
    feed_golden(store, levels(name), queues)
    queues.finish_replay(0, queues.position)
    queues.flush()
    assert (content(store / "consumequeue"), content(store / "consumequeue_ext")) == before


@pytest.mark.parametrize("name", ["unclean-behind", "unclean-lost-pages"])
def test_a_replay_brings_queues_in_line_with_the_log(name: str, tmp_path: Path) -> None:
    store = restore(name, tmp_path)
    facts = manifest(name)
    repaired = derived(name, store / "consumequeue")
    repaired.load()
    repaired.begin_replay()
    feed_golden(store, levels(name), repaired)
    repaired.finish_replay(0, repaired.position)
    repaired.flush()
    fresh = derived(name, tmp_path / "fresh")
    feed_golden(store, levels(name), fresh)
    fresh.flush()
    assert content(store / "consumequeue") == content(tmp_path / "fresh")
    assert facts.recovered is not None
    for (topic, queue_id), (low, high, _) in facts.recovered.after_start.by_queue().items():
        queue = repaired.find(topic, queue_id)
        assert ((0, 0) if queue is None else (queue.min_offset, queue.max_offset)) == (low, high)


def test_a_queue_whose_log_lost_its_beginning_starts_with_blanks(tmp_path: Path) -> None:
    store = restore("deleted-segments", tmp_path)
    before = content(store / "consumequeue")
    facts = manifest("deleted-segments")
    shutil.rmtree(store / "consumequeue")
    queues = derived("deleted-segments", store / "consumequeue", facts.answers.min_phy_offset)
    feed_golden(store, levels("deleted-segments"), queues)
    queues.flush()
    for known in facts.answers.queues:
        queue = queues.find(known.topic, known.queue_id)
        assert queue is not None
        assert (queue.min_offset, queue.max_offset) == (known.min, known.max)
        first = queue.peek(known.min - known.min % 10)
        assert first == (0, 0x7FFFFFFF, 0) or known.min % 10 == 0
    # All files but the first of each queue are those of RocketMQ.
    after = content(store / "consumequeue")
    assert {path for path in before if before[path] == after.get(path)} >= {
        path for path in after if not _is_first(path, after)
    }


def _is_first(path: str, files: dict[str, str]) -> bool:
    directory = path.rpartition("/")[0]
    return path == min(other for other in files if other.rpartition("/")[0] == directory)
