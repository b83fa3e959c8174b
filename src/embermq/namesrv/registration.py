"""What a broker says of itself when it registers: values, and nothing else.

A registration has an identity (cluster, name, id, address) and what comes with it: the address of its replication port,
its topics with their version, its filter servers. Pure.
"""

from collections.abc import Mapping, Sequence

import msgspec

from embermq.model.data_version import DataVersion

MASTER_ID = 0
NAME_CHARACTERS_MAX = 512  # of clusters, brokers, topics and addresses; RocketMQ's longest is a retry topic of 262
FILTER_SERVERS_MAX = 64  # of one broker

PERM_WRITE, PERM_READ = 2, 4


class TopicQueues(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The queues of a topic on one broker, as its registration has them; the defaults are RocketMQ's."""

    perm: int = PERM_READ | PERM_WRITE
    read_queue_nums: int = 16
    topic_sys_flag: int = 0
    write_queue_nums: int = 16


class RegisterBody(msgspec.Struct, frozen=True):
    """The body of a registration. Filter servers are None where the body does not speak of them."""

    version: DataVersion = DataVersion()
    topics: Mapping[str, TopicQueues] = {}
    filter_servers: Sequence[str] | None = None
    skipped: tuple[str, ...] = ()  # topics whose name cannot be one


class BrokerIdentity(msgspec.Struct, frozen=True):
    """One broker process."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID
