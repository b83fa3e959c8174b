"""A slave follows a master over loopback: the same bytes, queues and keys, whatever is cut in between."""

import shutil
from pathlib import Path

import pytest

from embermq import BrokerRole, Message, MessageStore
from embermq.errors import StoreLocked
from embermq.replication import move_log_aside
from embermq.settings import FlushDisk
from tests.support.replication import Master, file_bytes, log_bytes, master, settings, slave
from tests.support.waiting import wait_until

FILE = 64 << 10


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_an_empty_slave_gets_the_log_as_it_is(tmp_path: Path, flush: FlushDisk) -> None:
    with master(tmp_path / "m", flush=flush) as upper, slave(tmp_path / "s", upper.address, flush=flush) as lower:
        wait_until(lambda: len(upper.replicas) == 1, "connected")
        upper.store.append_many([Message("T", b"%d" % n + b"x" * 100, tags="t", keys=[f"k{n}"]) for n in range(1500)])
        end = upper.store.max_physical
        lower.wait_for(end)
        assert end > 3 * FILE
        wait_until(lambda: upper.replicas.mark == end, "acknowledged")
        assert log_bytes(lower.store, 0, end) == log_bytes(upper.store, 0, end)
        assert lower.store.max_offset("T", 0) == 1500
        assert lower.store.fetch("T", 0, 700).messages == upper.store.fetch("T", 0, 700).messages
        assert [m.queue_offset for m in lower.store.find("T", "k900")] == [900]
        [view] = upper.replicas.view()
        assert view.acknowledged == view.sent == end
    assert file_bytes(tmp_path / "s", 0, end) == file_bytes(tmp_path / "m", 0, end)


def test_an_empty_slave_begins_with_the_masters_last_file(tmp_path: Path) -> None:
    with master(tmp_path / "m") as upper:
        upper.fill(1000)
        end = upper.store.max_physical
        with slave(tmp_path / "s", upper.address) as lower:
            lower.wait_for(end)
            assert lower.store.min_physical == end - end % FILE > 0
            assert log_bytes(lower.store, end - end % FILE, end) == log_bytes(upper.store, end - end % FILE, end)


def test_a_copied_directory_goes_on_where_it_ends(tmp_path: Path) -> None:
    with master(tmp_path / "m") as upper:
        upper.fill(800)
    shutil.copytree(tmp_path / "m", tmp_path / "s")
    with master(tmp_path / "m") as upper, slave(tmp_path / "s", upper.address) as lower:
        upper.fill(800)
        end = upper.store.max_physical
        lower.wait_for(end)
        assert lower.store.min_physical == 0
        assert log_bytes(lower.store, 0, end) == log_bytes(upper.store, 0, end)
        assert lower.store.max_offset("T", 0) == 1600
        assert lower.follower.now.is_compared


def test_it_comes_back_after_the_master_was_away(tmp_path: Path) -> None:
    upper = Master(tmp_path / "m")
    with slave(tmp_path / "s", upper.address) as lower:
        try:
            for _ in range(3):
                upper.fill(200)
                end = upper.store.max_physical
                lower.wait_for(end)
                upper.close()
                wait_until(lambda: not lower.follower.now.is_connected, "noticed")
                upper = Master(tmp_path / "m", port=upper.port)
            upper.fill(200)
            end = upper.store.max_physical
            lower.wait_for(end)
            assert log_bytes(lower.store, 0, end) == log_bytes(upper.store, 0, end)
            assert lower.store.max_offset("T", 0) == 800
        finally:
            upper.close()


def test_what_it_missed_comes_when_it_is_back(tmp_path: Path) -> None:
    with master(tmp_path / "m") as upper:
        for _ in range(3):
            with slave(tmp_path / "s", upper.address) as lower:
                upper.fill(300)
                lower.wait_for(upper.store.max_physical)
            upper.fill(100)
            wait_until(lambda: len(upper.replicas) == 0, "the slave is seen to be gone")
        end = upper.store.max_physical
        with slave(tmp_path / "s", upper.address) as lower:
            lower.wait_for(end)
            begin = lower.store.min_physical
            assert log_bytes(lower.store, begin, end) == log_bytes(upper.store, begin, end)


# -- another past ------------------------------------------------------------------------------------------------


def test_a_master_with_other_bytes_is_refused_and_nothing_is_overwritten(tmp_path: Path) -> None:
    end = 0
    for name, body in (("m", b"one"), ("s", b"two")):
        with MessageStore.open(tmp_path / name, settings()) as store:
            store.append_many([Message("T", body * 30)] * 50)
            end = store.max_physical
    before = file_bytes(tmp_path / "s", 0, end)
    with master(tmp_path / "m") as upper:
        upper.fill(10)
        with slave(tmp_path / "s", upper.address) as lower:
            problem = lower.wait_for_problem()
            assert "does not continue" in problem
            assert "--resync" in problem
            assert lower.follower.now.differs
            assert lower.store.max_physical == end
    assert file_bytes(tmp_path / "s", 0, end) == before


def test_a_master_that_has_less_is_refused(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "m", settings()) as store:
        store.append_many([Message("T", b"x" * 100)] * 50)
    shutil.copytree(tmp_path / "m", tmp_path / "s")
    with MessageStore.open(tmp_path / "s", settings()) as store:
        store.append(Message("T", b"more"))
        end = store.max_physical
    quick = {"ha_heartbeat_interval_ms": 100}
    with master(tmp_path / "m", **quick) as upper, slave(tmp_path / "s", upper.address) as lower:
        problem = lower.wait_for_problem()
        assert f"ends at {end}" in problem
        assert lower.follower.now.differs
        assert lower.store.max_physical == end


def test_a_resync_moves_the_old_log_aside_and_copies(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", settings()) as store:
        store.append_many([Message("T", b"old" * 30)] * 50)
        end = store.max_physical
        with pytest.raises(StoreLocked):
            move_log_aside(settings(root=tmp_path / "s"))
    before = file_bytes(tmp_path / "s", 0, end)
    target = move_log_aside(settings(root=tmp_path / "s"))
    assert target is not None
    assert target.parent == tmp_path / "s" / "embermq.aside"
    assert file_bytes(target, 0, end) == before
    assert move_log_aside(settings(root=tmp_path / "s")) is None
    with master(tmp_path / "m") as upper:
        upper.fill(100)
        with slave(tmp_path / "s", upper.address) as lower:
            lower.wait_for(upper.store.max_physical)
            assert lower.store.max_offset("T", 0) == 100
    with MessageStore.open(target, settings()) as store:  # What was moved is a store.
        assert store.max_offset("T", 0) == 50


# -- roles -------------------------------------------------------------------------------------------------------


def test_a_slave_becomes_a_master_and_goes_on_with_its_queues(tmp_path: Path) -> None:
    with master(tmp_path / "m") as upper, slave(tmp_path / "s", upper.address) as lower:
        upper.fill(100)
        end = upper.store.max_physical
        lower.wait_for(end)
        lower.follower.stop()
        lower.store.set_role(BrokerRole.ASYNC_MASTER)
        receipt = lower.store.append(Message("T", b"new"))
        assert (receipt.queue_offset, receipt.physical_offset) == (100, end)


def test_an_address_that_answers_nothing_is_tried_again(tmp_path: Path) -> None:
    with slave(tmp_path / "s", "127.0.0.1:1") as lower:
        assert "refused" in lower.wait_for_problem()
        with master(tmp_path / "m") as upper:
            upper.fill(10)
            lower.address = upper.address
            lower.follower.hurry()
            lower.wait_for(upper.store.max_physical)
