"""Requests to brokers and name servers, one typed async function each. Answers become values, refusals typed errors.

    caller.py     Caller: signing, sending, and errors that name the broker
    refusals.py   response codes that mean no
    names.py      routes and clusters from a name server (105, 106)
    sends.py      sends, batches, replies (310, 320, 325); send_frames.py the frame of a send, fast
    pulls.py      pulls (11)
    offsets.py    offsets of queues and groups (14, 15, 29 to 32)
    members.py    heartbeats, members, queue locks (34, 35, 38, 41, 42, 46)
    messages.py   single messages and the end of transactions (12, 33, 36, 37)

Every function takes a Caller and the address of the peer first. The loop's thread only. A request that a broker refuses
raises RequestRefused or one of its kinds, one that gets no answer BrokerUnreachable.
"""

from embermq.client.calls.caller import BrokerAddress, Caller, body_of, fields_of
from embermq.client.calls.members import (
    SQL92,
    TAG,
    ConsumerData,
    Heartbeat,
    SubscriptionData,
    check_subscription,
    consumer_ids,
    heartbeat,
    lock_queues,
    unlock_queues,
    unregister,
)
from embermq.client.calls.messages import (
    Decision,
    EndTransaction,
    SendBack,
    end_transaction,
    query,
    send_back,
    view,
)
from embermq.client.calls.names import cluster_route, topic_route
from embermq.client.calls.offsets import (
    consumer_offset,
    earliest_store_time,
    max_offset,
    min_offset,
    search_offset,
    update_consumer_offset,
)
from embermq.client.calls.pulls import Pull, Pulled, PullStatus, pull
from embermq.client.calls.refusals import refused
from embermq.client.calls.sends import (
    SendStatus,
    Stored,
    WireMessage,
    send,
    send_oneway,
    send_reply,
    stored_of,
)

__all__ = [
    "BrokerAddress",
    "Caller",
    "ConsumerData",
    "Decision",
    "EndTransaction",
    "Heartbeat",
    "Pull",
    "PullStatus",
    "Pulled",
    "SQL92",
    "SendBack",
    "SendStatus",
    "Stored",
    "SubscriptionData",
    "TAG",
    "WireMessage",
    "body_of",
    "check_subscription",
    "cluster_route",
    "consumer_ids",
    "consumer_offset",
    "earliest_store_time",
    "end_transaction",
    "fields_of",
    "heartbeat",
    "lock_queues",
    "max_offset",
    "min_offset",
    "pull",
    "query",
    "refused",
    "search_offset",
    "send",
    "send_back",
    "send_oneway",
    "send_reply",
    "stored_of",
    "topic_route",
    "unlock_queues",
    "unregister",
    "update_consumer_offset",
    "view",
]
