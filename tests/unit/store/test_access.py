"""What a store allows: reads and appends switched off and on, and the running flags that say why it refuses."""

from collections.abc import Callable
from pathlib import Path

import pytest

from embermq import Message, MessageStore, RunningFlag, StoreSettings
from embermq.errors import AppendRefused, DiskFull, FlushFailed, ReadRefused, StoreError, WriterFenced
from embermq.files import DiskUsage, RealFiles
from embermq.store.layout.state_page import load_state_page
from embermq.testing import FaultyFiles, LossyFiles
from embermq.testing.builder import StoreBuilder

NONE = RunningFlag(0)


class FillingDisk(FaultyFiles):
    """A disk in memory that is as full as the test says."""

    used_percent = 10

    def usage(self, path: Path) -> DiskUsage:
        return DiskUsage(100, 100 - self.used_percent, 100 - self.used_percent)


@pytest.fixture
def disk() -> FillingDisk:
    return FillingDisk(LossyFiles())


@pytest.fixture
def builder(disk: FillingDisk) -> StoreBuilder:
    return StoreBuilder(Path("/store"), files=disk, delayed_delivery=False)


# -- reads switched off ------------------------------------------------------------------------------------------------


def test_whatever_hands_out_messages_is_refused(builder: StoreBuilder) -> None:
    with builder.open() as store:
        receipt = store.append(Message("T", b"1", keys="k"))
        store.set_readable(False)
        reads: dict[str, Callable[[], object]] = {
            "fetch": lambda: store.fetch("T", 0, 0),
            "read_raw": lambda: store.read_raw("T", 0, 0),
            "find": lambda: store.find("T", "k"),
            "index_offsets": lambda: store.index_offsets("T", "k"),
            "get": lambda: store.get(receipt.message_id),
            "at": lambda: store.at(0),
            "scan": lambda: next(store.scan()),
        }
        for name, read in reads.items():
            with pytest.raises(ReadRefused, match="switched off") as refused:
                read()
            assert refused.value.status == "SERVICE_NOT_AVAILABLE", name
        store.set_readable(True)
        for read in reads.values():
            assert read()


def test_positions_and_the_bytes_for_a_replica_are_answered_all_the_same(builder: StoreBuilder) -> None:
    with builder.open() as store:
        receipt = store.append(Message("T", b"1", keys="k"))
        store.flush()
        store.set_readable(False)
        assert len(store.read_log(0, 1 << 20)) == receipt.size
        assert (store.min_offset("T", 0), store.max_offset("T", 0), store.message_count("T", 0)) == (0, 1, 1)
        assert store.topics() == {"T": [0]}
        assert store.store_time("T", 0, 0) == receipt.store_timestamp
        assert store.stats().put_count == 1
        assert store.append(Message("T", b"2")).ok


def test_a_scan_under_way_ends_when_reads_are_switched_off(builder: StoreBuilder) -> None:
    with builder.open() as store:
        store.append_many([Message("T", b"1"), Message("T", b"2")])
        scan = store.scan()
        assert next(scan).body == b"1"
        store.set_readable(False)
        with pytest.raises(ReadRefused):
            next(scan)


# -- running flags -----------------------------------------------------------------------------------------------------


def test_the_bits_are_those_of_rocketmq() -> None:
    assert [flag.value for flag in RunningFlag] == [1, 2, 4, 8, 16, 32]
    assert (NONE.text, (RunningFlag.FENCED | RunningFlag.DISK_FULL).text) == ("", "DISK_FULL|FENCED")


def shown(store: MessageStore) -> RunningFlag:
    """The flags, which are the same in statistics."""
    flags = store.running_flags
    assert store.stats().running_flags == flags
    assert store.runtime_info()["emberRunningFlags"] == flags.text
    assert f"emberRunningFlags: {flags.text}" in store.running_data_info()
    return flags


def test_switches_are_flags(builder: StoreBuilder) -> None:
    with builder.open() as store:
        assert shown(store) == NONE
        store.set_readable(False)
        assert shown(store) == RunningFlag.NOT_READABLE
        store.set_writable(False)
        assert shown(store) == RunningFlag.NOT_READABLE | RunningFlag.NOT_WRITEABLE
        with pytest.raises(AppendRefused):
            store.append(Message("T", b"x"))
        store.set_readable(True)
        store.set_writable(True)
        assert shown(store) == NONE
    with builder.open(read_only=True) as reader:
        reader.set_readable(False)
        assert shown(reader) == RunningFlag.NOT_READABLE


def test_a_full_disk_is_a_flag_as_long_as_it_is_full(builder: StoreBuilder, disk: FillingDisk) -> None:
    with builder.changed(delete_when_full=False).open() as store:
        for used_percent, flags in ((95, RunningFlag.DISK_FULL), (10, NONE)):
            disk.used_percent = used_percent
            store.engine.services.housekeeping.check_disk()
            assert shown(store) == flags
        disk.used_percent = 95
        store.engine.services.housekeeping.check_disk()
        with pytest.raises(DiskFull):
            store.append(Message("T", b"x"))


def test_a_failed_sync_leaves_the_store_not_writeable(builder: StoreBuilder, disk: FillingDisk) -> None:
    store = builder.open()
    store.append(Message("T", b"x"))
    disk.fail("sync", path_contains="commitlog")
    with pytest.raises(FlushFailed):
        store.flush()
    assert shown(store) == RunningFlag.NOT_WRITEABLE
    store.close()


def test_queue_files_that_cannot_be_written_are_a_flag_until_they_can(builder: StoreBuilder, disk: FillingDisk) -> None:
    with builder.open() as store:
        housekeeping = store.engine.services.housekeeping
        disk.fail("create", path_contains="consumequeue", times=None)
        store.append(Message("T", b"x"))
        assert store.wait_for_dispatch()
        housekeeping._try(housekeeping.write_out)
        assert shown(store) == RunningFlag.WRITE_LOGICS_QUEUE_ERROR
        assert store.append(Message("T", b"y")).ok
        assert len(store.fetch("T", 0, 0).messages) == 2
        disk.heal()
        housekeeping._try(housekeeping.write_out)
        assert shown(store) == NONE


def test_an_index_that_cannot_be_written_is_a_flag_and_stops_no_append(
    builder: StoreBuilder, disk: FillingDisk
) -> None:
    store = builder.open()
    disk.fail("create", path_contains="index", times=None)
    store.append(Message("T", b"x", keys="k"))
    assert store.wait_for_dispatch()
    assert store.append(Message("T", b"y", keys="k")).ok
    assert shown(store) == RunningFlag.WRITE_INDEX_FILE_ERROR
    disk.heal()
    store.close()
    with builder.open() as again:
        assert shown(again) == NONE
        assert len(again.fetch("T", 0, 0).messages) == len(again.find("T", "k")) == 2


def test_a_fenced_writer_says_so(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path / "store", StoreSettings(segment_bytes=1 << 20, delayed_delivery=False))
    page = load_state_page(RealFiles(), store.path, writable=True)
    assert page is not None
    page.writer = 4711
    page.close()
    with pytest.raises(WriterFenced):
        store.append(Message("T", b"x"))
    assert shown(store) == RunningFlag.FENCED
    with pytest.raises(StoreError, match="was not closed cleanly"):
        store.close()
