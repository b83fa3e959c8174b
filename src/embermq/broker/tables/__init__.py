"""The tables of a broker, each a file under config/: what stands in them, and the rules of changing it.

topics.py    topics: made on first use, changed, listed; those that name servers have not heard of
groups.py    consumer groups and what each may do
offsets.py   how far each group has consumed each queue
saving.py    tables to the disk, off the loop, soon after they changed
"""

from embermq.broker.tables.groups import GroupTable
from embermq.broker.tables.offsets import ConsumerOffsets
from embermq.broker.tables.saving import Saver
from embermq.broker.tables.topics import READ_WRITE, UNIT_SUBSCRIPTION_FLAG, TopicTable

__all__ = ["ConsumerOffsets", "GroupTable", "READ_WRITE", "Saver", "TopicTable", "UNIT_SUBSCRIPTION_FLAG"]
