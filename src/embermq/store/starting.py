"""From a path to a running engine: arguments checked, parts recovered, services started; all undone if one fails."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from embermq.clock import Clock, SystemClock
from embermq.errors import ReplicaMissing, StoreError, StorePathInvalid
from embermq.files import Files, RealFiles
from embermq.settings import StoreSettings
from embermq.store.engine import Engine
from embermq.store.queues.extension import BitMapFor
from embermq.store.recovery.opening import open_parts
from embermq.store.services.retention import RetentionGuard
from embermq.store.sink import Sink

Dispatch = Literal["live", "none"]
SINK_PARTS = ("name", "position", "take", "flush", "truncate_to", "close")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a store is opened: the arguments of `MessageStore.open`, and whether delayed messages are delivered."""

    read_only: bool = False
    clock: Clock | None = None
    files: Files | None = None
    dispatch: Dispatch = "live"
    sinks: Sequence[Sink] = ()
    bit_map_for: BitMapFor | None = None
    retention_guard: RetentionGuard | None = None
    delivers: bool = True
    replicated: bool = False


def check_arguments(path: Any, settings: Any, opening: Opening) -> None:
    """StoreError for what cannot be meant, before anything is touched."""
    if not isinstance(path, str | os.PathLike) or "\0" in str(path):
        raise StorePathInvalid(repr(path), "a path is expected")
    if not isinstance(settings, StoreSettings):
        raise StoreError(f"settings {settings!r}: StoreSettings are expected; see StoreSettings.from_properties")
    if opening.dispatch not in ("live", "none"):
        raise StoreError(f"dispatch {opening.dispatch!r}: 'live' or 'none' is expected")
    if not isinstance(opening.sinks, Sequence):
        raise StoreError(f"sinks {opening.sinks!r}: a list of sinks is expected")
    for sink in opening.sinks:
        lacking = [name for name in SINK_PARTS if not hasattr(sink, name)]
        if lacking:
            raise StoreError(f"{sink!r} is no sink: it has no {', '.join(lacking)}")
    if settings.promises_replica and not opening.read_only and not opening.replicated:
        raise ReplicaMissing(Path(path))


def start_engine(path: str | Path, settings: StoreSettings, opening: Opening) -> Engine:
    """The engine of the store in this directory, running."""
    parts = open_parts(
        Path(path).expanduser().absolute(),
        settings,
        opening.files or RealFiles(),
        opening.clock or SystemClock(),
        read_only=opening.read_only,
        derive=opening.dispatch == "live",
        bit_map_for=opening.bit_map_for,
    )
    try:
        engine = Engine(
            parts,
            opening.sinks,
            opening.retention_guard,
            delivers=opening.delivers,
            replicated=opening.replicated,
        )
    except BaseException:
        parts.close()
        raise
    engine.start()
    return engine
