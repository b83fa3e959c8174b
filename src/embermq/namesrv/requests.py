"""Every request that a name server answers, as rows: code, header, handler, and what differs from RocketMQ.

Handlers of routes run on the loop, one after another; those that write a file run on a thread. Codes without a row are
answered with REQUEST_CODE_NOT_SUPPORTED; RocketMQ 4.9 leaves them without an answer.
"""

import logging
from collections.abc import Callable

from embermq.clock import Clock
from embermq.errors import LimitReached, SettingsError
from embermq.namesrv.bodies import cluster_body, kv_body, route_body, topic_list_body
from embermq.namesrv.counters import NamesrvCounters
from embermq.namesrv.headers import (
    BrokerHeader,
    BrokerNameHeader,
    ClusterHeader,
    DeleteTopicHeader,
    KvHeader,
    NamespaceHeader,
    PutKvHeader,
    RegisterHeader,
    RouteHeader,
)
from embermq.namesrv.kv_config import ORDER_TOPICS, KvConfig
from embermq.namesrv.live_settings import ChangeRefused, LiveSettings
from embermq.namesrv.register_body import body_crc, decode_data_version, decode_register_body
from embermq.namesrv.registration import BrokerIdentity, TopicQueues
from embermq.namesrv.route_table import UNIT_FLAG, UNIT_SUB_FLAG, RouteTable
from embermq.remoting import (
    MAX_FRAME_BYTES,
    Call,
    NoHeader,
    Reply,
    RequestCode,
    RequestTable,
    ResponseCode,
    Row,
    write_json,
)

log = logging.getLogger(__name__)

BODY_WITH_FILTER_SERVERS_VERSION = 37  # 3.0.11
STANDARD_JSON_VERSION = 401  # 4.9.4


