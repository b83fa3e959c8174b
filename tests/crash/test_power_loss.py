"""Power loss at every step: SYNC_FLUSH keeps all it acknowledged, ASYNC_FLUSH keeps a prefix and never a wrong message.

One run of a script serves all its moments: before every operation that changes the disk, and after every
acknowledgement, several power cuts and a kill are played through on copies (power.py).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embermq.settings import FlushDisk
from embermq.store.layout.state_page import STATE_FILE
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from embermq.testing.lossy_files import LossyFiles
from embermq.testing.unsynced import MemoryFile, keep_everything
from tests.crash import numbered
from tests.crash.power import PowerCuts, check_left

pytestmark = pytest.mark.usefixtures("short_tail")

ROOT = Path("/store")


def builder(flush: FlushDisk, **settings: Any) -> StoreBuilder:
    return StoreBuilder(ROOT, clock=ManualClock(), flush=flush, **(numbered.TINY | settings))


def run(cuts: PowerCuts, first: int, second: int) -> str:
    """Write, close, open again, write more, close: with rolls of every kind of file on the way."""
    with cuts.open() as store:
        end = numbered.append_until(store, 0, first, cuts.acknowledge)
    with cuts.open() as store:
        numbered.append_until(store, end, second, cuts.acknowledge)
    cuts.cut()
    return cuts.report()


@pytest.mark.slow(12)
def test_sync_flush_keeps_everything_acknowledged() -> None:
    run(PowerCuts(builder(FlushDisk.SYNC), survives="power", stride=9, cuts_per_moment=2), 40, 60)


@pytest.mark.slow(12)
@pytest.mark.parametrize("pool", [False, True])
def test_async_flush_keeps_a_prefix(pool: bool) -> None:
    settings = builder(
        FlushDisk.ASYNC, flush_interval_ms=10, flush_pages_min=0, transient_pool=pool, transient_pool_buffers=4
    )
    run(PowerCuts(settings, survives="nothing" if pool else "kill", stride=9, cuts_per_moment=2), 40, 60)


@pytest.mark.slow(10)
@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.long)])
def test_power_fails_again_while_recovering(stride: int) -> None:
    """What a power cut left is recovered, and during that the power fails again."""
    plain = builder(FlushDisk.SYNC)
    before = PowerCuts(plain, survives="power", stride=1 << 16)
    store = before.open()
    end = numbered.append_until(store, 0, 50)
    left = before.disk.crash()
    store.close()
    cuts = PowerCuts(plain, survives="power", stride=stride, cuts_per_moment=3)
    cuts.start_with(left)
    cuts.acknowledged = end
    with cuts.open():
        pass
    cuts.report()


def test_a_cut_sees_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are written out, and the state page says so, while a cut is made: it has neither, or both. A page that is
    newer than the queues it vouches for would leave them without entries, which no kill does."""
    settings = builder(FlushDisk.ASYNC, queue_file_bytes=20 * 100, index_slots_max=1000, index_entries_max=2000)
    disk = LossyFiles()
    with settings.on(disk).open() as store:
        housekeeping = store.engine.services.housekeeping
        end = numbered.append_until(store, 0, 64)
        store.wait_for_dispatch()
        housekeeping.make_durable()
        while end < 80:  # One by one, so that the tail to be read again is short.
            end = numbered.append_until(store, end, end + 1)
            store.wait_for_dispatch()

        after_crash = MemoryFile.after_crash

        def write_out_before_the_page(self: MemoryFile, path: Path, *more: Any) -> bytes:
            if path.name == STATE_FILE:  # Behind the queues, in the order in which files are copied.
                housekeeping.write_out()
            return after_crash(self, path, *more)

        with monkeypatch.context() as patch:
            patch.setattr(MemoryFile, "after_crash", write_out_before_the_page)
            left = disk.crash(keep_everything)
        check_left(settings.on(left), end)


@pytest.mark.long
@pytest.mark.parametrize("way", ["sync", "async", "pool"])
def test_power_loss_at_every_single_step(way: str, figures: Callable[[str, str], None]) -> None:
    """And after every acknowledgement; at each moment a kill, and power cuts of every kind."""
    flush = FlushDisk.SYNC if way == "sync" else FlushDisk.ASYNC
    settings = builder(
        flush, flush_interval_ms=10, flush_pages_min=0, transient_pool=way == "pool", transient_pool_buffers=4
    )
    survives = {"sync": "power", "async": "kill", "pool": "nothing"}[way]
    figures(f"power cuts, {way}", run(PowerCuts(settings, survives=survives, seeds=range(10)), 120, 200))
