"""The client for asyncio: the names of `embermq.client` whose methods are awaited.

from embermq.client.aio import Message, Producer

async with Producer(name_server="127.0.0.1:9876", group="orders") as producer:
    await producer.send(Message("orders", b"..."))
"""

from typing import TYPE_CHECKING

from embermq.lazy import lazy_names

if TYPE_CHECKING:
    from embermq.client.admin.async_admin import Admin
    from embermq.client.consume.pull import PullConsumer
    from embermq.client.consume.push import PushConsumer
    from embermq.client.produce.producer import Producer, TransactionProducer
    from embermq.model.message import Message

_HOMES = {
    "Admin": "embermq.client.admin.async_admin",
    "Message": "embermq.model.message",
    "Producer": "embermq.client.produce.producer",
    "PullConsumer": "embermq.client.consume.pull",
    "PushConsumer": "embermq.client.consume.push",
    "TransactionProducer": "embermq.client.produce.producer",
}

__all__ = [
    "Admin",
    "Message",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "TransactionProducer",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
