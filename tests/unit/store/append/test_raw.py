"""A replica: the master's log byte for byte, cut anywhere; roles, flags, crashes."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embermq import Message, MessageStore
from embermq.errors import AppendRefused, RawBytesInvalid, ReadRefused, ReplicaMissing, StoreError
from embermq.format.frame import encode_blank
from embermq.settings import BrokerRole, FlushDisk
from embermq.testing import LossyFiles, ManualClock
from embermq.testing.builder import StoreBuilder
from embermq.testing.unsynced import keep_everything, lose_everything, random_fates
from tests.crash import numbered
from tests.support import golden

SEGMENT = numbered.TINY["segment_bytes"]
SLAVE: dict[str, Any] = numbered.TINY | {"role": BrokerRole.SLAVE}
MASTER_ROOT, SLAVE_ROOT = Path("/master"), Path("/slave")


def fill(store: MessageStore, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        store.append(
            Message(
                f"T{number % 3}", b"%05d" % number * (number % 40), queue_id=number % 2, keys=f"k{number}", tags="t"
            )
        )


def log_bytes(store: MessageStore) -> dict[int, bytes]:
    """The readable bytes of each log file, by where it begins."""
    return {one.start: one.read(0, one.size) for one in store.engine.log.segments.all}


def delivers(store: MessageStore) -> bool:
    delayed = store.engine.services.delayed
    assert delayed is not None
    return delayed.is_running


@pytest.fixture
def master(tmp_path: Path) -> StoreBuilder:
    builder = StoreBuilder(tmp_path / "master", clock=ManualClock(), **numbered.TINY)
    with builder.open() as store:
        fill(store, 150)
        assert len(log_bytes(store)) > 3
    return builder


@pytest.fixture
def log(master: StoreBuilder) -> bytes:
    with master.open(read_only=True) as store:
        return b"".join(log_bytes(store).values())


@pytest.fixture
def slave(tmp_path: Path, master: StoreBuilder) -> StoreBuilder:
    return StoreBuilder(tmp_path / "slave", clock=master.clock, **SLAVE)


def copy(store: MessageStore, log: bytes, cut: Callable[[], int], start: int = 0) -> int:
    at = start
    while at < len(log):
        end = min(len(log), at + cut())
        assert store.append_raw(at, log[at:end]) == end
        at = end
    return at


@pytest.mark.parametrize("size", [1, 7, 8, 100, 4096, SEGMENT, 10**9, None])
@pytest.mark.slow
def test_a_copy_is_byte_for_byte_the_original(
    master: StoreBuilder, slave: StoreBuilder, log: bytes, size: int | None
) -> None:
    random_size = random.Random(1)
    with slave.open() as store:
        copy(store, log, (lambda: random_size.randint(1, 500)) if size is None else (lambda: size))
        assert store.wait_for_dispatch()
        assert store.fetch("T1", 1, 0).messages
    with master.open() as theirs, slave.changed(role=BrokerRole.ASYNC_MASTER).open() as ours:
        assert ours.recovery.clean
        assert log_bytes(ours) == log_bytes(theirs)
    for name in ("commitlog", "consumequeue", "index"):
        content = golden.content(slave.root / name)
        theirs_content = golden.content(master.root / name)
        if name == "index":  # Index files are named after the time they were made.
            assert list(content.values()) == list(theirs_content.values())
        else:
            assert content == theirs_content


def test_an_empty_replica_begins_with_the_masters_last_file(
    master: StoreBuilder, slave: StoreBuilder, log: bytes
) -> None:
    start = (len(log) - 1) // SEGMENT * SEGMENT
    with slave.open() as store:
        with pytest.raises(RawBytesInvalid, match="a multiple of"):
            store.append_raw(start + 8, log[start + 8 :])
        assert store.max_physical == 0
        copy(store, log, lambda: 300, start)
        assert (store.min_physical, store.max_physical) == (start, len(log))
        assert store.wait_for_dispatch()
    with slave.open() as store, master.open() as theirs:
        assert store.max_offset("T1", 1) == theirs.max_offset("T1", 1)
        assert store.get(theirs.find("T2", "k149")[0].message_id) is not None


def test_what_does_not_continue_the_log_is_refused(slave: StoreBuilder, log: bytes) -> None:
    with slave.open() as store:
        store.append_raw(0, log[:1000])
        accepted, end = 1000, store.max_physical
        assert end < accepted, "the beginning of a record waits"
        for place in (0, end, 999, 1001, 2000):
            if place != accepted:
                with pytest.raises(RawBytesInvalid, match=f"goes on at {accepted}"):
                    store.append_raw(place, log[place : place + 100])
        assert store.append_raw(accepted, b"") == accepted
        assert store.max_physical == end
        assert store.drop_unfinished_raw() == end
        assert store.append_raw(end, log[end:3000]) == 3000


@pytest.mark.parametrize("at", [0, 4, 8, 30, 100])
def test_damaged_bytes_are_refused_and_nothing_is_stored(slave: StoreBuilder, log: bytes, at: int) -> None:
    with slave.open() as store:
        store.append_raw(0, log[:5000])
        end = store.drop_unfinished_raw()
        bad = bytearray(log[end : end + 1500])
        bad[at] ^= 0x41
        before = log_bytes(store)
        with pytest.raises(RawBytesInvalid):
            store.append_raw(end, bytes(bad))
        assert log_bytes(store) == before
        assert store.append_raw(end, log[end:]) == len(log)


def test_log_files_of_another_size_are_refused(tmp_path: Path, log: bytes) -> None:
    larger = StoreBuilder(tmp_path / "larger", **(SLAVE | {"segment_bytes": 2 * SEGMENT}))
    with larger.open() as store, pytest.raises(RawBytesInvalid, match="mappedFileSizeCommitLog"):
        store.append_raw(0, log)
    smaller = StoreBuilder(tmp_path / "smaller", **(SLAVE | {"segment_bytes": SEGMENT // 2}))
    with smaller.open() as store, pytest.raises(RawBytesInvalid, match="mappedFileSizeCommitLog"):
        store.append_raw(0, log)


def test_what_follows_a_blank_is_kept_as_it_is(slave: StoreBuilder, log: bytes) -> None:
    """After a cut RocketMQ leaves old bytes behind the first eight of a blank."""
    with slave.open() as store:
        store.append_raw(0, log[:2000])
        end = store.drop_unfinished_raw()
        blank = encode_blank(SEGMENT - end) + b"\x07" * (SEGMENT - end - 8)
        for at in range(0, len(blank), 1000):
            store.append_raw(end + at, blank[at : at + 1000])
        assert store.max_physical == SEGMENT
        assert log_bytes(store)[0] == log[:end] + blank
        assert store.append_raw(SEGMENT, log[SEGMENT:]) == len(log)
        assert store.wait_for_dispatch()


# -- roles ---------------------------------------------------------------------------------------------------


def test_a_slave_becomes_a_master_and_goes_on(master: StoreBuilder, slave: StoreBuilder, log: bytes) -> None:
    with slave.open() as store:
        assert store.role is BrokerRole.SLAVE
        with pytest.raises(AppendRefused, match="SLAVE"):
            store.append(Message("T0", b"no"))
        copy(store, log + b"", lambda: 333)
        store.append_raw(len(log), log[:4])  # Four bytes of a record that never comes.
        store.set_role(BrokerRole.ASYNC_MASTER)
        with pytest.raises(AppendRefused, match="SLAVE"):
            store.append_raw(len(log), b"x")
        fill(store, 50, 150)
        store.set_role(BrokerRole.ASYNC_MASTER)
    with master.open() as store:
        fill(store, 50, 150)
    with master.open() as theirs, slave.changed(role=BrokerRole.ASYNC_MASTER).open() as ours:
        assert log_bytes(ours) == log_bytes(theirs), "the same messages at the same places with the same offsets"


def test_a_master_becomes_a_slave_and_follows(master: StoreBuilder, slave: StoreBuilder, log: bytes) -> None:
    one, other = master.changed(delayed_delivery=True), slave.changed(delayed_delivery=True)
    with one.open() as first, other.open() as second:
        copy(second, log, lambda: 1000)
        first.set_role(BrokerRole.SLAVE)
        assert not delivers(first)
        second.set_role(BrokerRole.ASYNC_MASTER)
        assert delivers(second)
        fill(second, 40, 150)
        for start, data in log_bytes(second).items():
            at = first.max_physical
            if start + len(data) > at:
                first.append_raw(at, data[max(0, at - start) :])
        first.wait_for_dispatch()
        assert log_bytes(first) == log_bytes(second)
        first.set_role(BrokerRole.ASYNC_MASTER)
        second.set_role(BrokerRole.SLAVE)
        assert first.append(Message("T0", b"x")).queue_offset == second.max_offset("T0", 0)


def test_roles_that_cannot_be_taken(slave: StoreBuilder, log: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with slave.open() as store:
        with pytest.raises(ReplicaMissing):
            store.set_role(BrokerRole.SYNC_MASTER)
        store.set_confirm_offset(0)
        store.append_raw(0, log)
        with monkeypatch.context() as hasty:
            hasty.setattr("embermq.store.services.roles.CATCH_UP_SECONDS", 0.05)
            with pytest.raises(StoreError, match="stays a SLAVE"):
                store.set_role(BrokerRole.ASYNC_MASTER)
        assert store.role is BrokerRole.SLAVE
        assert store.append_raw(len(log), b"") == len(log), "and takes bytes on"
        store.set_confirm_offset(-1)
        store.set_role(BrokerRole.ASYNC_MASTER)
    with MessageStore.open(slave.root.with_name("bare"), slave.settings, dispatch="none") as store:
        with pytest.raises(AppendRefused, match="dispatch=live"):
            store.append_raw(0, log)
        with pytest.raises(StoreError, match="dispatch=none"):
            store.set_role(BrokerRole.ASYNC_MASTER)


def test_queues_do_not_pass_the_confirm_offset(tmp_path: Path) -> None:
    with StoreBuilder(tmp_path / "store", **numbered.TINY).open() as store:
        assert store.confirm_offset == -1
        first = store.append(Message("T", b"1"))
        store.set_confirm_offset(first.physical_offset + first.size)
        store.append(Message("T", b"2"))
        assert [one.body for one in store.fetch("T", 0, 0).messages] == [b"1"]
        assert store.max_offset("T", 0) == 1
        store.set_confirm_offset(-1)
        assert [one.body for one in store.fetch("T", 0, 0).messages] == [b"1", b"2"]


def test_readable_and_writable(tmp_path: Path) -> None:
    with StoreBuilder(tmp_path / "store", **numbered.TINY).open() as store:
        store.append(Message("T", b"1", keys="k"))
        assert (store.is_readable, store.is_writable) == (True, True)
        store.set_writable(False)
        with pytest.raises(AppendRefused) as refused:
            store.append(Message("T", b"2"))
        assert refused.value.status == "SERVICE_NOT_AVAILABLE"
        assert store.fetch("T", 0, 0).messages
        store.set_writable(True)
        store.append(Message("T", b"2"))
        store.set_readable(False)
        with pytest.raises(ReadRefused):
            store.fetch("T", 0, 0)
        store.append(Message("T", b"3"))
        store.set_readable(True)
        assert len(store.fetch("T", 0, 0).messages) == 3
    assert (store.is_readable, store.is_writable) == (False, False)


# -- crashes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("flush", [FlushDisk.ASYNC, FlushDisk.SYNC])
@pytest.mark.slow
def test_a_replica_that_crashes_goes_on_where_its_log_ends(log: bytes, seed: int, flush: FlushDisk) -> None:
    """What was flushed is there; what is there is a prefix of the master's log that ends with a whole record."""
    disk, clock = LossyFiles(), ManualClock()
    source = random.Random(seed)
    at = flushed = 0
    while at < len(log):
        builder = StoreBuilder(SLAVE_ROOT, clock=clock, files=disk, **(SLAVE | {"flush": flush}))
        store = builder.open()
        at = store.max_physical
        assert at >= flushed
        assert b"".join(log_bytes(store).values()) == log[:at]
        for _ in range(source.randint(3, 12)):
            end = min(len(log), at + source.randint(1, 2500))
            at = store.append_raw(at, log[at:end])
            if source.random() < 0.3:
                store.flush()
        flushed = store.flushed_offset
        choose = source.choice([lose_everything, keep_everything, random_fates(seed)])
        after = disk.crash(choose)
        store.close()
        disk = after if at < len(log) or source.random() < 0.5 else disk
        at = 0 if at < len(log) else at
    with StoreBuilder(SLAVE_ROOT, clock=clock, files=disk, **SLAVE).open() as store:
        store.append_raw(store.max_physical, log[store.max_physical :])
        assert b"".join(log_bytes(store).values()) == log
        store.wait_for_dispatch()
        assert store.message_count("T1", 1) == 25
