"""BrokerSettings: what a broker is called, where it listens, and what it allows; declared as those of the store are.

One broker.conf holds both kinds: a key belongs to StoreSettings or to BrokerSettings (`listenPort`, `brokerIP1`,
`brokerId` and the filter settings are the store's). Values are immutable: usable from any thread.
"""

import dataclasses
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from embermq.errors import SettingsError
from embermq.settings.values import SettingFacts, Unusable, accept, parse_text, prop, to_text


def _check_address(text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise Unusable("an IPv4 or IPv6 address is expected, not a host name") from None


def _check_name(text: str) -> None:
    if not text or not all(letter.isalnum() or letter in "_-%|" for letter in text) or not text.isascii():
        raise Unusable("letters, digits, and any of _ - % | are expected")


def _own_name() -> str:
    """The machine's name, as RocketMQ takes it; with what a topic name cannot have replaced."""
    name = socket.gethostname() or "broker"
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "-" for letter in name)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Every setting of a broker that the store does not have."""

    cluster_name: str = prop("brokerClusterName", "DefaultCluster", "cluster of the broker", check=_check_name)
    broker_name: str = prop("brokerName", "", "name of the broker; empty: that of the machine")
    name_servers: tuple[str, ...] = prop("namesrvAddr", (), "name servers, separated by `;`")
    listen_address: str = prop("emberListenAddress", "127.0.0.1", "address to listen on", check=_check_address)
    fast_port: bool = prop("emberFastPort", True, "listen on the port two below listenPort as well")
    permission: int = prop("brokerPermission", 6, "what clients may do: 4 read, 2 write, 6 both", most=7)
    default_topic_queues: int = prop(
        "defaultTopicQueueNums", 8, "queues of TBW102, the most a topic made on first use gets", least=1, most=65536
    )
    auto_create_topics: bool = prop("autoCreateTopicEnable", True, "make topics on first use")
    auto_create_groups: bool = prop("autoCreateSubscriptionGroup", True, "make consumer groups on first use")
    cluster_topic: bool = prop("clusterTopicEnable", True, "topics may be made after the cluster's own topic")
    broker_topic: bool = prop("brokerTopicEnable", True, "topics may be made after the broker's own topic")
    trace_topic: bool = prop("traceTopicEnable", False, "make the topic for message traces at the start")
    trace_topic_name: str = prop("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", "topic for message traces")
    trace_on: bool = prop("traceOn", True, "tell producers that traces are wanted")
    region: str = prop("regionId", "DefaultRegion", "region named in answers to producers")
    reject_transactions: bool = prop("rejectTransactionMessage", False, "refuse transactional messages")
    transaction_timeout_ms: int = prop(
        "transactionTimeOut", 6000, "age of a half message before its producer is asked about it", unit="ms", least=0
    )
    transaction_checks_max: int = prop(
        "transactionCheckMax", 15, "questions about a half message before it is given up", least=0
    )
    transaction_check_interval_ms: int = prop(
        "transactionCheckInterval", 60_000, "pause between rounds of such questions", unit="ms", least=1
    )
    undecided_max: int = prop("emberMaxUndecidedTransactions", 1_000_000, "most undecided transactions", least=1)
    short_polling_ms: int = prop("shortPollingTimeMills", 1000, "hold of a pull without long polling", unit="ms")
    notify_ids_changed: bool = prop("notifyConsumerIdsChangedEnable", True, "tell members of a group about changes")
    offsets_flush_ms: int = prop(
        "flushConsumerOffsetInterval", 5000, "pause between saves of offsets", unit="ms", least=1
    )
    slave_read: bool = prop("slaveReadEnable", False, "send slow consumers to a slave")
    store_replies: bool = prop("storeReplyMessageEnable", True, "keep replies of request-reply in their topic")
    accept_sends_from_ms: int = prop(
        "startAcceptSendRequestTimeStamp", 0, "refuse sends before this time", unit="ms since 1970", most=(1 << 63) - 1
    )
    register_period_ms: int = prop(
        "registerNameServerPeriod",
        30_000,
        "pause between registrations",
        unit="ms",
        least=10_000,
        most=60_000,
        clamped=True,
    )
    register_timeout_ms: int = prop("registerBrokerTimeoutMills", 6000, "wait for a name server", unit="ms", least=1)
    config_black_list: str = prop(
        "configBlackList", "configBlackList;brokerConfigPath", "keys that no request may change, separated by `;`"
    )
    idle_seconds: int = prop(
        "serverChannelMaxIdleTimeSeconds", 120, "close a connection that is idle for so long", unit="s", least=1
    )
    connections_max: int = prop("emberMaxConnections", 20_000, "most connections", least=1)
    frame_bytes_max: int = prop(
        "emberMaxFrameBytes", 16 << 20, "largest request", unit="bytes", least=1024, most=64 << 20
    )
    requests_per_connection_max: int = prop(
        "emberMaxRequestsPerConnection", 20_000, "most requests of one connection without an answer yet", least=1
    )
    requests_max: int = prop("emberMaxRequests", 200_000, "most requests without an answer yet", least=1)
    kept_bytes_max: int = prop(
        "emberMaxKeptBytes", 256 << 20, "most bytes of requests that wait for their answer", unit="bytes", least=1024
    )
    unread_bytes_max: int = prop(
        "emberMaxUnreadBytes", 256 << 20, "most bytes of requests that have not arrived whole", unit="bytes", least=1024
    )
    unsent_bytes_max: int = prop(
        "emberMaxUnsentBytes", 512 << 20, "most bytes of answers that clients have not read", unit="bytes", least=1024
    )
    unsent_per_connection_max: int = prop(
        "emberMaxUnsentBytesPerConnection", 96 << 20, "the same for one connection", unit="bytes", least=1024
    )
    pushes_max: int = prop(
        "emberMaxUnansweredPushes", 4096, "most requests to one client that it has not answered", least=1
    )
    held_pulls_max: int = prop("emberMaxHeldPulls", 100_000, "most pulls that wait for messages", least=1)
    bulk_pull_bytes_max: int = prop(
        "emberMaxBulkPullBytes",
        1 << 20,
        "most bytes of a pull that asks for many messages at once, as Spark's do; 0: it gets what others get",
        unit="bytes",
        least=0,
        most=8 << 20,
    )
    clients_max: int = prop("emberMaxClients", 100_000, "most memberships of clients in groups", least=1)
    subscription_bytes_max: int = prop(
        "emberMaxSubscriptionBytes", 64 << 20, "most bytes of topics and expressions in subscriptions", unit="bytes"
    )
    names_max: int = prop("emberMaxNames", 50_000, "most topics, and most groups", least=1)
    offsets_max: int = prop("emberMaxOffsets", 200_000, "most pairs of topic and group whose offsets are kept", least=1)
    blocking_requests_max: int = prop(
        "emberMaxBlockingRequests",
        10_000,
        "most requests that wait for a thread, because they may wait for a disk",
        least=1,
    )
    late_requests_max: int = prop(
        "emberMaxLateRequests",
        10_000,
        "most requests whose answer waits for a disk, a name server or a client",
        least=1,
    )

    def __post_init__(self) -> None:
        for attribute, about in PROPERTIES.items():
            value = getattr(self, attribute)
            try:
                accepted = accept(KINDS[attribute], about, value)
            except Unusable as error:
                raise SettingsError(str(error), key=about.name, value=value) from None
            object.__setattr__(self, attribute, accepted)
        if not self.broker_name:
            object.__setattr__(self, "broker_name", _own_name())
        try:
            _check_name(self.broker_name)
        except Unusable as error:
            raise SettingsError(str(error), key="brokerName", value=self.broker_name) from None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], **arguments: Any) -> Self:
        """From RocketMQ's names and text values; keys that are not a broker's are left alone."""
        by_name = {about.name: attribute for attribute, about in PROPERTIES.items()}
        values: dict[str, Any] = {}
        for key, text in properties.items():
            if (attribute := by_name.get(key)) is None:
                continue
            try:
                values[attribute] = parse_text(KINDS[attribute], PROPERTIES[attribute], listed(key, text))
            except Unusable as error:
                raise SettingsError(str(error), key=key, value=text) from None
        return cls(**(values | arguments))

    def replace(self, **changes: Any) -> Self:
        return dataclasses.replace(self, **changes)

    def to_properties(self) -> dict[str, str]:
        return {
            about.name: to_text(getattr(self, attribute)).replace(",", ";" if about.name == "namesrvAddr" else ",")
            for attribute, about in PROPERTIES.items()
        }


def listed(key: str, text: str) -> str:
    """Name servers are separated by `;`, other lists by `,`."""
    return text.replace(";", ",") if key == "namesrvAddr" else text


PROPERTIES: dict[str, SettingFacts] = {f.name: f.metadata["property"] for f in dataclasses.fields(BrokerSettings)}
KINDS: dict[str, Any] = {f.name: f.type for f in dataclasses.fields(BrokerSettings)}
