"""append_packed: the same bytes as for single messages, refusals row by row, and one completion per batch."""

import errno
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq import FlushDisk, Host, Message, MessageStore, PutStatus, StoreSettings
from embermq.columns import (
    R_BODY_AT,
    R_BODY_LEN,
    R_BORN_TIME,
    R_FLAG,
    R_HOST_AT,
    R_HOST_LEN,
    R_PREPARED,
    R_PROPS_AT,
    R_PROPS_LEN,
    R_QUEUE_ID,
    R_RECONSUME,
    R_SYS_FLAG,
    R_TOPIC_AT,
    R_TOPIC_LEN,
    new_run_rows,
)
from embermq.errors import (
    AppendRefused,
    BodyTooLarge,
    DiskFull,
    FlushFailed,
    MessageRejected,
    SegmentUnavailable,
    StoreClosed,
    StoreError,
    TopicNameInvalid,
)
from embermq.model.hosts import pack_host
from embermq.settings import KernelUse
from embermq.store import PackedBatch, PackedReceipts
from embermq.testing import FaultyFiles, LossyFiles, ManualClock

LONG = 30.0  # Seconds nothing here should ever take.
CLIENT = Host("10.1.2.3", 50_000)
CLIENT_V6 = Host("2001:db8::7", 50_001)
SMALL: dict[str, Any] = {
    "segment_bytes": 64 << 10,
    "message_bytes_max": 2000,
    "disk_full_percent": 100,
    "delayed_delivery": False,
}


def network_message(number: int, **fields: Any) -> Message:
    """As a broker has it: a born host, a time, a ready-made property string."""
    values: dict[str, Any] = {
        "topic": "orders",
        "body": b"order %d" % number,
        "queue_id": number % 3,
        "flag": number,
        "born_timestamp": 1_700_000_000_000 + number,
        "born_host": CLIENT,
        "encoded_properties": b"UNIQ_KEY\x01%012X\x02WAIT\x01true\x02TAGS\x01paid" % number,
    }
    return Message(**(values | fields))


def packed(messages: Sequence[Message]) -> PackedBatch:
    """The same messages as columns and bytes; properties as `encoded_properties` has them."""
    bodies, topics, properties = bytearray(b"-"), bytearray(b"--"), bytearray(b"---")
    rows = new_run_rows(len(messages))
    for row, message in zip(rows, messages, strict=True):
        host = b"" if message.born_host is None else pack_host(message.born_host)
        parts = (
            (R_BODY_AT, R_BODY_LEN, bodies, message.body),
            (R_TOPIC_AT, R_TOPIC_LEN, topics, message.topic.encode()),
            (R_PROPS_AT, R_PROPS_LEN, properties, message.property_bytes()),
            (R_HOST_AT, R_HOST_LEN, properties, host),
        )
        for at, length, source, part in parts:
            row[at], row[length] = len(source), len(part)
            source += part
        row[R_QUEUE_ID], row[R_FLAG], row[R_SYS_FLAG] = message.queue_id, message.flag, message.sys_flag
        row[R_RECONSUME], row[R_PREPARED] = message.reconsume_times, message.prepared_transaction_offset
        if message.born_timestamp is not None:
            row[R_BORN_TIME] = message.born_timestamp
    return PackedBatch(rows, bodies=bytes(bodies), topics=bytes(topics), properties=bytes(properties))


class Stores:
    """One store that is given single messages, and two that are given batches: without kernels, and with."""

    def __init__(self, path: Path, **changes: Any) -> None:
        self.clock = ManualClock()
        uses = {"single": KernelUse.NEVER, "plain": KernelUse.NEVER, "fast": KernelUse.ALWAYS}
        self.single, self.plain, self.fast = (
            MessageStore.open(
                path / name,
                StoreSettings(**{**SMALL, **changes, "kernels": use}),
                clock=self.clock,
                dispatch="none",
            )
            for name, use in uses.items()
        )

    def close(self) -> None:
        for store in (self.single, self.plain, self.fast):
            store.close()

    def append(self, some: list[Message]) -> PackedReceipts:
        """What the store with kernels answers, having answered the same as the others."""
        before = self.single.max_physical
        singles: list[Any] = []
        for message in some:
            try:
                singles.append(self.single.append(message))
            except StoreError as problem:
                singles.append((type(problem), str(problem)))
        answers = [store.append_packed(packed(some)) for store in (self.plain, self.fast)]
        for receipts in answers:
            assert outcomes(receipts) == singles
        assert bytes_of(self.fast, before) == bytes_of(self.plain, before) == bytes_of(self.single, before)
        assert answers[0].end == answers[1].end
        return answers[1]