class NamesrvRequests:
    """The handlers. Those without a note about threads run on the loop."""

    def __init__(
        self, routes: RouteTable, kv: KvConfig, settings: LiveSettings, counters: NamesrvCounters, clock: Clock
    ) -> None:
        self._routes, self._kv, self._settings, self._counters, self._clock = routes, kv, settings, counters, clock

    def table(self) -> RequestTable:
        code = RequestCode
        return RequestTable(
            [
                Row(code.PUT_KV_CONFIG, PutKvHeader, self.put_kv, blocking=True, note="number and size bounded"),
                Row(code.GET_KV_CONFIG, KvHeader, self.get_kv),
                Row(code.DELETE_KV_CONFIG, KvHeader, self.delete_kv, blocking=True),
                Row(
                    code.REGISTER_BROKER,
                    RegisterHeader,
                    self.register,
                    note="brokers and topics bounded",
                    body_bytes_max=MAX_FRAME_BYTES,
                ),
                Row(
                    code.UNREGISTER_BROKER,
                    BrokerHeader,
                    self.unregister,
                    note="an address that meanwhile has another name or id stays",
                ),
                Row(code.GET_ROUTEINFO_BY_TOPIC, RouteHeader, self.route),
                Row(
                    code.GET_BROKER_CLUSTER_INFO,
                    NoHeader,
                    self.clusters,
                    note="quoted broker ids for clients of 4.9.4 and later",
                ),
                Row(code.WIPE_WRITE_PERM_OF_BROKER, BrokerNameHeader, self.wipe_write),
                Row(code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, NoHeader, self.topics),
                Row(code.DELETE_TOPIC_IN_NAMESRV, DeleteTopicHeader, self.delete_topic),
                Row(code.GET_KVLIST_BY_NAMESPACE, NamespaceHeader, self.kv_namespace),
                Row(code.GET_TOPICS_BY_CLUSTER, ClusterHeader, self.topics_of_cluster),
                Row(code.GET_SYSTEM_TOPIC_LIST_FROM_NS, NoHeader, self.system_topics),
                Row(code.GET_UNIT_TOPIC_LIST, NoHeader, self.unit_topics),
                Row(code.GET_HAS_UNIT_SUB_TOPIC_LIST, NoHeader, self.unit_sub_topics),
                Row(code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, NoHeader, self.unit_sub_ununit_topics),
                Row(
                    code.UPDATE_NAMESRV_CONFIG,
                    NoHeader,
                    self.update_config,
                    blocking=True,
                    note="by a list of names; all or none; an unknown name is refused",
                ),
                Row(code.GET_NAMESRV_CONFIG, NoHeader, self.config, note="settings of this name server only"),
                Row(code.QUERY_DATA_VERSION, BrokerHeader, self.query_version),
                Row(code.ADD_WRITE_PERM_OF_BROKER, BrokerNameHeader, self.restore_write),
            ]
        )

    # -- brokers -------------------------------------------------------------------------------------------------

    def register(self, call: Call[RegisterHeader]) -> Reply:
        header, settings = call.header, self._settings.current
        if header.body_crc32 and header.body_crc32 != body_crc(call.body):
            self._counters.registrations_refused += 1
            return Reply(ResponseCode.SYSTEM_ERROR, "the body does not have the checksum of bodyCrc32", ext={})
        identity = _identity(header)
        body = decode_register_body(
            call.body,
            is_compressed=header.compressed,
            is_bare=call.request.version < BODY_WITH_FILTER_SERVERS_VERSION,
            bytes_max=settings.register_bytes_max,
        )
        if body.skipped:
            log.warning("event=topics_skipped broker=%s topics=%.200r", identity.address, list(body.skipped))
        try:
            done = self._routes.register(
                identity, header.ha_server_addr, body, call.peer, self._clock.monotonic(), settings
            )
        except LimitReached as problem:
            self._counters.registrations_refused += 1
            log.warning("event=registration_refused broker=%s reason=%r", identity.address, str(problem))
            return Reply(ResponseCode.SYSTEM_BUSY, str(problem), ext={})
        self._counters.registrations += 1
        if done.is_new:
            log.info("event=broker_registered %s peer=%s", _described(identity), call.peer.host)
        known = {"haServerAddr": done.ha_address, "masterAddr": done.master_address}
        ext = {name: address for name, address in known.items() if address is not None}
        orders = self._kv.namespace(ORDER_TOPICS)
        return Reply(ext=ext, body=b"" if orders is None else kv_body(orders))

    def unregister(self, call: Call[BrokerHeader]) -> Reply:
        identity = _identity(call.header)
        if self._routes.unregister(identity) is not None:
            log.info("event=broker_removed %s reason='it unregistered'", _described(identity))
        return Reply()

    def query_version(self, call: Call[BrokerHeader]) -> Reply:
        address, asked = call.header.broker_addr, decode_data_version(call.body)
        known = self._routes.version_of(address)
        if known == asked:
            self._routes.touch(address, self._clock.monotonic())
        body = b"" if known is None else write_json(known.to_document())
        return Reply(ext={"changed": "false" if known == asked else "true"}, body=body)

    def clusters(self, call: Call[NoHeader]) -> Reply:
        is_standard = call.request.version >= STANDARD_JSON_VERSION
        return Reply(body=cluster_body(self._routes.brokers, self._routes.clusters(), is_standard=is_standard))

    def wipe_write(self, call: Call[BrokerNameHeader]) -> Reply:
        count = self._routes.wipe_write(call.header.broker_name)
        log.info("event=write_wiped broker=%s topics=%d peer=%s", call.header.broker_name, count, call.peer.host)
        return Reply(ext={"wipeTopicCount": str(count)})

    def restore_write(self, call: Call[BrokerNameHeader]) -> Reply:
        count = self._routes.restore_write(call.header.broker_name)
        log.info("event=write_restored broker=%s topics=%d peer=%s", call.header.broker_name, count, call.peer.host)
        return Reply(ext={"addTopicCount": str(count)})

    # -- topics --------------------------------------------------------------------------------------------------

    def route(self, call: Call[RouteHeader]) -> Reply:
        topic = call.header.topic
        route = self._routes.route(topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {topic[:200]}"
            return Reply(ResponseCode.TOPIC_NOT_EXIST, remark)
        is_standard = call.header.accept_standard_json_only or call.request.version >= STANDARD_JSON_VERSION
        order = self._kv.get(ORDER_TOPICS, topic) if self._settings.current.order_messages else None
        return Reply(body=route_body(route, order, is_standard=is_standard))

    def topics(self, _call: Call[NoHeader]) -> Reply:
        return Reply(body=topic_list_body(self._routes.topics()))

    def topics_of_cluster(self, call: Call[ClusterHeader]) -> Reply:
        return Reply(body=topic_list_body(self._routes.topics_of_cluster(call.header.cluster)))

    def system_topics(self, _call: Call[NoHeader]) -> Reply:
        """Every broker has a topic of its own name and one of its cluster's; the caller asks one broker for others."""
        clusters = self._routes.clusters()
        names = dict.fromkeys([*clusters, *(name for names in clusters.values() for name in names)])
        first = next((live for ids in self._routes.brokers.values() for live in ids.values()), None)
        return Reply(body=topic_list_body(names, first.identity.address if first is not None else None))

    def unit_topics(self, _call: Call[NoHeader]) -> Reply:
        return self._flagged(lambda flags: bool(flags & UNIT_FLAG))

    def unit_sub_topics(self, _call: Call[NoHeader]) -> Reply:
        return self._flagged(lambda flags: bool(flags & UNIT_SUB_FLAG))

    def unit_sub_ununit_topics(self, _call: Call[NoHeader]) -> Reply:
        return self._flagged(lambda flags: flags & (UNIT_FLAG | UNIT_SUB_FLAG) == UNIT_SUB_FLAG)

    def _flagged(self, is_meant: Callable[[int], bool]) -> Reply:
        def has(queues: TopicQueues) -> bool:
            return is_meant(queues.topic_sys_flag)

        return Reply(body=topic_list_body(self._routes.topics(has)))

    def delete_topic(self, call: Call[DeleteTopicHeader]) -> Reply:
        topic, cluster = call.header.topic, call.header.cluster_name
        count = self._routes.delete_topic(topic, cluster or None)
        log.info("event=topic_deleted topic=%s cluster=%s brokers=%d peer=%s", topic, cluster, count, call.peer.host)
        return Reply()

    # -- KV config -----------------------------------------------------------------------------------------------

    def put_kv(self, call: Call[PutKvHeader]) -> Reply:
        """On a thread of the pool."""
        header, settings = call.header, self._settings.current
        try:
            self._kv.put(
                header.namespace,
                header.key,
                header.value,
                entries_max=settings.kv_entries_max,
                bytes_max=settings.kv_bytes_max,
            )
        except LimitReached as problem:
            log.warning("event=kv_refused namespace=%s key=%s reason=%r", header.namespace, header.key, str(problem))
            return Reply(ResponseCode.SYSTEM_BUSY, str(problem))
        log.info("event=kv_put namespace=%s key=%s peer=%s", header.namespace, header.key, call.peer.host)
        return Reply()

    def get_kv(self, call: Call[KvHeader]) -> Reply:
        namespace, key = call.header.namespace, call.header.key
        value = self._kv.get(namespace, key)
        if value is None:
            return Reply(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}", ext={})
        return Reply(ext={"value": value})

    def delete_kv(self, call: Call[KvHeader]) -> Reply:
        """On a thread of the pool."""
        if self._kv.delete(call.header.namespace, call.header.key):
            namespace, key = call.header.namespace, call.header.key
            log.info("event=kv_deleted namespace=%s key=%s peer=%s", namespace, key, call.peer.host)
        return Reply()

    def kv_namespace(self, call: Call[NamespaceHeader]) -> Reply:
        entries = self._kv.namespace(call.header.namespace)
        if entries is None:
            return Reply(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {call.header.namespace}")
        return Reply(body=kv_body(entries))

    # -- settings ------------------------------------------------------------------------------------------------

    def update_config(self, call: Call[NoHeader]) -> Reply:
        """On a thread of the pool."""
        try:
            keys = self._settings.change(call.body)
        except SettingsError as problem:
            log.warning("event=settings_refused peer=%s reason=%r", call.peer.host, str(problem))
            is_forbidden = isinstance(problem, ChangeRefused)
            return Reply(ResponseCode.NO_PERMISSION if is_forbidden else ResponseCode.SYSTEM_ERROR, str(problem))
        log.info("event=settings_changed keys=%s peer=%s", ",".join(keys), call.peer.host)
        return Reply()

    def config(self, _call: Call[NoHeader]) -> Reply:
        return Reply(body=self._settings.text().encode())


def _identity(header: BrokerHeader | RegisterHeader) -> BrokerIdentity:
    return BrokerIdentity(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr)


def _described(identity: BrokerIdentity) -> str:
    return f"broker={identity.name} id={identity.broker_id} address={identity.address} cluster={identity.cluster}"
