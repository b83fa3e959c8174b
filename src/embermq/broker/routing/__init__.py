"""The broker at its name servers.

registration.py    what it says of itself, to all of them, again and again
announcements.py   topics that are new to them
"""

from embermq.broker.routing.announcements import Announcements
from embermq.broker.routing.registration import Registration, topic_document

__all__ = ["Announcements", "Registration", "topic_document"]
