"""EmberMQ: a RocketMQ-compatible message store in Python.

    from embermq import Message, MessageStore, StoreSettings

    with MessageStore.open("orders-store") as store:
        store.append(Message(topic="orders", body=b"...", tags="paid", keys=["o-1"]))
        store.fetch("orders", 0, offset=0).messages
"""

from embermq import errors
from embermq.clock import Clock, SystemClock
from embermq.errors import EmberError
from embermq.model.hosts import Host
from embermq.model.message import BatchItem, Message, MessageBatch, Receipt, StoredMessage
from embermq.model.status import FetchStatus, PutStatus
from embermq.settings import BrokerRole, FlushDisk, StoreSettings
from embermq.store.arrivals import Arrival
from embermq.store.damage import Damage
from embermq.store.fetch import FetchOutcome
from embermq.store.message_store import MessageStore, StatsSnapshot
from embermq.store.plugins import StorePlugin
from embermq.store.recovery import RecoveryReport
from embermq.store.sink import Sink

__version__ = "0.1.0"

__all__ = [
    "Arrival",
    "BatchItem",
    "BrokerRole",
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
    "PutStatus",
    "Receipt",
    "RecoveryReport",
    "Sink",
    "StatsSnapshot",
    "StorePlugin",
    "StoreSettings",
    "StoredMessage",
    "SystemClock",
    "errors",
]
