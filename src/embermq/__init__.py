"""EmberMQ: a RocketMQ-compatible message store in Python.

    from embermq import Message, MessageStore, StoreSettings

    with MessageStore.open("orders-store") as store:
        store.append(Message(topic="orders", body=b"...", tags="paid", keys=["o-1"]))
        store.fetch("orders", 0, offset=0).messages

Names are imported when they are first used: reading settings should not load numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from embermq import errors

if TYPE_CHECKING:
    from embermq.clock import Clock, SystemClock
    from embermq.errors import EmberError
    from embermq.model.hosts import Host
    from embermq.model.message import BatchItem, Message, MessageBatch, Receipt, StoredMessage
    from embermq.model.status import FetchStatus, PutStatus
    from embermq.settings import BrokerRole, FlushDisk, StoreSettings
    from embermq.store import MessageStore, RunningFlag, Sink, StatsSnapshot, StorePlugin
    from embermq.store.log import Damage
    from embermq.store.queues import FetchOutcome, RawRead
    from embermq.store.recovery import RecoveryReport
    from embermq.store.services import Arrival, Cleaned, OldSegment, RetentionGuard

__version__ = "0.1.0"

_HOMES = {
    "Arrival": "embermq.store.services.arrivals",
    "BatchItem": "embermq.model.message",
    "BrokerRole": "embermq.settings",
    "Cleaned": "embermq.store.services.retention",
    "Clock": "embermq.clock",
    "Damage": "embermq.store.log.damage",
    "EmberError": "embermq.errors",
    "FetchOutcome": "embermq.store.queues.fetch",
    "FetchStatus": "embermq.model.status",
    "FlushDisk": "embermq.settings",
    "Host": "embermq.model.hosts",
    "Message": "embermq.model.message",
    "MessageBatch": "embermq.model.message",
    "MessageStore": "embermq.store.message_store",
    "OldSegment": "embermq.store.services.retention",
    "PutStatus": "embermq.model.status",
    "RawRead": "embermq.store.queues.raw_read",
    "Receipt": "embermq.model.message",
    "RecoveryReport": "embermq.store.recovery.replay",
    "RetentionGuard": "embermq.store.services.retention",
    "RunningFlag": "embermq.store.access",
    "Sink": "embermq.store.sink",
    "StatsSnapshot": "embermq.store.calls.figures",
    "StorePlugin": "embermq.store.plugins",
    "StoreSettings": "embermq.settings",
    "StoredMessage": "embermq.model.message",
    "SystemClock": "embermq.clock",
}

__all__ = [
    "Arrival",
    "BatchItem",
    "BrokerRole",
    "Cleaned",
    "Clock",
    "Damage",
    "EmberError",
    "FetchOutcome",
    "FetchStatus",
    "FlushDisk",
    "Host",
    "Message",
    "MessageBatch",
    "MessageStore",
    "OldSegment",
    "PutStatus",
    "RawRead",
    "Receipt",
    "RecoveryReport",
    "RetentionGuard",
    "RunningFlag",
    "Sink",
    "StatsSnapshot",
    "StorePlugin",
    "StoreSettings",
    "StoredMessage",
    "SystemClock",
    "errors",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
