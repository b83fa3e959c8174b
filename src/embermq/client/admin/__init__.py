"""Administration: what mqadmin and dashboards ask of a cluster, of EmberMQ's and of Apache RocketMQ's alike.

    from embermq.client import Admin

    with Admin("127.0.0.1:9876") as admin:
        admin.topics.put(TopicConfig("orders", 8, 8), admin.brokers.places())
        admin.groups.progress("billing").lag

    blocking_admin.py   Admin: for programs without a loop; async_admin.py the same for asyncio
                        (embermq.client.aio)
    topics.py           topics: listed, made, changed, deleted, how full they are
    groups.py           consumer groups: listed, made, deleted, members, progress, what a member says of itself
    offsets.py          offsets of groups: reset, set, copied
    messages.py         messages by key, id and place; a queue page by page; queues followed
    traces.py           message traces; trace_records.py their form
    dead_letters.py     dead letters: found, sent again
    rates.py            how fast topics are written and read
    kv_configs.py       texts that name servers keep, by namespace and key
    brokers.py          brokers and clusters: figures, settings, cleaning
    asking.py           questions to name servers and brokers; bodies.py answers in Java's JSON

Answers are values whose names in JSON are RocketMQ's. A request that a broker refuses is a RequestRefused, a name that
it does not know a NameUnknown or RouteMissing with the nearest one. Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from embermq.lazy import lazy_names

if TYPE_CHECKING:
    from embermq.client.admin.blocking_admin import Admin
    from embermq.client.admin.brokers import ListedBroker
    from embermq.client.admin.dead_letters import Chosen, DeadLetter, Resent, letter_of
    from embermq.client.admin.groups import Connections, GroupConfig, ListedGroup, Progress, QueueProgress, RunningInfo
    from embermq.client.admin.messages import FoundMessage, Page, QueueEntry, WantedMessages
    from embermq.client.admin.offsets import EARLIEST, LATEST, Reset, ResetQueue
    from embermq.client.admin.rates import TopicRate
    from embermq.client.admin.topics import ListedTopic, TopicConfig, TopicQueue
    from embermq.client.admin.trace_records import TraceStep, trace_steps

_HOMES = {
    name: f"embermq.client.admin.{module}"
    for module, names in {
        "blocking_admin": ("Admin",),
        "brokers": ("ListedBroker",),
        "dead_letters": ("Chosen", "DeadLetter", "Resent", "letter_of"),
        "groups": ("Connections", "GroupConfig", "ListedGroup", "Progress", "QueueProgress", "RunningInfo"),
        "messages": ("FoundMessage", "Page", "QueueEntry", "WantedMessages"),
        "offsets": ("EARLIEST", "LATEST", "Reset", "ResetQueue"),
        "rates": ("TopicRate",),
        "topics": ("ListedTopic", "TopicConfig", "TopicQueue"),
        "trace_records": ("TraceStep", "trace_steps"),
    }.items()
    for name in names
}

__all__ = [
    "Admin",
    "Chosen",
    "Connections",
    "DeadLetter",
    "EARLIEST",
    "FoundMessage",
    "GroupConfig",
    "LATEST",
    "ListedBroker",
    "ListedGroup",
    "ListedTopic",
    "Page",
    "Progress",
    "QueueEntry",
    "QueueProgress",
    "Resent",
    "Reset",
    "ResetQueue",
    "RunningInfo",
    "TopicConfig",
    "TopicQueue",
    "TopicRate",
    "TraceStep",
    "WantedMessages",
    "letter_of",
    "trace_steps",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
