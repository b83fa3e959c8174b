"""Messages on their way out of the store, and how far a group is with them.

pulls.py             pulls (11, 361)
held_pulls.py        those that wait for the next message
offset_requests.py   offsets of groups and queues (14, 15, 29 to 32)
queries.py           messages by key and by place (12, 33)
"""

from embermq.broker.reading.held_pulls import LOOK_SECONDS, HeldPulls
from embermq.broker.reading.offset_requests import OffsetRequests
from embermq.broker.reading.pulls import Pulls
from embermq.broker.reading.queries import QueryRequests

__all__ = ["HeldPulls", "LOOK_SECONDS", "OffsetRequests", "Pulls", "QueryRequests"]
