"""The clients of a broker: who is connected, in which groups, and what they want.

clients.py            connections and groups, from heartbeats
subscriptions.py      what a group wants of a topic
consumer_filters.py   SQL92 filters of groups, and the bits they give each record
queue_locks.py        which member reads a queue in order
requests.py           heartbeats, member lists, queue locks (34, 35, 38, 41, 42, 46)
"""

from embermq.broker.members.clients import Clients, ConsumerGroup, Member
from embermq.broker.members.consumer_filters import ConsumerFilters
from embermq.broker.members.queue_locks import LOCK_OWNERS, QueueLocks
from embermq.broker.members.requests import ClientRequests, notify_members
from embermq.broker.members.subscriptions import Subscription, SubscriptionError, parse_subscription

__all__ = [
    "ClientRequests",
    "Clients",
    "ConsumerFilters",
    "ConsumerGroup",
    "LOCK_OWNERS",
    "Member",
    "QueueLocks",
    "Subscription",
    "SubscriptionError",
    "notify_members",
    "parse_subscription",
]
