"""A topic is deleted: its queues are gone for everybody, it begins anew at 0, and no start brings the old one back."""

import threading
from pathlib import Path
from typing import Any

import pytest

from embermq import FetchStatus, Message, MessageStore
from embermq.errors import StoreClosed, StoreError, StoreReadOnly, TopicNameInvalid
from embermq.inspect.snapshot import Survey
from embermq.model.properties import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC
from embermq.repair.rebuild.rebuilding import rebuild
from embermq.repair.verify.store_check import verify
from embermq.settings import FlushDisk
from embermq.store.layout.deleted_topics import DELETED_TOPICS_FILE, load_deleted_topics
from embermq.testing.builder import StoreBuilder
from embermq.testing.faulty_files import FaultyFiles
from embermq.testing.lossy_files import LossyFiles
from embermq.testing.unsynced import keep_everything

ROOT = Path("/store")
# Much comes in, and nobody looks for keys.
LOADED: dict[str, Any] = {"segment_bytes": 1 << 20, "queue_file_bytes": 2000, "index": False}
SMALL: dict[str, Any] = {
    "segment_bytes": 8192,
    "queue_file_bytes": 160,
    "index_slots_max": 16,
    "index_entries_max": 40,
}


def builder(files: LossyFiles | FaultyFiles, **settings: object) -> StoreBuilder:
    return StoreBuilder(ROOT, files=files, **(SMALL | settings))


def fill(store: MessageStore, topic: str, count: int, word: str = "old") -> None:
    for n in range(count):
        store.append(Message(topic, f"{word} {n}".encode(), keys=[f"{word}{n}"], queue_id=n % 2))


