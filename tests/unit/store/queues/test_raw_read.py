"""Raw reads: the stored bytes of a queue's messages, their limits, and when the short way is taken."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.errors import StoreClosed, StoreError, TopicNameInvalid
from embermq.model.status import FetchStatus
from embermq.settings import KernelUse
from embermq.store.queues import fetch

SEGMENT_BYTES = 64 << 10
SETTINGS = StoreSettings(
    segment_bytes=SEGMENT_BYTES,
    queue_file_bytes=20 * 1000,
    index_slots_max=10,
    index_entries_max=1000,
    disk_full_percent=100,
)


@pytest.fixture(params=[KernelUse.ALWAYS, KernelUse.NEVER], ids=["compiled", "plain"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, SETTINGS.replace(kernels=request.param)) as made:
        made.append_many(
            Message("orders", bytes([n]) * 1000, tags="paid" if n % 3 else "sent", queue_id=0) for n in range(200)
        )
        made.wait_for_dispatch()
        yield made


def only_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError("an ordinary read went the long way")

    monkeypatch.setattr(fetch.Fetcher, "pick", refuse)


def stored(store: MessageStore, offsets: list[int]) -> bytes:
    found = {one.queue_offset: one for one in store.scan()}
    return b"".join(store.read_log(found[at].physical_offset, found[at].size) for at in offsets)


def test_the_stored_bytes_one_after_another(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    only_the_short_way(monkeypatch)
    assert len(store.engine.log.segments) > 2
    for offset in (0, 30, 50, 110, 168):  # In and across log files, mapped ones and others.
        read = store.read_raw("orders", 0, offset)
        assert (read.status, read.count, read.next_offset) == (FetchStatus.FOUND, 32, offset + 32)
        assert (read.min_offset, read.max_offset) == (0, 200)
        assert bytes(read.data) == stored(store, list(range(offset, offset + 32)))
    assert store.read_raw("orders", 0, 190).count == 10


def test_a_bulk_has_limits_of_its_own(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    only_the_short_way(monkeypatch)
    read = store.read_raw("orders", 0, 0, 150, 1 << 20, is_bulk=True)
    assert (read.count, read.next_offset) == (150, 150)
    assert bytes(read.data) == stored(store, list(range(150)))
    size = len(read.data) // 150
    assert store.read_raw("orders", 0, 0, 150, 100 * size, is_bulk=True).count == 100
    assert store.read_raw("orders", 0, 0, 150, 1, is_bulk=True).count == 1
    assert store.read_raw("orders", 0, 190, 150, 1 << 20, is_bulk=True).count == 10
    paid = store.read_raw("orders", 0, 0, 150, 1 << 20, "paid", is_bulk=True)
    assert paid.count > 32
    assert store.read_raw("orders", 0, 0, 150).count == 32


def test_filtered(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    only_the_short_way(monkeypatch)
    read = store.read_raw("orders", 0, 10, 5, filter="sent")
    assert bytes(read.data) == stored(store, [12, 15, 18, 21, 24])
    assert (read.status, read.next_offset) == (FetchStatus.FOUND, 25)
    none = store.read_raw("orders", 0, 10, filter="lost")
    assert (none.status, none.count, len(none.data), none.next_offset) == (FetchStatus.NO_MATCHED_MESSAGE, 0, 0, 200)


def test_statuses_without_messages(store: MessageStore) -> None:
    for topic, offset, status, onward in (
        ("never", 7, FetchStatus.NO_MESSAGE_IN_QUEUE, 0),
        ("orders", -1, FetchStatus.OFFSET_TOO_SMALL, 0),
        ("orders", 200, FetchStatus.OFFSET_OVERFLOW_ONE, 200),
        ("orders", 201, FetchStatus.OFFSET_OVERFLOW_BADLY, 200),
    ):
        read = store.read_raw(topic, 0, offset)
        assert (read.status, read.count, bytes(read.data), read.next_offset) == (status, 0, b"", onward)


def test_limits(store: MessageStore) -> None:
    size = len(stored(store, [0]))
    assert store.read_raw("orders", 0, 0, 0).count == 1
    assert store.read_raw("orders", 0, 0, 1000).count == 32  # maxTransferCountOnMessageInMemory
    assert store.read_raw("orders", 0, 0, max_bytes=1).count == 1
    assert store.read_raw("orders", 0, 0, max_bytes=3 * size).count == 3
    assert store.read_raw("orders", 0, 0, max_bytes=3 * size - 1).count == 2
    assert store.read_raw("orders", 0, 0, max_bytes=3 * size, filter="paid").count == 3
    assert store.read_raw("orders", 0, 0, max_bytes=1 << 40).count == 32


def test_a_message_larger_than_the_limit(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.append(Message("orders", b"y" * (50 << 10), queue_id=1))
    store.append_many(Message("orders", b"z" * 1000, queue_id=1) for _ in range(60))
    store.wait_for_dispatch()
    only_the_short_way(monkeypatch)
    for wanted in (None, "*"):
        read = store.read_raw("orders", 1, 0, max_bytes=1000, filter=wanted)
        assert (read.count, read.next_offset) == (1, 1)
        assert len(read.data) > 50 << 10


def test_a_read_waits_only_if_asked_to(store: MessageStore) -> None:
    held, go_on = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        held.set()
        assert go_on.wait(20)

    remove = store.on_arrival(hold)
    try:
        store.append(Message("orders", b"1", queue_id=0))
        assert held.wait(20)
        store.append(Message("orders", b"2", queue_id=0))  # The dispatcher is held up before this one.
        assert store.read_raw("orders", 0, 201).status is FetchStatus.OFFSET_OVERFLOW_ONE
        assert store.fetch("orders", 0, 201, wait=False).status is FetchStatus.OFFSET_OVERFLOW_ONE
    finally:
        go_on.set()
        remove()
    assert store.read_raw("orders", 0, 201, wait=True).count == 1


def test_a_damaged_record_is_not_given_out(store: MessageStore) -> None:
    found = {one.queue_offset: one for one in store.scan()}
    path = store.path / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(found[5].physical_offset + 200)
        file.write(b"\xff")
    read = store.read_raw("orders", 0, 0, 10)
    assert bytes(read.data) == stored(store, [*range(5), *range(6, 11)])
    assert read.next_offset == 11
    assert store.read_raw("orders", 0, 5, 1).next_offset == 7


def test_a_log_file_that_is_gone(store: MessageStore) -> None:
    store.engine.log.segments.delete_first()
    read = store.read_raw("orders", 0, 0)
    fetched = store.fetch("orders", 0, 0)
    assert read.status is fetched.status
    assert (read.next_offset, read.count) == (fetched.next_offset, len(fetched.messages))


def test_what_is_refused(store: MessageStore) -> None:
    with pytest.raises(StoreError, match="max_messages -1 is negative"):
        store.read_raw("orders", 0, 0, -1)
    with pytest.raises(TopicNameInvalid):
        store.read_raw("", 0, 0)
    store.close()
    with pytest.raises(StoreClosed):
        store.read_raw("orders", 0, 0)


def test_read_only(store: MessageStore) -> None:
    store.close()
    with MessageStore.open(store.path, SETTINGS, read_only=True) as reader:
        assert bytes(reader.read_raw("orders", 0, 3, 2).data) == stored(reader, [3, 4])


def test_reading_while_others_append(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SETTINGS.replace(kernels=KernelUse.ALWAYS)) as store:
        count = 3000

        def append() -> None:
            for n in range(0, count, 50):
                store.append_many(Message("orders", n.to_bytes(4, "big") * 40) for _ in range(50))

        writer = threading.Thread(target=append)
        writer.start()
        at = 0
        while at < count:
            read = store.read_raw("orders", 0, at, wait=True)
            assert read.next_offset == at + read.count
            at = read.next_offset
        writer.join()
        assert store.read_raw("orders", 0, at).status is FetchStatus.OFFSET_OVERFLOW_ONE
