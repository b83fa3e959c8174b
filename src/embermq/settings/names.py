"""Names of settings: in files, in the environment, and those without effect. Pure but for warn().

Three kinds of names will not be heard: unknown ones (most likely a slip, so the nearest known name is
shown), those RocketMQ's broker or name server knows and a store does not need, and settings that are
accepted without effect. All of them go into one warning.
"""

import difflib
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from embermq.errors import SettingsWarning

ENVIRONMENT_PREFIX = "EMBERMQ_"

# Names a broker.conf or namesrv.conf may well contain and which are no business of the store.
BROKER_PROPERTIES = frozenset(
    """
    aclEnable adminBrokerThreadPoolNums autoCreateSubscriptionGroup autoCreateTopicEnable
    autoDeleteUnusedStats
    brokerClusterName brokerConfigPath brokerFastFailureEnable brokerIP2 brokerName brokerPermission
    brokerTopicEnable clientManageThreadPoolNums clientManagerThreadPoolQueueCapacity clusterTopicEnable
    commercialBaseCount commercialBigCount commercialEnable commercialTimerCount commercialTransCount
    compressedRegister configBlackList consumerFallbehindThreshold consumerManageThreadPoolNums
    consumerManagerThreadPoolQueueCapacity defaultTopicQueueNums disableConsumeIfConsumerReadSlowly
    enableDetailStat endTransactionPoolQueueCapacity endTransactionThreadPoolNums
    fetchNamesrvAddrByAddressServer filterServerNums flushConsumerOffsetHistoryInterval
    flushConsumerOffsetInterval forceRegister heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity
    highSpeedMode isolateLogEnable maxDelayTime msgTraceTopicName namesrvAddr notifyConsumerIdsChangedEnable
    processReplyMessageThreadPoolNums pullMessageThreadPoolNums pullThreadPoolQueueCapacity
    putMessageFutureThreadPoolNums putThreadPoolQueueCapacity queryMessageThreadPoolNums
    queryThreadPoolQueueCapacity regionId registerBrokerTimeoutMills registerNameServerPeriod
    rejectTransactionMessage replyThreadPoolQueueCapacity rocketmqHome sendMessageThreadPoolNums
    sendThreadPoolQueueCapacity shortPollingTimeMills slaveReadEnable startAcceptSendRequestTimeStamp
    storeReplyMessageEnable traceOn traceTopicEnable transactionCheckInterval transactionCheckMax
    transactionTimeOut transferMsgByHeap waitTimeMillsInHeartbeatQueue waitTimeMillsInPullQueue
    waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue

    channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads
    clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
    clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads
    connectTimeoutMillis serverAsyncSemaphoreValue serverCallbackExecutorThreads
    serverChannelMaxIdleTimeSeconds serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable
    serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize
    serverWorkerThreads useEpollNativeSelector useTLS writeBufferHighWaterMark writeBufferLowWaterMark

    clusterTest configStorePath kvConfigPath orderMessageEnable productEnvName
    """.split()  # noqa: SIM905 - as a list it would fill two pages
)


class Given(NamedTuple):
    """A key and its text as they were written, and where."""

    key: str
    text: str
    file: str | None = None
    line: int = 0


class Variables(NamedTuple):
    """What the environment says: settings by attribute, and names that look like a slip of the pen."""

    known: dict[str, Given]
    near_misses: list[Given]


class Names:
    """The names of every setting. Immutable once made: usable from any thread."""

    def __init__(self, attributes: Mapping[str, str]) -> None:
        """`attributes`: reference name -> python name."""
        self.attributes = dict(attributes)
        self._plain = {_plain(name): name for name in attributes}
        self._alike = {_plain(name): name for name in BROKER_PROPERTIES}
        self._alike |= {_plain(attribute): name for name, attribute in attributes.items()}
        self._alike |= self._plain

    def variables(self, environment: Mapping[str, str]) -> Variables:
        """Settings among the variables. Of the others only near misses count: tools have variables, too."""
        found = Variables({}, [])
        for variable, text in sorted(environment.items()):
            if not variable.startswith(ENVIRONMENT_PREFIX):
                continue
            plain = _plain(variable.removeprefix(ENVIRONMENT_PREFIX))
            if name := self._plain.get(plain):
                found.known[self.attributes[name]] = Given(variable, text)
            elif difflib.get_close_matches(plain, self._plain, n=1, cutoff=0.8):
                found.near_misses.append(Given(variable, text))
        return found

    def nearest(self, key: str) -> str | None:
        """The known name most like this one."""
        prefix = ENVIRONMENT_PREFIX if key.startswith(ENVIRONMENT_PREFIX) else ""
        close = difflib.get_close_matches(_plain(key.removeprefix(prefix)), self._alike, n=1, cutoff=0.6)
        return prefix + self._alike[close[0]] if close else None

    def warn(self, source: str, given: Sequence[Given], idle: Sequence[str], *, stacklevel: int) -> None:
        """One SettingsWarning for everything that was said and will not be heard; none if all is heard."""
        unheard = [entry for entry in given if entry.key not in self.attributes]
        unknown = [self._describe(entry) for entry in unheard if entry.key not in BROKER_PROPERTIES]
        foreign = [entry.key for entry in unheard if entry.key in BROKER_PROPERTIES]
        parts = [
            f"{title}: {', '.join(dict.fromkeys(names))}"
            for title, names in (
                ("unknown settings", unknown),
                ("known, but not honoured by the store", foreign),
                ("accepted without effect", idle),
            )
            if names
        ]
        if parts:
            place = f"{source}: " if source else ""
            warnings.warn(place + "; ".join(parts), SettingsWarning, stacklevel=stacklevel)

    def _describe(self, entry: Given) -> str:
        notes = [f"line {entry.line}"] if entry.line else []
        if nearest := self.nearest(entry.key):
            notes.append(f"did you mean {nearest}?")
        return f"{entry.key} ({', '.join(notes)})" if notes else entry.key


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
