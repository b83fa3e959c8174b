"""A broker in a replicated group: what it does beside serving its clients.

    replication.py   Replication: the replication port of a master, or the follower of a slave
    fencing.py       another master of the same name, promoted later
    tables.py        the tables of a slave, taken from its master

The protocol is in embermq.replication; here it meets the broker's tables, name servers and role. The loop's thread.
"""

from embermq.broker.replicas.replication import Replication

__all__ = ["Replication"]
