"""What runs beside appends and reads: threads and jobs of an open store.

    wiring.py            the services of a store, made and put in the order of the flow
    dispatch.py          follows the log and feeds the sinks
    arrivals.py          listeners for new messages: one call for each step, or for each message
    delayed.py           messages parked by delay level, appended again when due
    timers.py, timer_plan.py, done_bits.py   messages parked until a time of their own
    redelivery.py, look_thread.py   what both have in common
    housekeeping.py      syncs what is derived, then says so; disk usage
    retention.py, retention_rules.py, disk_watch.py   old log files go
    topic_deletion.py    a topic goes, at one place in the log for everyone
    roles.py             master or slave, and the change between them
    upkeep.py            what a broker asks now and then: unused topics, expired queues, put totals
    scrub.py, scrub_step.py, scrub_state.py   everything read again and compared, slowly

Other packages import from this face, not from the modules behind it.
"""

from embermq.store.services.arrivals import Arrival, ArrivalStep
from embermq.store.services.done_bits import load_done_bits
from embermq.store.services.retention import Cleaned, OldSegment, RetentionGuard, is_all_before
from embermq.store.services.retention_rules import is_expired, last_change_ms
from embermq.store.services.scrub_state import ScrubState, load_scrub_state
from embermq.store.services.topic_deletion import KEPT_TOPICS
from embermq.store.services.upkeep import TopicPuts

__all__ = [
    "Arrival",
    "ArrivalStep",
    "Cleaned",
    "KEPT_TOPICS",
    "OldSegment",
    "RetentionGuard",
    "ScrubState",
    "TopicPuts",
    "is_all_before",
    "is_expired",
    "last_change_ms",
    "load_done_bits",
    "load_scrub_state",
]