def outcomes(receipts: PackedReceipts) -> list[Any]:
    """Of each row its receipt, or the kind and the text of its error."""
    errors = {row: (type(problem), str(problem)) for row, problem in receipts.refused.items()}
    return [errors[row] if row in errors else receipts.receipt(row) for row in range(len(receipts))]


def bytes_of(store: MessageStore, start: int) -> bytes:
    files = sorted((store.path / "commitlog").iterdir())
    found = b"".join(file.read_bytes() for file in files if file.stat().st_size)
    return found[start : store.max_physical]


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    three = Stores(tmp_path)
    yield three
    three.close()


ORDERS = [network_message(number) for number in range(40)]


# -- the same bytes --------------------------------------------------------------------------------------------------


FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "topic": st.sampled_from(["orders", "t" * 127, "t" * 128, "no/slash", "", "späti", "%RETRY%g"]),
    "body": st.sampled_from([b"", b"x", bytes(2000), bytes(2001)]),
    "queue_id": st.sampled_from([0, 7, -1, 2**31 - 1, 2**31]),
    "flag": st.sampled_from([0, -1, 2**31]),
    "sys_flag": st.sampled_from([0, 1, 4, 8, 12, 0x30, 0x301, 2**31]),
    "born_timestamp": st.sampled_from([None, 0, -1]),
    "born_host": st.sampled_from([None, CLIENT, CLIENT_V6]),
    "reconsume_times": st.sampled_from([0, 3, -(2**31), 2**31]),
    "prepared_transaction_offset": st.sampled_from([0, 77, -(2**63)]),
    "encoded_properties": st.sampled_from(
        [
            b"",
            b"TAGS\x01paid",
            b"DELAY\x013",
            b"DELAY\x01soon",
            b"DELAY\x010",
            b"WAIT\x01false",
            b"WAIT\x01true",
            b"INNER_MULTI_DISPATCH\x01a,b",
            b"INNER_MULTI_DISPATCH\x01../a",
            b"KEYS\x01" + bytes(33_000),
        ]
    ),
}


@st.composite
def unusual(draw: st.DrawFn) -> Message:
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), unique=True, max_size=3))
    return network_message(draw(st.integers(0, 9)), **{name: draw(FIELDS[name]) for name in names})


def test_any_batch(tmp_path: Path) -> None:
    stores = Stores(tmp_path, multi_dispatch=True)

    @settings(max_examples=60, deadline=None)
    @given(st.lists(unusual(), min_size=1, max_size=12), st.integers(0, 2))
    def check(some: list[Message], step_ms: int) -> None:
        stores.clock.advance(ms=step_ms)
        stores.append([*ORDERS[:5], *some])

    check()
    stores.close()


