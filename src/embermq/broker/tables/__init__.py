"""The tables of a broker, each a file under config/: what stands in them, and the rules of changing it.

topics.py    topics: made on first use, changed, listed; those that name servers have not heard of
groups.py    consumer groups and what each may do
offsets.py   how far each group has consumed each queue
saving.py    tables to the disk, off the loop, soon after they changed
"""

from embermq.broker.tables.groups import Groups
from embermq.broker.tables.offsets import ConsumerOffsets
from embermq.broker.tables.saving import Saver
from embermq.broker.tables.topics import READ_WRITE, UNIT_SUBSCRIPTION_FLAG, Topics

__all__ = ["ConsumerOffsets", "Groups", "READ_WRITE", "Saver", "Topics", "UNIT_SUBSCRIPTION_FLAG"]
