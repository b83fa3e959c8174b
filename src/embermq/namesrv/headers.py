"""Headers of the requests to a name server, by RocketMQ's names. Texts have a length, so that names stay names."""

from typing import Annotated

import msgspec

from embermq.namesrv.registration import NAME_CHARACTERS_MAX
from embermq.remoting import I32

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
BrokerId = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class BrokerHeader(msgspec.Struct, frozen=True, rename="camel"):
    """UNREGISTER_BROKER, QUERY_DATA_VERSION."""

    broker_name: Name
    broker_addr: Name
    cluster_name: Name
    broker_id: BrokerId


class RegisterHeader(msgspec.Struct, frozen=True, rename="camel"):
    """REGISTER_BROKER."""

    broker_name: Name
    broker_addr: Name
    cluster_name: Name
    broker_id: BrokerId
    ha_server_addr: Annotated[str, msgspec.Meta(max_length=NAME_CHARACTERS_MAX)] = ""
    compressed: bool = False
    body_crc32: I32 = 0  # 0: not checked


class BrokerNameHeader(msgspec.Struct, frozen=True, rename="camel"):
    """WIPE_WRITE_PERM_OF_BROKER, ADD_WRITE_PERM_OF_BROKER."""

    broker_name: Name


class RouteHeader(msgspec.Struct, frozen=True, rename="camel"):
    """GET_ROUTEINFO_BY_TOPIC. Without a topic there is no route, which is not an error of the header."""

    topic: str = ""
    accept_standard_json_only: bool = False


class DeleteTopicHeader(msgspec.Struct, frozen=True, rename="camel"):
    """DELETE_TOPIC_IN_NAMESRV."""

    topic: Name
    cluster_name: str = ""


class ClusterHeader(msgspec.Struct, frozen=True):
    """GET_TOPICS_BY_CLUSTER."""

    cluster: str


class KvHeader(msgspec.Struct, frozen=True):
    """GET_KV_CONFIG, DELETE_KV_CONFIG."""

    namespace: Name
    key: Name


class PutKvHeader(msgspec.Struct, frozen=True):
    """PUT_KV_CONFIG."""

    namespace: Name
    key: Name
    value: str


class NamespaceHeader(msgspec.Struct, frozen=True):
    """GET_KVLIST_BY_NAMESPACE."""

    namespace: Name