def bodies(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    """What a consumer gets from the beginning on."""
    found, at = [], store.min_offset(topic, queue_id)
    while at < store.max_offset(topic, queue_id):
        outcome = store.fetch(topic, queue_id, at)
        found += [one.body for one in outcome.messages]
        at = outcome.next_offset
    return found


NEW = [b"new 0", b"new 2", b"new 4"]


@pytest.mark.parametrize("flush", list(FlushDisk))
@pytest.mark.parametrize("pool", [False, True])
def test_queues_are_gone_and_begin_anew(flush: FlushDisk, pool: bool) -> None:
    disk = LossyFiles()
    with builder(disk, flush=flush, transient_pool=pool, transient_pool_buffers=4).open() as store:
        fill(store, "T", 60)
        fill(store, "U", 10)
        assert store.delete_topic("T") == 2
        assert store.topics() == {"U": [0, 1]}
        assert store.fetch("T", 0, 0).status is FetchStatus.NO_MESSAGE_IN_QUEUE
        assert (store.min_offset("T", 0), store.max_offset("T", 0)) == (0, 0)
        assert not disk.exists(ROOT / "consumequeue" / "T")
        assert len(store.find("T", "old7")) == 1  # The log has it still.
        fill(store, "T", 6, "new")
        store.flush()  # Out of the private buffers, where nobody reads.
        assert bodies(store, "T", 0) == NEW
        assert len(bodies(store, "U", 0)) == 5


def test_a_topic_that_is_not_there_and_one_that_may_not_go(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        assert store.delete_topic("never") == 0
        for topic in (SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC):
            with pytest.raises(StoreError, match="belongs to the store itself"):
                store.delete_topic(topic)
        with pytest.raises(TopicNameInvalid):
            store.delete_topic("")
    with pytest.raises(StoreClosed):
        store.delete_topic("T")
    with MessageStore.open(tmp_path / "store", read_only=True) as reader, pytest.raises(StoreReadOnly):
        reader.delete_topic("T")
    with MessageStore.open(tmp_path / "store", dispatch="none") as plain, pytest.raises(StoreError, match="no queues"):
        plain.delete_topic("T")


@pytest.mark.parametrize("how", ["closed", "killed", "lost power", "queues deleted", "everything derived deleted"])
@pytest.mark.parametrize("again", [False, True])
def test_no_start_brings_it_back(how: str, again: bool) -> None:
    disk = LossyFiles()
    store = builder(disk, flush=FlushDisk.SYNC).open()
    fill(store, "T", 60)
    fill(store, "U", 10)
    store.delete_topic("T")
    if again:
        fill(store, "T", 6, "new")
    fill(store, "V", 4)
    store.wait_for_dispatch()
    left = disk.crash() if how == "lost power" else disk.crash(keep_everything)
    store.close()
    if how not in ("killed", "lost power"):
        left = disk
    if how == "queues deleted":
        remove_tree(left, ROOT / "consumequeue")
    if how == "everything derived deleted":
        for name in ("consumequeue", "index"):
            remove_tree(left, ROOT / name)
        for name in ("checkpoint", "embermq.state", "embermq.index.json", "embermq.inventory.json"):
            left.remove(ROOT / name)
    for _ in range(2):
        with builder(left, flush=FlushDisk.SYNC).open() as opened:
            assert opened.topics() == {"U": [0, 1], "V": [0, 1]} | ({"T": [0, 1]} if again else {})
            assert bodies(opened, "T", 0) == (NEW if again else [])
            assert len(bodies(opened, "U", 1)) == 5
    with builder(left).open(read_only=True) as reader:
        assert bodies(reader, "T", 0) == (NEW if again else [])
    with builder(left).open() as opened:
        fill(opened, "T", 2, "more")
        assert bodies(opened, "T", 0) == [*(NEW if again else []), b"more 0"]


def remove_tree(disk: LossyFiles, directory: Path) -> None:
    for entry in disk.list_directory(directory):
        if entry.is_file:
            disk.remove(directory / entry.name)
        else:
            remove_tree(disk, directory / entry.name)
    disk.remove_directory(directory)


def test_offsets_kept_by_retention_are_dropped_with_the_topic(tmp_path: Path) -> None:
    plan = StoreBuilder(tmp_path / "store", **(SMALL | {"retention_hours": 0, "delete_segment_pause_ms": 0}))
    with plan.open() as store:
        fill(store, "T", 40)
        fill(store, "U", 200)
        store.wait_for_dispatch()
        assert store.delete_expired().segments
        assert (plan.root / "embermq.offsets.json").read_text().count('"T"') == 2
        assert store.append(Message("T", b"x")).queue_offset == 20
        store.delete_topic("T")
    with plan.open() as store:
        assert store.append(Message("T", b"x")).queue_offset == 0


def test_a_note_is_dropped_when_the_log_has_nothing_of_the_topic_any_more(tmp_path: Path) -> None:
    plan = StoreBuilder(tmp_path / "store", **(SMALL | {"retention_hours": 0, "delete_segment_pause_ms": 0}))
    with plan.open() as store:
        fill(store, "T", 10)
        store.delete_topic("T")
        fill(store, "U", 200)
        store.wait_for_dispatch()
        store.delete_expired()
        store.delete_topic("U")
        assert list(load_deleted_topics(plan.files, plan.root)) == ["U"]


def test_a_log_that_lost_its_end_goes_on_below_the_note() -> None:
    """What is appended there afterwards is of the topic's new life, and stays."""
    disk = LossyFiles()
    with builder(disk).open() as store:
        fill(store, "T", 60)
        store.delete_topic("T")
    for entry in disk.list_directory(ROOT / "commitlog")[1:]:
        disk.remove(ROOT / "commitlog" / entry.name)
    with builder(disk).open() as store:
        assert store.topics() == {}
        fill(store, "T", 6, "new")
    with builder(disk).open() as store:
        assert bodies(store, "T", 0) == NEW


@pytest.mark.parametrize("content", [b"", b"{", b'{"topics":[["U",99999]],"version":1,"crc":1}'])
def test_a_note_that_cannot_be_read_deletes_nothing(content: bytes) -> None:
    disk = LossyFiles()
    with builder(disk).open() as store:
        fill(store, "U", 10)
    disk.put(ROOT / DELETED_TOPICS_FILE, content)
    with builder(disk).open() as store:
        assert store.topics() == {"U": [0, 1]}


@pytest.mark.parametrize("kind", ["remove", "rename", "sync", "create", "remove_directory", "sync_directory"])
def test_what_the_disk_refuses_is_told_and_done_by_another_call(kind: str) -> None:
    files = FaultyFiles(LossyFiles())
    with builder(files).open() as store:
        fill(store, "T", 60)
        fill(store, "U", 4)
        store.wait_for_dispatch()
        store.engine.services.housekeeping.write_out()
        store.flush()
        files.fail(kind, times=1, path_contains="consumequeue" if kind.startswith("remove") else "embermq")
        failed = False
        try:
            store.delete_topic("T")
        except (OSError, StoreError):
            failed = True
        files.heal()
        assert failed or kind not in ("remove", "rename", "sync", "create")
        if kind != "sync":
            assert store.delete_topic("T") in (0, 1, 2)
            assert store.topics() == {"U": [0, 1]}
        assert len(bodies(store, "U", 0)) == 2


@pytest.mark.parametrize("again", [False, True])
def test_who_looks_from_outside_sees_the_same(tmp_path: Path, again: bool) -> None:
    plan = StoreBuilder(tmp_path / "store", **SMALL)
    with plan.open() as store:
        fill(store, "T", 60)
        fill(store, "U", 10)
        store.delete_topic("T")
        if again:
            fill(store, "T", 1, "new")
        store.flush()
        store.wait_for_dispatch()
        store.engine.services.housekeeping.write_out()
        expected = {("U", 0): 5, ("U", 1): 5} | ({("T", 0): 1} if again else {})
        live = Survey.open(plan.root).queues()
    assert {key: span.max_offset for key, span in live.items() if key[0] == "U" or key[1] == 0} == expected
    closed = Survey.open(plan.root).queues()
    assert {key: span.max_offset for key, span in closed.items()} == expected


@pytest.mark.parametrize("again", [0, 6])
def test_a_deletion_is_no_fault(tmp_path: Path, again: int) -> None:
    """Records of the deleted topic need no entries, and a rebuild makes none."""
    plan = StoreBuilder(tmp_path / "store", **SMALL)
    with plan.open() as store:
        fill(store, "T", 60)
        fill(store, "U", 10)
        store.delete_topic("T")
        fill(store, "T", again, "new")
    assert not verify(plan.root).flaws
    rebuild(plan.root, plan.settings)
    assert not verify(plan.root).flaws
    with plan.open() as store:
        assert bodies(store, "T", 0) == NEW[:again]
        assert len(bodies(store, "U", 0)) == 5
    assert not verify(plan.root).flaws


def test_a_lost_entry_of_a_new_life_is_a_fault(tmp_path: Path) -> None:
    plan = StoreBuilder(tmp_path / "store", **SMALL)
    with plan.open() as store:
        fill(store, "T", 60)
        store.delete_topic("T")
        fill(store, "T", 6, "new")
    (file,) = (plan.root / "consumequeue" / "T" / "1").iterdir()
    file.write_bytes(bytes(20) + file.read_bytes()[20:])
    assert verify(plan.root).faults


@pytest.mark.slow
def test_a_crash_between_any_two_steps_leaves_the_whole_topic_or_none_of_it() -> None:
    disk = LossyFiles()
    files = FaultyFiles(disk)
    left: list[LossyFiles] = []
    with builder(files, flush=FlushDisk.SYNC).open() as store:
        fill(store, "T", 30)
        fill(store, "U", 10)
        store.wait_for_dispatch()
        old = bodies(store, "T", 0)
        first = len(files.steps) + 1
        for step in range(first, first + 200):
            files.before(step=step, call=lambda: left.extend((disk.crash(), disk.crash(keep_everything))))
        store.delete_topic("T")
        files.heal()
    assert len(left) > 10
    seen = set()
    for moment in left:
        with builder(moment, flush=FlushDisk.SYNC).open() as opened:
            found = bodies(opened, "T", 0)
            assert found in ([], old)
            assert len(bodies(opened, "U", 0)) == 5
            seen.add(bool(found))
    assert seen == {False, True}


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_deleted_right_after_a_send_under_load(tmp_path: Path, flush: FlushDisk) -> None:
    """Threads append, one of them to the topic that goes again and again; readers read it all the time."""
    plan = StoreBuilder(tmp_path / "store", flush=flush, **LOADED)
    over = threading.Event()
    problems: list[BaseException] = []
    with plan.open() as store:

        def other() -> None:
            n = 0
            while not over.is_set():
                store.append(Message("Other", b"%d" % n))
                n += 1
                over.wait(0.0005)

        def read() -> None:
            while not over.is_set():
                for one in store.fetch("T", 0, 0).messages:
                    assert one.topic == "T"
                store.topics()
                store.offset_at("T", 0, 0)
                over.wait(0.001)

        def guarded(work: object) -> None:
            try:
                work()  # type: ignore[operator]
            except BaseException as problem:
                problems.append(problem)

        threads = [threading.Thread(target=guarded, args=(work,)) for work in (other, other, read)]
        for thread in threads:
            thread.start()
        for life in range(60):
            count = life % 7
            for n in range(count):
                assert store.append(Message("T", b"%d-%d" % (life, n))).queue_offset == n
            if life % 3:
                store.wait_for_dispatch()
                assert bodies(store, "T", 0) == [b"%d-%d" % (life, n) for n in range(count)]
            assert store.delete_topic("T") <= 1
            assert store.max_offset("T", 0) == 0
        over.set()
        for thread in threads:
            thread.join()
        assert not problems
        last = store.append(Message("T", b"last"))
        assert (last.queue_offset, bodies(store, "T", 0)) == (0, [b"last"])
        others = len(bodies(store, "Other", 0))
        assert others == store.max_offset("Other", 0) > 0
    assert verify(plan.root).is_sound
    with plan.open() as store:
        assert bodies(store, "T", 0) == [b"last"]


def test_appends_beside_a_deletion_belong_to_one_life_or_the_other(tmp_path: Path) -> None:
    plan = StoreBuilder(tmp_path / "store", **LOADED)
    over = threading.Event()
    with plan.open() as store:

        def append() -> None:
            while not over.is_set():
                store.append(Message("T", b"x"))
                over.wait(0.0001)

        threads = [threading.Thread(target=append) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(40):
            store.delete_topic("T")
        over.set()
        for thread in threads:
            thread.join()
        count = store.max_offset("T", 0)
        assert len(bodies(store, "T", 0)) == count
        offsets = [one.queue_offset for one in store.scan() if one.topic == "T"]
        assert offsets[-count:] == list(range(count)) if count else True
    with plan.open() as store:
        assert store.max_offset("T", 0) == count
    assert verify(plan.root).is_sound
