"""From a message to bytes in the log.

    admission.py     may it be stored, and as which bytes
    timed.py         messages with a delivery time of their own: when are they due, and where do they wait
    writer.py        every way in: a message, a list, a batch, packed rows, columns
    put_lock.py      who may append now, and what there is against it
    log_end.py       the next place and queue offset; records stored there
    light_queues.py  one message into several queues
    internal.py      messages of the broker's own, stored as they are
    raw.py           bytes of a master's log, for a replica
    runs.py          many ordinary messages as columns for one kernel call
    packed.py        batches that come as columns and bytes, and their receipts
    message_columns.py  lists and Arrow arrays of bulk writers, made into such batches
    queue_tails.py   the next offset of every queue
    flush.py         group commit: when it is durable, and which callers are answered
    deadlines.py     callers that have waited too long
    cpu_pinning.py   waiting threads kept on one processor

Other packages import from this face, not from the modules behind it.
"""

from embermq.model.properties import has_meaning_to_store
from embermq.store.append.admission import Admission, check_topic_name, redirected
from embermq.store.append.internal import InternalAppends, is_closed_to_clients
from embermq.store.append.light_queues import LMQ_PREFIX
from embermq.store.append.packed import PackedBatch, PackedReceipts
from embermq.store.append.timed import TIMER_QUEUES, has_delivery_time

__all__ = [
    "Admission",
    "InternalAppends",
    "LMQ_PREFIX",
    "PackedBatch",
    "PackedReceipts",
    "TIMER_QUEUES",
    "check_topic_name",
    "has_delivery_time",
    "has_meaning_to_store",
    "is_closed_to_clients",
    "redirected",
]
