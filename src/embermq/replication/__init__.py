"""Replication: the log of a master, byte for byte, in the stores of its slaves. RocketMQ's own wire between them.

    slave -> master    8 bytes: how far its log goes. The first one says where to begin, each later one acknowledges
    master -> slave    offset (8), length (4), so many bytes of the log; length 0 is a sign of life

    wire.py             the two kinds of frames, as bytes
    master_session.py   one slave as its master sees it: where to go on, what it has acknowledged, whether it lives
    slave_session.py    the master as a slave sees it: which bytes are new, whether they continue the log here
    replicas.py         all slaves of a master: the mark up to which one of them has everything
    waker.py            wakes a thread that waits for sockets
    sender.py           a thread a slave: log bytes out, acknowledgements in
    server.py           ReplicationServer: the port that slaves connect to
    follower.py         Follower: a thread that copies a master's log into a store
    epochs.py           which of two stores was made the master last
    demotion.py         an old master made fit to follow the new one: its own tail kept aside
    moving_aside.py     an old log moved aside, for a copy from the start

The sessions have neither sockets nor clocks of their own. Log bytes are sent as soon as a crash of the master cannot
take them back (under SYNC_FLUSH: once they are synced); a slave acknowledges what it has stored, under SYNC_FLUSH what
it has synced. Other packages import from this face.
"""

from embermq.replication.demotion import Demoted, demote
from embermq.replication.epochs import Epoch, load_epoch, promote
from embermq.replication.follower import Following, MasterFollower
from embermq.replication.moving_aside import move_log_aside
from embermq.replication.replicas import Replicas, ReplicaView
from embermq.replication.server import ReplicationServer

__all__ = [
    "Demoted",
    "Epoch",
    "demote",
    "load_epoch",
    "promote",
    "MasterFollower",
    "Following",
    "ReplicaView",
    "Replicas",
    "ReplicationServer",
    "move_log_aside",
]
