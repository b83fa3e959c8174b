"""The client: producers, consumers and administration for EmberMQ and Apache RocketMQ, pure Python.

    from embermq.client import Message, Producer

    with Producer(name_server="127.0.0.1:9876", group="orders") as producer:
        producer.send(Message("orders", b"...", tags="paid", keys=["o-1"]))

The names of this face block their thread; `embermq.client.aio` has the same for asyncio.

    admin/            topics, groups, offsets, messages, traces, dead letters, brokers: what an administrator asks
    calls/            one typed async function a request; signing, errors
    instance.py       connections, routes and heartbeats of one client; settings.py its settings
    routes.py         routes of topics, kept and refreshed; topic_route.py their values; name_servers.py whom to ask
    received.py       stored records as messages; message_queue.py a queue of a topic
    credentials.py    access keys and signatures; namespaces.py names on the wire
    produce/          producers
    consume/          consumers
    tracing.py        the message trace
    runtime.py        the background loop of the synchronous faces

Names are imported when they are first used. Nothing here loads numpy or compiled kernels.
"""

from typing import TYPE_CHECKING

from embermq.lazy import lazy_names

if TYPE_CHECKING:
    from embermq.client.admin import Admin
    from embermq.client.calls import Decision, PullStatus, SendStatus
    from embermq.client.consume.blocking import PullConsumer, PushConsumer
    from embermq.client.consume.handle.handlers import Context
    from embermq.client.consume.handle.hooks import ConsumeContext, ConsumeHook
    from embermq.client.consume.queues.allocation import by_machine_room, configured, near_machine_room
    from embermq.client.consume.queues.starts import ConsumeFrom
    from embermq.client.credentials import Credentials
    from embermq.client.message_queue import MessageQueue
    from embermq.client.produce.blocking import Producer, TransactionProducer
    from embermq.client.produce.hooks import SendContext, SendHook
    from embermq.client.produce.results import SendResult, TransactionResult
    from embermq.client.received import ReceivedMessage
    from embermq.model.message import Message

_HOMES = {
    "Admin": "embermq.client.admin",
    "ConsumeContext": "embermq.client.consume.handle.hooks",
    "ConsumeFrom": "embermq.client.consume.queues.starts",
    "ConsumeHook": "embermq.client.consume.handle.hooks",
    "Context": "embermq.client.consume.handle.handlers",
    "Credentials": "embermq.client.credentials",
    "Decision": "embermq.client.calls",
    "Message": "embermq.model.message",
    "MessageQueue": "embermq.client.message_queue",
    "Producer": "embermq.client.produce.blocking",
    "PullConsumer": "embermq.client.consume.blocking",
    "PullStatus": "embermq.client.calls",
    "PushConsumer": "embermq.client.consume.blocking",
    "ReceivedMessage": "embermq.client.received",
    "SendContext": "embermq.client.produce.hooks",
    "SendHook": "embermq.client.produce.hooks",
    "SendResult": "embermq.client.produce.results",
    "SendStatus": "embermq.client.calls",
    "TransactionProducer": "embermq.client.produce.blocking",
    "TransactionResult": "embermq.client.produce.results",
    "by_machine_room": "embermq.client.consume.queues.allocation",
    "configured": "embermq.client.consume.queues.allocation",
    "near_machine_room": "embermq.client.consume.queues.allocation",
}

__all__ = [
    "Admin",
    "ConsumeContext",
    "ConsumeFrom",
    "ConsumeHook",
    "Context",
    "Credentials",
    "Decision",
    "Message",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PullStatus",
    "PushConsumer",
    "ReceivedMessage",
    "SendContext",
    "SendHook",
    "SendResult",
    "SendStatus",
    "TransactionProducer",
    "TransactionResult",
    "by_machine_room",
    "configured",
    "near_machine_room",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
