"""Writing entries out with files kept at hand: the same as when each is looked up anew, whatever happens in between."""

import gc
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.files import Files, RealFiles
from embermq.format.queue_entry import ENTRY_BYTES
from embermq.store.queues.consume_queues import ConsumeQueues
from embermq.store.queues.entry_files import EntryFiles
from embermq.testing.clock import ManualClock
from embermq.testing.faulty_files import FaultyFiles
from embermq.testing.lossy_files import LossyFiles
from tests.support.records import LogOfRecords

ROOT = Path("/store/consumequeue")
ENTRIES = 10  # per file
TOPICS = ["T", "U", "V"]


def opened(files: Files, root: Path = ROOT) -> ConsumeQueues:
    files.make_directory(root)
    return ConsumeQueues(root, files, ENTRIES * ENTRY_BYTES, ManualClock())


def all_files(files: Files, root: Path = ROOT) -> dict[str, bytes]:
    found = {}
    for topic in files.list_directory(root):
        for queue in files.list_directory(root / topic.name):
            for file in files.list_directory(root / topic.name / queue.name):
                path = root / topic.name / queue.name / file.name
                found[str(path)] = files.read_all(path)
    return found


def feed(log: LogOfRecords, queues: ConsumeQueues, topics: list[str], offsets: dict[str, int]) -> None:
    """A record for each of `topics`, at the offset that follows."""
    first = len(log.offsets)
    for topic in topics:
        log.append(topic, 0, offsets.get(topic, 0))
        offsets[topic] = offsets.get(topic, 0) + 1
    log.feed(queues, first)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("feed"), st.lists(st.sampled_from(TOPICS), min_size=1, max_size=25)),
        st.tuples(st.just("feed"), st.sampled_from(TOPICS).map(lambda topic: [topic] * 12)),
        st.tuples(st.just("discard"), st.tuples(st.sampled_from(TOPICS), st.sampled_from([0, 0, 3, 13]))),
        st.tuples(st.just("skip"), st.sampled_from(TOPICS)),
        st.tuples(st.just("cut"), st.integers(0, 30)),
        st.tuples(st.just("delete"), st.integers(0, 30)),
    ),
    max_size=25,
)


class Always(EntryFiles):
    """Looks every file up."""

    def _keep_at_hand(self, slot: int, file_start: int) -> None:
        pass


def played(steps: list[tuple[str, Any]], *, at_hand: bool) -> dict[str, bytes]:
    files = LossyFiles()
    queues = opened(files)
    if not at_hand:
        queues._entry_files = Always(queues._books, queues._queues.by_slot)
    log, offsets = LogOfRecords(), dict.fromkeys(TOPICS, 0)
    for what, about in steps:
        if what == "feed":
            feed(log, queues, about, offsets)
            queues.write_out()
        elif what == "discard":
            topic, offsets[topic] = about
            queues.discard(topic, 0)
        elif what == "skip":
            offsets[about] += 7  # A hole: filled when the next record comes.
        elif what == "cut" and about < len(log.offsets):
            queues.truncate_to(log.offsets[-about])
            offsets |= {topic: queues.next_offset(topic, 0) for topic in TOPICS}
        elif what == "delete" and about < len(log.offsets):
            queues.delete_before(log.offsets[-about])
    queues.close()
    return all_files(files)


@settings(max_examples=200, deadline=None)
@given(STEPS)
@pytest.mark.slow
def test_files_at_hand_are_the_right_ones(steps: list[tuple[str, Any]]) -> None:
    assert played(steps, at_hand=True) == played(steps, at_hand=False)


def test_a_queue_that_begins_anew_does_not_write_to_its_old_file() -> None:
    files = LossyFiles()
    queues = opened(files)
    log = LogOfRecords()
    offsets: dict[str, int] = {}
    for _ in range(2):
        feed(log, queues, ["T"] * 3, offsets)
        queues.write_out()
    queues.discard("T", 0)
    offsets["T"] = 0
    feed(log, queues, ["T"] * 4, offsets)
    queues.write_out()
    (content,) = all_files(files).values()
    physicals = [int.from_bytes(content[at : at + 8], "big") for at in range(0, 5 * ENTRY_BYTES, ENTRY_BYTES)]
    assert physicals == [*log.offsets[-4:], 0]


def test_what_could_not_be_written_is_written_later() -> None:
    disk = LossyFiles()
    files = FaultyFiles(disk)
    queues = opened(files)
    log = LogOfRecords()
    offsets: dict[str, int] = {}
    feed(log, queues, TOPICS, offsets)
    queues.write_out()
    feed(log, queues, TOPICS, offsets)
    files.fail("pwrite", nth=2, partial=True)
    with pytest.raises(OSError):
        queues.write_out()
    queues.write_out()
    assert all(content[ENTRY_BYTES + 8 : 2 * ENTRY_BYTES].strip(b"\0") for content in all_files(disk).values())


def open_descriptors(root: Path) -> int:
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return sum(os.readlink(link).startswith(str(root)) for link in links if os.path.islink(link))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors where Linux lists them")
@pytest.mark.slow
def test_descriptors_are_bounded_and_given_back(tmp_path: Path) -> None:
    root = tmp_path / "consumequeue"
    queues = opened(RealFiles(), root)
    queues._entry_files = EntryFiles(queues._books, queues._queues.by_slot, at_hand_max=5)
    queues._open._open_max = 10
    log = LogOfRecords()
    offsets: dict[str, int] = {}
    for _ in range(3):
        feed(log, queues, [f"T{number}" for number in range(40)], offsets)
        queues.write_out()
        gc.collect()
        assert open_descriptors(root) <= 15
    queues.close()
    gc.collect()
    assert open_descriptors(root) == 0
    assert len(all_files(RealFiles(), root)) == 40
