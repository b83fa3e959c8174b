"""The broker: RocketMQ's clients talk to a store through it. One asyncio loop, no thread hop for a message.

    broker.py        Broker: the parts, started and stopped in order; opening.py the store before it
    request_rows.py  every request it answers; config_tables.py and shared.py what they work with
    sending/         sends one by one and in runs, replies, messages given back (10, 36, 310, 320, 324, 325)
    reading/         pulls, offsets, messages by key and place (11, 12, 14, 15, 29 to 33, 361)
    members/         who is connected, what they want, who reads in order (34, 35, 38, 41, 42, 46)
    transactions/    half messages, their decision, the question back to the producer (37, 323)
    admin/           requests of administrators, one family a file
    replicas/        master and slave: the log to slaves, or from the master
    routing/         the broker at its name servers
    tables/          topics, groups, offsets; tables to the disk, off the loop
    answers/         answers that wait for the disk, a slave or a client; what a store answers, as response codes
    statistics.py    what was sent and delivered, by minute, hour and day
    hooks.py         plug-ins around sends and deliveries

A handler is a function from a typed request to a reply; it never touches a socket (embermq.remoting). Everything runs
on the loop's thread unless its file says otherwise. Other packages import from this face.
"""

from embermq.broker.broker import Broker
from embermq.broker.hooks import PullContext, Refused, SendContext
from embermq.broker.members import ConsumerFilters
from embermq.broker.opening import OpenedStore, open_store

__all__ = ["Broker", "ConsumerFilters", "OpenedStore", "PullContext", "Refused", "SendContext", "open_store"]