def test_a_batch_from_the_network_is_one_run(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row becomes a Message: born hosts, flags, WAIT=true and all."""
    stores.append(ORDERS)
    batch = packed([*ORDERS, network_message(1, born_host=CLIENT_V6, reconsume_times=16, sys_flag=0x301)])
    monkeypatch.setattr(PackedBatch, "message", None)
    receipts = stores.fast.append_packed(batch)
    assert (receipts.stored, len(receipts)) == (41, 41)


@pytest.mark.parametrize("broker_ip", ["192.168.0.9", "2001:db8::9"])
def test_a_batch_goes_on_in_the_next_file(tmp_path: Path, broker_ip: str) -> None:
    stores = Stores(tmp_path, broker_ip=broker_ip)
    hosts = [CLIENT, CLIENT_V6, None]
    some = [network_message(n, body=bytes(n * 5 % 1500), born_host=hosts[n % 3]) for n in range(300)]
    receipts = stores.append(some)
    assert len(sorted((stores.fast.path / "commitlog").iterdir())) > 4
    assert receipts.end == stores.fast.max_physical
    assert stores.fast.stats().put_count == 300
    stored = list(stores.fast.scan())
    assert [message.born_host for message in stored[:2]] == [CLIENT, CLIENT_V6]
    assert [message.body for message in stored] == [message.body for message in some]
    stores.close()


def test_append_many_takes_messages_with_a_born_host_as_a_run(stores: Stores) -> None:
    many = stores.fast.append_many(ORDERS)
    assert type(many).__name__ == "Receipts"
    assert list(many) == list(stores.plain.append_many(ORDERS))
    assert bytes_of(stores.fast, 0) == bytes_of(stores.plain, 0)


@pytest.mark.parametrize(
    "born_host", [("10.0.0.1", 1), ["10.0.0.1", 1], Host("no-address", 1), Host("1.2.3.4", 1 << 31)]
)
def test_append_many_refuses_what_is_no_host_as_before(stores: Stores, born_host: Any) -> None:
    bad = network_message(1, born_host=born_host)
    for store in (stores.plain, stores.fast):
        with pytest.raises(MessageRejected, match="is no address with a port"):
            store.append_many([*ORDERS, bad])
        assert store.max_physical == 0


def test_rows_may_share_their_parts(stores: Stores) -> None:
    batch = packed([network_message(1)])
    rows = np.repeat(batch.rows, 200, axis=0)
    parts = batch.parts
    receipts = stores.fast.append_packed(
        PackedBatch(rows, bodies=parts.bodies, topics=parts.topics, properties=parts.properties)
    )
    assert receipts.queue_offsets.tolist() == list(range(200))
    assert {message.body for message in stores.fast.scan()} == {b"order 1"}


# -- receipts --------------------------------------------------------------------------------------------------------


def test_receipts_are_arrays(stores: Stores) -> None:
    receipts = stores.append([*ORDERS[:4], network_message(4, topic="no/slash"), network_message(5)])
    messages = list(stores.fast.scan())
    assert receipts.stored == 5
    assert receipts.physical_offsets[[0, 1, 2, 3, 5]].tolist() == [message.physical_offset for message in messages]
    assert receipts.sizes.tolist() == [*(message.size for message in messages[:4]), 0, messages[4].size]
    assert receipts.queue_offsets.tolist() == [0, 0, 0, 1, 0, 1]
    now = stores.clock.now_ms()
    assert receipts.store_timestamps.tolist() == [now, now, now, now, 0, now]
    assert receipts.status(0) is PutStatus.PUT_OK
    assert receipts.status(4) is PutStatus.MESSAGE_ILLEGAL
    with pytest.raises(TopicNameInvalid):
        receipts.receipt(4)


def test_each_refused_row_has_its_reason_and_disturbs_no_other(stores: Stores) -> None:
    bad = {
        1: (network_message(1, body=bytes(2001)), BodyTooLarge, "MESSAGE_ILLEGAL"),
        3: (network_message(3, topic="no/slash"), TopicNameInvalid, "MESSAGE_ILLEGAL"),
        7: (network_message(7, encoded_properties="ü".encode() * 16_384), MessageRejected, "PROPERTIES_SIZE_EXCEEDED"),
        8: (network_message(8, queue_id=-1), MessageRejected, "MESSAGE_ILLEGAL"),
        39: (network_message(39, encoded_properties=b"DELAY\x01x"), MessageRejected, "MESSAGE_ILLEGAL"),
    }
    receipts = stores.append([bad[n][0] if n in bad else order for n, order in enumerate(ORDERS)])
    assert sorted(receipts.refused) == sorted(bad)
    for row, (_, kind, status) in bad.items():
        assert isinstance(receipts.refused[row], kind)
        assert receipts.status(row) == status
    put = stores.fast.stats()
    assert (put.put_count, put.put_failed) == (35, 5)


@pytest.mark.parametrize("kernels", [KernelUse.NEVER, KernelUse.ALWAYS])
@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        (R_BODY_AT, -1, "row 2: its body, 7 bytes from -1 on"),
        (R_BODY_AT, 1 << 62, "is not in the"),
        (R_BODY_LEN, 1 << 62, "its body"),
        (R_BODY_LEN, -1, "its body"),
        (R_TOPIC_AT, 1 << 40, "its topic"),
        (R_TOPIC_LEN, 1 << 40, "its topic"),
        (R_PROPS_AT, -(1 << 63), "its property string"),
        (R_PROPS_LEN, (1 << 63) - 1, "its property string"),
        (R_HOST_AT, 1 << 40, "its born host"),
        (R_HOST_LEN, 9, "a packed born host has 8 or 20 bytes, not 9"),
        (R_HOST_LEN, -8, "a packed born host has 8 or 20 bytes, not -8"),
    ],
)
def test_parts_outside_of_their_bytes(tmp_path: Path, kernels: KernelUse, column: int, value: int, reason: str) -> None:
    batch = packed(ORDERS[:6])
    batch.rows[2, column] = value
    settings = StoreSettings(**SMALL, kernels=kernels)
    with MessageStore.open(tmp_path / "store", settings, dispatch="none") as store:
        receipts = store.append_packed(batch)
        assert list(receipts.refused) == [2]
        assert reason in str(receipts.refused[2])
        assert [message.flag for message in store.scan()] == [0, 1, 3, 4, 5]


def test_rows_of_another_shape_are_refused() -> None:
    shapes: list[Any] = [np.zeros((3, 4), np.int64), np.zeros((3, 15), np.int32), np.zeros((15, 3), np.int64).T]
    for rows in shapes:
        with pytest.raises(StoreError, match="rows of 15 64-bit numbers"):
            PackedBatch(rows, bodies=b"", topics=b"")
    fixed = new_run_rows(1)
    fixed.flags.writeable = False
    with pytest.raises(StoreError, match="cannot be written to"):
        PackedBatch(fixed, bodies=b"", topics=b"")


def test_an_empty_batch_and_one_of_which_all_is_refused(stores: Stores) -> None:
    for some in ([], [network_message(1, topic="")] * 5):
        receipts = stores.append(some)
        assert (receipts.stored, receipts.end) == (0, 0)
        assert receipts.wait() is PutStatus.PUT_OK


def test_delayed_messages_are_parked_in_their_place(stores: Stores) -> None:
    some = [*ORDERS[:6], network_message(6, encoded_properties=b"DELAY\x013"), *ORDERS[6:12]]
    stores.append(some)
    assert [message.topic for message in stores.fast.scan()].index("SCHEDULE_TOPIC_XXXX") == 6


# -- when the store cannot -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", [KernelUse.NEVER, KernelUse.ALWAYS])
def test_when_the_next_log_file_cannot_be_made_the_rest_is_refused(tmp_path: Path, kernels: KernelUse) -> None:
    files = FaultyFiles(LossyFiles())
    settings = StoreSettings(**SMALL, kernels=kernels)
    some = [network_message(n, body=bytes(1000)) for n in range(150)]
    with MessageStore.open(Path("/s"), settings, files=files, dispatch="none") as store:
        store.append(network_message(0))
        files.fail("create", path_contains="commitlog", times=None, error=errno.ENOSPC)
        receipts = store.append_packed(packed(some))
        assert 0 < receipts.stored < len(some)
        assert list(receipts.refused) == list(range(receipts.stored, len(some)))
        assert isinstance(receipts.refused[len(some) - 1], SegmentUnavailable)
        assert receipts.status(len(some) - 1) is PutStatus.CREATE_MAPEDFILE_FAILED
        assert store.stats().put_failed == len(receipts.refused)
        with pytest.raises(SegmentUnavailable):
            store.append_packed(packed(some))
        files.heal()
        rest = store.append_packed(packed(some[receipts.stored :]))
        assert not rest.refused
        assert [message.flag for message in store.scan()] == [0, *range(150)]
        assert rest.queue_offsets[-3:].tolist() == [50, 49, 49]


def test_a_refused_batch_is_an_error_and_stores_nothing(stores: Stores) -> None:
    store = stores.fast
    store.append_packed(packed(ORDERS))
    end = store.max_physical
    store.engine.writer.refuse_while_full(DiskFull("the disk is full"))
    with pytest.raises(DiskFull):
        store.append_packed(packed(ORDERS))
    store.engine.writer.refuse_while_full(None)
    assert store.max_physical == end
    store.close()
    with pytest.raises(StoreClosed):
        store.append_packed(packed(ORDERS))


# -- completion ------------------------------------------------------------------------------------------------------


class Gate(FaultyFiles):
    """Syncs of log files wait for a gate."""

    def __init__(self) -> None:
        super().__init__(LossyFiles())
        self.gate = threading.Event()
        self.gate.set()

    def count(self, kind: str, path: Path) -> Any:
        if kind == "sync" and "commitlog" in path.parts:
            self.gate.wait(LONG)
        return super().count(kind, path)


class Reported:
    """A callback that remembers."""

    def __init__(self) -> None:
        self.outcomes: list[PutStatus | AppendRefused] = []
        self.done = threading.Event()

    def __call__(self, outcome: PutStatus | AppendRefused) -> None:
        self.outcomes.append(outcome)
        self.done.set()


def open_sync(files: FaultyFiles, timeout_ms: int = 30_000) -> MessageStore:
    settings = StoreSettings(**SMALL, kernels=KernelUse.ALWAYS, flush=FlushDisk.SYNC, sync_flush_timeout_ms=timeout_ms)
    return MessageStore.open(Path("/s"), settings, files=files, dispatch="none")


def test_a_batch_is_done_when_the_flushed_offset_reaches_its_end() -> None:
    files, reported = Gate(), Reported()
    with open_sync(files) as store:
        store.append(network_message(0))
        files.gate.clear()
        receipts = store.append_packed(packed(ORDERS))  # Does not wait.
        receipts.when_done(reported)
        assert store.flushed_offset < receipts.end
        assert not reported.outcomes
        files.gate.set()
        assert receipts.wait() is PutStatus.PUT_OK
        assert store.flushed_offset >= receipts.end
        assert reported.done.wait(LONG)
        assert reported.outcomes == [PutStatus.PUT_OK]


def test_a_slow_disk_is_a_timeout() -> None:
    files, reported = Gate(), Reported()
    with open_sync(files, timeout_ms=50) as store:
        store.append(network_message(0))
        files.gate.clear()
        receipts = store.append_packed(packed(ORDERS))
        receipts.when_done(reported)
        assert receipts.wait() is PutStatus.FLUSH_DISK_TIMEOUT
        assert reported.done.wait(LONG)
        assert reported.outcomes == [PutStatus.FLUSH_DISK_TIMEOUT]
        files.gate.set()


def test_a_failed_sync_is_not_acknowledged() -> None:
    files, reported = Gate(), Reported()
    store = open_sync(files)
    store.append(network_message(0))
    files.gate.clear()
    receipts = store.append_packed(packed(ORDERS))
    receipts.when_done(reported)
    files.fail("sync", path_contains="commitlog", times=None)
    files.gate.set()
    with pytest.raises(FlushFailed):
        receipts.wait()
    assert reported.done.wait(LONG)
    assert isinstance(reported.outcomes[0], FlushFailed)
    with pytest.raises(FlushFailed):
        store.append_packed(packed(ORDERS))
    store.close()


def test_nothing_is_waited_for_when_no_sender_does() -> None:
    files, reported = Gate(), Reported()
    with open_sync(files) as store:
        store.append(network_message(0))
        files.gate.clear()
        receipts = store.append_packed(packed([network_message(1, encoded_properties=b"WAIT\x01false")] * 8))
        assert receipts.wait() is PutStatus.PUT_OK
        receipts.when_done(reported)
        assert reported.outcomes == [PutStatus.PUT_OK]
        files.gate.set()


def test_async_flush_has_nothing_to_wait_for(stores: Stores) -> None:
    reported = Reported()
    receipts = stores.fast.append_packed(packed(ORDERS))
    receipts.when_done(reported)
    assert reported.outcomes == [PutStatus.PUT_OK]
