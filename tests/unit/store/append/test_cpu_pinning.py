"""Threads that wait for syncs, kept on one processor: those and no others, and only until the store is closed."""

import os
import threading
from pathlib import Path

import pytest

from embermq import Message
from embermq.settings import FlushDisk
from embermq.store.append.cpu_pinning import CpuPinning
from embermq.testing.builder import StoreBuilder

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two processors"
)


def places_of(names: set[str]) -> dict[str, set[int]]:
    return {
        thread.name: os.sched_getaffinity(thread.native_id)
        for thread in threading.enumerate()
        if thread.name in names and thread.native_id is not None
    }


class Appender:
    """A thread that opens a store, appends and closes it, and sees where it may run."""

    def __init__(self, builder: StoreBuilder) -> None:
        self._builder = builder
        self.seen: list[set[int]] = []
        self.own: dict[str, set[int]] = {}
        self.thread = threading.Thread(target=self._run, name="appender")

    def _run(self) -> None:
        with self._builder.open() as store:
            assert store.append(Message("orders", b"x")).ok
            assert store.append_async(Message("orders", b"y")).result(30).ok
            self.own = places_of({"embermq-flush", "embermq-dispatch"})
            self.seen.append(os.sched_getaffinity(0))
        self.seen.append(os.sched_getaffinity(0))

    def run(self) -> None:
        self.thread.start()
        self.thread.join()


@pytest.mark.parametrize("flush", list(FlushDisk))
@pytest.mark.parametrize("share", [False, True])
def test_who_is_kept_and_for_how_long(tmp_path: Path, flush: FlushDisk, share: bool) -> None:
    everywhere = os.sched_getaffinity(0)
    appender = Appender(StoreBuilder(tmp_path / "store", flush=flush, waiters_share_core=share))
    appender.run()
    inside, after = appender.seen
    assert after == everywhere
    assert os.sched_getaffinity(0) == everywhere
    if share and flush is FlushDisk.SYNC:
        assert len(inside) == 1
        assert inside <= everywhere
        assert appender.own == {"embermq-flush": inside, "embermq-dispatch": inside}
    else:
        assert inside == everywhere
        assert appender.own == {"embermq-flush": everywhere, "embermq-dispatch": everywhere}


def test_a_thread_made_by_one_that_is_kept_can_leave() -> None:
    core, seen = CpuPinning(), list[set[int]]()

    def child() -> None:
        seen.append(os.sched_getaffinity(0))
        core.leave()
        seen.append(os.sched_getaffinity(0))

    def parent() -> None:
        core.join()
        core.join()
        made = threading.Thread(target=child)
        made.start()
        made.join()

    thread = threading.Thread(target=parent)
    thread.start()
    thread.join()
    kept, free = seen
    assert len(kept) == 1
    assert free == os.sched_getaffinity(0)
    core.close()  # The thread is gone, and nobody minds.
    core.close()


def test_where_there_is_one_processor_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda thread: {0})
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cores: pytest.fail("moved"))
    core = CpuPinning()
    core.join()
    core.leave()
    core.close()
