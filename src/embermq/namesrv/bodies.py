"""Bodies of the name server's answers, in the form that RocketMQ writes. Pure.

Keys are in alphabetical order, as Java writes them. Only the keys of `brokerAddrs` (broker ids) have two forms: quoted
for those who want standard JSON, else bare integers.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from embermq.namesrv.registration import TopicQueues
from embermq.namesrv.route_table import LiveBroker, Route
from embermq.remoting import without_nulls, write_json


def route_body(route: Route, order_config: str | None, *, is_standard: bool) -> bytes:
    """TopicRouteData."""
    addresses = {live.identity.address: live for ids in route.brokers.values() for live in ids.values()}
    return write_json(
        without_nulls(
            {
                "brokerDatas": [_broker(name, ids, is_standard) for name, ids in route.brokers.items()],
                "filterServerTable": {
                    address: live.filter_servers for address, live in addresses.items() if live.filter_servers
                },
                "orderTopicConf": order_config,
                "queueDatas": [_queues(name, queues) for name, queues in route.queues.items()],
            }
        )
    )


def cluster_body(
    brokers: Mapping[str, Mapping[int, LiveBroker]], clusters: Mapping[str, list[str]], *, is_standard: bool
) -> bytes:
    """ClusterInfo."""
    return write_json(
        {
            "brokerAddrTable": {name: _broker(name, ids, is_standard) for name, ids in brokers.items()},
            "clusterAddrTable": clusters,
        }
    )


def topic_list_body(topics: Iterable[str], broker_address: str | None = None) -> bytes:
    """TopicList."""
    return write_json(without_nulls({"brokerAddr": broker_address, "topicList": list(topics)}))


def kv_body(table: Mapping[str, str]) -> bytes:
    """KVTable."""
    return write_json({"table": table})


def _broker(name: str, ids: Mapping[int, LiveBroker], is_standard: bool) -> dict[str, Any]:
    addresses = {broker_id: ids[broker_id].identity.address for broker_id in sorted(ids)}
    first = ids[min(ids)]  # The master, if there is one: slaves may be configured otherwise by mistake.
    return {
        "brokerAddrs": addresses if is_standard else _bare_keyed(addresses),
        "brokerName": name,
        "cluster": first.identity.cluster,
    }


def _bare_keyed(addresses: Mapping[int, str]) -> msgspec.Raw:
    entries = b",".join(b"%d:%s" % (broker_id, write_json(address)) for broker_id, address in addresses.items())
    return msgspec.Raw(b"{" + entries + b"}")


def _queues(name: str, queues: TopicQueues) -> dict[str, Any]:
    return {
        "brokerName": name,
        "perm": queues.perm,
        "readQueueNums": queues.read_queue_nums,
        "topicSysFlag": queues.topic_sys_flag,
        "writeQueueNums": queues.write_queue_nums,
    }
