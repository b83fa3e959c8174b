"""A store in figures: as a snapshot, and under RocketMQ's names as text. Any thread."""

import msgspec

from embermq.store.engine import Engine
from embermq.store.services.scrub_state import ScrubState


class StatsSnapshot(msgspec.Struct, frozen=True):
    """A store in figures."""

    topics: int
    queues: int
    min_physical: int  # bytes
    max_physical: int  # bytes
    flushed_offset: int  # bytes
    dispatch_behind_bytes: int
    put_count: int
    put_bytes: int
    put_failed: int
    segments: int
    index_files: int
    damages: int  # damaged stretches of the log: met by the opening, and found by readers since
    read_only: bool
    scrub: ScrubState | None = None  # None: opened read-only
    running_flags: int = 0  # RunningFlag: what there is against reading and writing


class StoreFigures:
    """Figures of the store of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def snapshot(self) -> StatsSnapshot:
        engine = self._engine
        engine.access.check_open()
        put = engine.writer.counters
        queues = engine.queues.all() if engine.queues is not None else []
        return StatsSnapshot(
            topics=len({queue.topic for queue in queues}),
            queues=len(queues),
            min_physical=engine.log.min_offset,
            max_physical=engine.log.readable_offset,
            flushed_offset=engine.log.flushed_offset,
            dispatch_behind_bytes=engine.dispatcher.behind_bytes,
            put_count=put.count,
            put_bytes=put.bytes,
            put_failed=put.failed,
            segments=len(engine.log.segments),
            index_files=engine.index.count if engine.index is not None else 0,
            damages=len(engine.parts.report.damages) + engine.fetcher.damaged.stretches.found,
            read_only=engine.read_only,
            scrub=None if engine.read_only else engine.services.scrub.state,
            running_flags=engine.running_flags,
        )

    def runtime_info(self, earliest_time: int) -> dict[str, str]:
        """`earliest_time` is the store time of the oldest message."""
        engine = self._engine
        engine.access.check_open()
        info = engine.stats.runtime_info()
        usage = engine.parts.files.usage
        ratios = {path: usage(path).used_ratio for path in engine.log.segments.directories}
        info["commitLogDiskRatio"] = str(min(ratios.values()))
        info |= {f"commitLogDiskRatio_{path}": str(ratio) for path, ratio in ratios.items()}
        info["consumeQueueDiskRatio"] = str(usage(engine.path).used_ratio)
        info["commitLogMinOffset"] = str(engine.log.min_offset)
        info["commitLogMaxOffset"] = str(engine.log.readable_offset)
        info["dispatchBehindBytes"] = str(engine.dispatcher.behind_bytes)
        info["pageCacheLockTimeMills"] = str(engine.writer.held_ms)
        info["earliestMessageTimeStamp"] = str(earliest_time)
        info["remainHowManyDataToFlush"] = str(max(0, engine.log.readable_offset - engine.log.flushed_offset))
        info["emberRunningFlags"] = engine.running_flags.text
        if not engine.read_only:
            info |= engine.services.scrub.runtime_info()
            for one in engine.services.delivering:
                info |= one.runtime_info()
        return info
