"""The parts of a store that was opened: what an opening gives, and how the files derived from a log are made.

They agree with each other, and nothing runs yet. `StoreParts.close` gives back what an opening took.
"""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from embermq.clock import Clock
from embermq.files import Files, Lock
from embermq.settings import StoreSettings
from embermq.store.append.cpu_pinning import CpuPinning
from embermq.store.index.index_files import IndexFiles
from embermq.store.layout import directory
from embermq.store.layout.fence import Fence
from embermq.store.layout.state_page import StatePage
from embermq.store.log.commit_log import CommitLog
from embermq.store.log.tail_mark import TailMark
from embermq.store.log.walk import Walker
from embermq.store.queues.consume_queues import ConsumeQueues
from embermq.store.queues.extension import BitMapFor, ExtensionSettings
from embermq.store.queues.multi_dispatch import MultiDispatch
from embermq.store.recovery.replay import RecoveryReport

log = logging.getLogger(__name__)


class Held(Protocol):
    """Something that one store at a time may have."""

    def release(self) -> None: ...


@dataclass(slots=True)
class StoreParts:
    """A store that has been recovered and is not running yet."""

    root: Path
    settings: StoreSettings
    files: Files
    clock: Clock
    lock: Lock | None
    fence: Fence | None  # With the lock, and only then.
    log: CommitLog
    walker: Walker
    queues: ConsumeQueues | None
    index: IndexFiles | None
    page: StatePage | None  # None in a store opened read-only.
    report: RecoveryReport
    end: int
    last_store_timestamp: int
    tail_mark: TailMark
    next_offsets: list[tuple[str, int, int]]
    pinning: CpuPinning | None  # With waiters_share_core, under SYNC_FLUSH.

    @property
    def read_only(self) -> bool:
        return self.lock is None

    def close(self) -> None:
        """Close the files and give the lock back, whatever happened before."""
        with ExitStack() as last:
            last.callback(release, self.lock)
            last.callback(release, self.fence)
            last.callback(self.log.close)
            last.callback(self.walker.close)
            for sink in (self.index, self.queues):
                last.callback(close_sink, sink)


@dataclass(frozen=True, slots=True)
class DerivedFiles:
    """How the files derived from a log are made, by these settings, below `root`."""

    root: Path
    settings: StoreSettings
    files: Files
    clock: Clock
    read_only: bool
    check_writer: Callable[[], None] | None = None

    def queues(self, log_min: Callable[[], int], bit_map_for: BitMapFor | None = None) -> ConsumeQueues:
        settings, extension = self.settings, None
        if settings.queue_extension:
            extension = ExtensionSettings(
                self.root / directory.CONSUME_QUEUE_EXT, settings.queue_extension_file_bytes, bit_map_for
            )
        multi = MultiDispatch(light_queues=settings.light_queues) if settings.multi_dispatch else None
        return ConsumeQueues(
            self.root / directory.CONSUME_QUEUE,
            self.files,
            settings.queue_file_bytes,
            self.clock,
            extension=extension,
            read_only=self.read_only,
            log_min=log_min,
            multi_dispatch=multi,
            check_writer=self.check_writer,
        )

    def index(self) -> IndexFiles:
        settings = self.settings
        return IndexFiles(
            self.root / directory.INDEX,
            self.files,
            settings.index_slots_max,
            settings.index_entries_max,
            self.clock,
            read_only=self.read_only,
            query_max=settings.query_messages_max,
            check_writer=self.check_writer,
        )


def close_sink(sink: ConsumeQueues | IndexFiles | None) -> None:
    try:
        if sink is not None:
            sink.close()
    except OSError as problem:  # Without a clean close the next open derives it again.
        log.error("sink not closed name=%s error=%s", sink.name if sink is not None else "", problem)


def release(held: Held | None) -> None:
    if held is not None:
        held.release()
