"""A writer that finds another token in the state page stops: nothing acknowledged, nothing proved or deleted."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from embermq import BatchItem, Message, MessageBatch, MessageStore
from embermq.columns import R_BODY_LEN, R_TOPIC_LEN, new_run_rows
from embermq.errors import StoreError, WriterFenced, again
from embermq.files import Files, RealFiles
from embermq.model.status import PutStatus
from embermq.settings import FlushDisk
from embermq.store import PackedBatch
from embermq.store.layout import fence as fencing
from embermq.store.layout.fence import Fence, FencedFiles, claim, living_writer, renew_page
from embermq.store.layout.state_page import STATE_FILE, StatePage, load_state_page
from embermq.testing.builder import StoreBuilder
from embermq.testing.faulty_files import FaultyFiles

OTHER_TOKEN = 4711
PROOFS = ("embermq.state", "embermq.index.json", "checkpoint")


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", delayed_delivery=False)


def page_of(root: Path) -> StatePage:
    page = load_state_page(RealFiles(), root, writable=True)
    assert page is not None
    return page


def take_away(root: Path) -> None:
    """Be another writer, as far as the page tells."""
    page = page_of(root)
    page.writer_pid, page.writer = 1, OTHER_TOKEN
    page.close()


def new_fence(root: Path) -> tuple[Fence, StatePage]:
    fence, believed = claim(RealFiles(), root)
    assert believed is None
    return fence, renew_page(RealFiles(), root, fence)


def packed_message(body: bytes) -> PackedBatch:
    """One message of topic t."""
    rows = new_run_rows(1)
    rows[0, R_BODY_LEN], rows[0, R_TOPIC_LEN] = len(body), 1
    return PackedBatch(rows, bodies=body, topics=b"t")


def close_fenced(store: MessageStore) -> None:
    with pytest.raises(StoreError, match=r"was not closed cleanly: .* was opened for writing by process 1"):
        store.close()


# -- the token ---------------------------------------------------------------------------------------------------------


def test_each_opening_for_writing_has_a_token_of_its_own(builder: StoreBuilder) -> None:
    tokens = set()
    for _ in range(2):
        with builder.open():
            page = page_of(builder.root)
            tokens.add(page.writer)
            assert page.writer_pid == os.getpid()
        page = page_of(builder.root)
        assert (page.writer, page.writer_pid) == (0, 0), "closed"
    assert len(tokens) == 2
    with builder.open(read_only=True):
        assert page_of(builder.root).writer == 0


def test_an_opening_that_fails_leaves_no_writer(builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    builder.open().close()

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no")

    with monkeypatch.context() as patched:
        patched.setattr("embermq.store.recovery.opening.Walker", refuse)
        with pytest.raises(StoreError):
            builder.open()
    assert page_of(builder.root).writer == 0
    builder.open().close()


def test_a_page_of_an_earlier_version_is_believed(builder: StoreBuilder) -> None:
    with builder.open() as store:
        receipt = store.append(Message("t", b"x"))
    numbers = np.memmap(builder.root / STATE_FILE, dtype="<i8", mode="r+")
    for field in (12, 13):
        numbers[field] = numbers[field + 16] = 0
    numbers.flush()
    with builder.open() as store:
        assert store.recovery.reason == "closed cleanly"
        assert page_of(builder.root).flushed == receipt.size
        assert page_of(builder.root).writer != 0


def test_a_page_that_cannot_be_believed_fences_a_writer_that_still_maps_it(builder: StoreBuilder) -> None:
    store = builder.open()
    page = page_of(builder.root)
    page._numbers[1] ^= 1  # Its epoch and the inverse disagree: the next writer makes another page.
    fence, believed = claim(RealFiles(), builder.root)
    assert believed is None
    with pytest.raises(WriterFenced, match="by another part of this process"):
        store.append(Message("t", b"x"))
    assert fence.is_ours
    renewed = renew_page(RealFiles(), builder.root, fence)
    assert fence.is_ours
    assert renewed.writer == page_of(builder.root).writer
    with pytest.raises(StoreError):
        store.close()


# -- what a fenced writer does not do ----------------------------------------------------------------------------------


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_no_append_after_another_writer_came(builder: StoreBuilder, flush: FlushDisk) -> None:
    store = builder.changed(flush=flush).open()
    before = store.append(Message("t", b"x"))
    take_away(builder.root)
    calls: list[Callable[[], object]] = [
        lambda: store.append(Message("t", b"y")),
        lambda: store.append_many([Message("t", b"y")] * 3),
        lambda: store.append_async(Message("t", b"y")),
        lambda: store.append_batch(MessageBatch(Message("t"), [BatchItem(b"y")])),
        lambda: store.append_packed(packed_message(b"y")),
        lambda: store.append_columns("t", [b"y"] * 40),
        lambda: store.internal.append(Message("t", b"y")),
        store.flush,
        store.delete_expired,
        lambda: store.delete_topic("t"),
    ]
    for call in calls:
        with pytest.raises(WriterFenced) as refused:
            call()
        assert "was opened for writing by process 1" in str(refused.value)
        assert refused.value.status == "SERVICE_NOT_AVAILABLE"
    assert store.max_physical == before.size
    assert store.at(0) is not None, "reading goes on"
    close_fenced(store)


class Hooked(FaultyFiles):
    """Calls `hook` before each sync of a log file."""

    hook: Callable[[], None] | None = None

    def count(self, kind: str, path: Path) -> object:  # type: ignore[override]
        if kind == "sync" and path.parent.name == "commitlog" and self.hook is not None:
            hook, self.hook = self.hook, None
            hook()
        return super().count(kind, path)


@pytest.mark.parametrize("how", ["append", "append_async", "append_many"])
def test_what_is_synced_after_another_writer_came_is_not_acknowledged(tmp_path: Path, how: str) -> None:
    files = Hooked(RealFiles())
    builder = StoreBuilder(tmp_path / "store", files=files, flush=FlushDisk.SYNC, delayed_delivery=False)
    store = builder.open()
    assert store.append(Message("t", b"x")).status is PutStatus.PUT_OK
    flushed = store.flushed_offset
    files.hook = lambda: take_away(builder.root)
    appends: dict[str, Callable[[], object]] = {
        "append": lambda: store.append(Message("t", b"y")),
        "append_async": lambda: store.append_async(Message("t", b"y")).result(30),
        "append_many": lambda: store.append_many([Message("t", b"y")] * 2),
    }
    with pytest.raises(WriterFenced):
        appends[how]()
    assert store.flushed_offset == flushed
    assert page_of(builder.root).flushed == flushed, "the page of the other one is left alone"
    with pytest.raises(WriterFenced):
        store.append(Message("t", b"z"))
    close_fenced(store)


def test_a_fenced_close_leaves_everything_alone(builder: StoreBuilder) -> None:
    with builder.open() as store:
        store.append(Message("t", b"before", keys=("k",)))
    store = builder.open()
    store.append_many([Message("t", b"x", keys=("k",))] * 10)
    store.wait_for_dispatch()
    store.engine.services.housekeeping.make_durable()
    store.engine.services.housekeeping.stop()
    store.append(Message("t", b"not dispatched"))
    take_away(builder.root)
    inventory = (builder.root / "embermq.inventory.json").read_bytes()
    queue = builder.root / "consumequeue" / "t" / "0" / f"{0:020d}"
    before = [(builder.root / name).read_bytes() for name in PROOFS] + [queue.read_bytes()]
    close_fenced(store)
    assert [(builder.root / name).read_bytes() for name in PROOFS] + [queue.read_bytes()] == before
    assert (builder.root / "embermq.inventory.json").read_bytes() == inventory
    assert (builder.root / "abort").exists()
    with builder.open() as store:
        assert len(store.fetch("t", 0, 0).messages) == 12


def test_housekeeping_and_retention_stop(builder: StoreBuilder) -> None:
    builder = builder.changed(segment_bytes=8192)
    store = builder.open()
    store.append_many([Message("t", bytes(500))] * 60)
    store.flush()
    store.wait_for_dispatch()
    store.engine.services.housekeeping.make_durable()
    store.engine.services.housekeeping.stop()
    names = sorted(path.name for path in (builder.root / "commitlog").iterdir())
    take_away(builder.root)
    for job in (store.engine.services.housekeeping.write_out, store.engine.services.housekeeping.make_durable):
        with pytest.raises(WriterFenced):
            job()
    with pytest.raises(WriterFenced):
        store.engine.services.retention.delete_expired(before_ms=1 << 60)
    assert store.engine.services.topic_deletion is not None
    with pytest.raises(WriterFenced):
        store.engine.services.topic_deletion.delete("t")
    assert (builder.root / "consumequeue" / "t" / "0").exists()
    assert sorted(path.name for path in (builder.root / "commitlog").iterdir()) == names
    page = page_of(builder.root)
    assert (page.writer, page.boot != 0) == (OTHER_TOKEN, True)
    close_fenced(store)


def test_private_buffers_are_not_committed_over_another_writer(builder: StoreBuilder) -> None:
    hour = 3_600_000
    builder = builder.changed(
        transient_pool=True, commit_interval_ms=hour, commit_thorough_interval_ms=hour, segment_bytes=65536
    )
    store = builder.open()
    assert store.settings.transient_pool_active
    arrived = threading.Event()
    store.on_arrival(lambda _: arrived.set())
    store.append(Message("t", b"committed at once"))
    assert arrived.wait(10)
    store.append(Message("t", b"in a private buffer"))
    take_away(builder.root)
    close_fenced(store)
    written = (builder.root / "commitlog" / f"{0:020d}").read_bytes()
    assert b"committed at once" in written
    assert b"private buffer" not in written


# -- the page itself ---------------------------------------------------------------------------------------------------


def test_a_page_that_was_replaced_is_noticed(builder: StoreBuilder) -> None:
    store = builder.open()
    store.engine.services.housekeeping.stop()
    content = (builder.root / STATE_FILE).read_bytes()
    (builder.root / STATE_FILE).unlink()
    store.engine.services.housekeeping.check_writer()
    store.append(Message("t", b"x"))  # Without a page there is no sign of another writer.
    (builder.root / STATE_FILE).write_bytes(content)
    store.engine.services.housekeeping.check_writer()
    with pytest.raises(WriterFenced, match=r"embermq\.state was replaced by another file"):
        store.append(Message("t", b"y"))
    with pytest.raises(StoreError):
        store.close()
    with builder.open() as store:
        assert [message.body for message in store.scan()] == [b"x"]


def test_only_another_living_process_with_the_page_open_counts(builder: StoreBuilder) -> None:
    files = RealFiles()
    assert living_writer(files, builder.root) is None, "no store"
    with builder.open():
        assert living_writer(files, builder.root) is None, "this process"
        page = page_of(builder.root)
        page.writer_pid = os.getppid()
        assert living_writer(files, builder.root) is None, "a process that has nothing to do with it"
        page.writer_pid = 1 << 30
        assert living_writer(files, builder.root) is None, "no process"
        page.writer_pid = os.getpid()


def test_names_are_not_changed_behind_the_fence(tmp_path: Path) -> None:
    fence, page = new_fence(tmp_path)
    files: Files = FencedFiles(RealFiles(), fence).as_files
    files.make_directory(tmp_path / "made")
    files.create(tmp_path / "file", 10, fallocate=False).close()
    page.writer = OTHER_TOKEN
    changes: list[Callable[[], object]] = [
        lambda: files.make_directory(tmp_path / "more"),
        lambda: files.make_one_directory(tmp_path / "more"),
        lambda: files.create(tmp_path / "new", 10, fallocate=False),
        lambda: files.open(tmp_path / "file", True),
        lambda: files.open_directory(tmp_path / "made"),
        lambda: files.replace_file(tmp_path / "file", b"x"),
        lambda: files.rename(tmp_path / "file", tmp_path / "new"),
        lambda: files.remove(tmp_path / "file"),
        lambda: files.remove_directory(tmp_path / "made"),
    ]
    for change in changes:
        with pytest.raises(WriterFenced):
            change()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["made", "file", STATE_FILE])
    assert files.read_all(tmp_path / "file") == bytes(10)
    fence.release()
    assert page_of(tmp_path).writer == OTHER_TOKEN


def test_the_refusal_says_what_happened_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing, "command_line", lambda pid: "java BrokerStartup")
    fence, page = new_fence(tmp_path)
    fence.check()
    page.writer_pid, page.writer = 77, OTHER_TOKEN
    refusal = fence.refusal
    assert refusal is not None
    assert (
        str(refusal)
        == str(again(refusal))
        == (
            f"{tmp_path} was opened for writing by process 77 (java BrokerStartup) while this one had it open."
            " This process takes no more messages and leaves the files of the store alone: close it, see to it"
            f" that only one process has {tmp_path} open for writing, and open it again"
        )
    )
    fence.give_up("another reason")
    assert str(fence.refusal) == str(refusal), "the first one stays"
