"""The broker: RocketMQ's clients talk to a store through it. One asyncio loop, no thread hop for a message.

    broker.py            Broker: the parts, started and stopped in order; opening.py the store before it
    send.py              sends (10, 310, 320); send_headers.py their headers
    reply.py             replies of consumers to producers that wait for one (324, 325)
    send_back.py         messages given back by consumers (36): retries and dead letters
    pull.py              pulls (11, 361); held_pulls.py those that wait for the next message
    offset_requests.py   offsets of groups and queues (14, 15, 29 to 32)
    client_requests.py   heartbeats, members, queue locks (34, 35, 38, 41, 42, 46)
    query_requests.py    messages by key and by place (12, 33)
    admin/               requests of administrators, one family a file
    statistics.py        what was sent and delivered, by minute, hour and day
    later.py             requests whose answer waits for a disk or a client
    topics.py groups.py offsets.py    the tables behind them
    consumer_filters.py  SQL92 filters of consumer groups
    clients.py           who is connected; subscriptions.py what they want; queue_locks.py who reads in order
    acknowledgements.py  answers that wait for the disk or for a slave
    replicas/            master and slave: the log to slaves, or from the master
    registration.py      the broker at its name servers; announcements.py topics that are new to them
    saving.py            tables to the disk, off the loop
    hooks.py             plug-ins around sends and deliveries
    store_codes.py       what a store answers, as response codes

A handler is a function from a typed request to a reply; it never touches a socket (embermq.remoting). Everything runs
on the loop's thread unless its file says otherwise. Other packages import from this face.
"""

from embermq.broker.broker import Broker
from embermq.broker.consumer_filters import ConsumerFilters
from embermq.broker.hooks import PullContext, Refused, SendContext
from embermq.broker.opening import OpenedStore, open_store

__all__ = ["Broker", "ConsumerFilters", "OpenedStore", "PullContext", "Refused", "SendContext", "open_store"]
