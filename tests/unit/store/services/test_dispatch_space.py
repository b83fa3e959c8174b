"""A sink that finds the disk full is offered its records again; one that fails otherwise is given up."""

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.columns.rows import RecordColumns
from embermq.errors import StoreError
from embermq.testing.builder import StoreBuilder
from embermq.testing.faulty_files import FaultyFiles
from embermq.testing.lossy_files import LossyFiles


class Counting:
    """A sink that has no room a few times, and remembers what it took."""

    name = "counting"

    def __init__(self, failures: int, error: int = errno.ENOSPC) -> None:
        self.position = 0
        self.taken: list[int] = []
        self._failures, self._error = failures, error

    def take(self, batch: RecordColumns, end: int) -> None:
        if self._failures:
            self._failures -= 1
            raise OSError(self._error, "no")
        self.taken += [int(row[0]) for row in batch.rows if int(row[0]) >= self.position]
        self.position = end

    def flush(self) -> None: ...

    def truncate_to(self, physical_offset: int) -> None: ...

    def close(self) -> None: ...


def test_records_are_offered_again_until_there_is_room(tmp_path: Path) -> None:
    plan = StoreBuilder(tmp_path / "store")
    before, sink = Counting(0), Counting(2)
    arrived: list[int] = []
    with MessageStore.open(plan.root, plan.settings, sinks=[before, sink]) as store:
        store.on_arrival(lambda arrival: arrived.append(arrival.next_offset))
        places = [store.append(Message("T", b"%d" % n)).physical_offset for n in range(5)]
        assert store.wait_for_dispatch()
        assert sink.taken == before.taken == places
        assert sorted(set(arrived)) == [1, 2, 3, 4, 5]
        assert not store.engine.dispatcher.failed_sinks


def test_another_error_is_for_good(tmp_path: Path) -> None:
    plan = StoreBuilder(tmp_path / "store")
    sink = Counting(1, errno.EIO)
    with MessageStore.open(plan.root, plan.settings, sinks=[sink]) as store:
        store.append(Message("T", b"x"))
        assert store.wait_for_dispatch()
        assert sink.taken == []
        assert list(store.engine.dispatcher.failed_sinks) == ["counting"]


@pytest.mark.parametrize("family", ["consumequeue", "index"])
@pytest.mark.slow
def test_queues_and_index_wait_for_room(family: str) -> None:
    files = FaultyFiles(LossyFiles())
    plan = StoreBuilder(Path("/store"), files=files)
    with plan.open() as store:
        for kind in ("create", "pwrite", "reserve"):
            files.fail(kind, path_contains=f"/{family}/", times=3, error=errno.ENOSPC)
        for n in range(20):
            store.append(Message("T", b"%d" % n, keys=[f"k{n}"]))
        assert store.wait_for_dispatch()
        for _ in range(10):
            with suppress(OSError):
                store.engine.services.housekeeping.write_out()
        assert [one.body for one in store.fetch("T", 0, 0).messages] == [b"%d" % n for n in range(20)]
        assert all(len(store.find("T", f"k{n}")) == 1 for n in range(20))
        assert not store.engine.dispatcher.failed_sinks
    with plan.open() as again:
        assert again.recovery.clean


def test_a_store_closed_while_there_is_no_room_is_not_closed_cleanly() -> None:
    files = FaultyFiles(LossyFiles())
    plan = StoreBuilder(Path("/store"), files=files)
    store = plan.open()
    store.append(Message("T", b"x", keys=["k"]))
    store.wait_for_dispatch()
    files.fail("create", path_contains="/consumequeue/", times=None, error=errno.ENOSPC)
    with pytest.raises(StoreError, match="No space left"):
        store.close()
    files.heal()
    with plan.open() as again:
        assert not again.recovery.clean
        assert [one.body for one in again.fetch("T", 0, 0).messages] == [b"x"]
