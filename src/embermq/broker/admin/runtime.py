"""The broker in figures (28, 315). On the loop's thread; what asks the disk, on another."""

import asyncio
from collections.abc import Callable

import msgspec

from embermq.broker.admin.shapes import answered, failed
from embermq.broker.answers import Acknowledgements, Later
from embermq.broker.statistics import Statistics
from embermq.files import Files
from embermq.remoting import PROTOCOL_VERSION, Call, NoHeader, RemotingServer, Reply, RequestCode, Row
from embermq.settings import BrokerSettings
from embermq.store import MessageStore

VERSION_NAME = "V4_9_8"
NO_BUFFER_LIMIT = str(2**31 - 1)  # what RocketMQ shows where log files have no private buffers


class FigureHeader(msgspec.Struct, rename="camel"):
    stats_name: str
    stats_key: str


class RuntimeAdmin:
    """Answers about load."""

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        store: MessageStore,
        files: Files,
        statistics: Statistics,
        acknowledgements: Acknowledgements,
        server: RemotingServer,
        later: Later,
        refused: Callable[[], dict[str, int]],
        replication: Callable[[], dict[str, str]],
    ) -> None:
        """`refused`: how often each limit was reached; `replication`: figures of it, by name."""
        self._settings, self._store, self._files, self._statistics = settings, store, files, statistics
        self._acknowledgements, self._server, self._later = acknowledgements, server, later
        self._refused, self._replication = refused, replication

    def rows(self) -> list[Row]:
        return [
            self._later.row(RequestCode.GET_BROKER_RUNTIME_INFO, NoHeader, self.runtime),
            Row(RequestCode.VIEW_BROKER_STATS_DATA, FigureHeader, self.figure),
        ]

    async def runtime(self, _call: Call[NoHeader]) -> Reply:
        info = await asyncio.to_thread(self._of_store)
        return answered({"table": dict(sorted((info | self._of_broker()).items()))})

    def figure(self, call: Call[FigureHeader]) -> Reply:
        found = self._statistics.figure(call.header.stats_name, call.header.stats_key)
        if found is None:
            return failed(f"The stats <{call.header.stats_name}> <{call.header.stats_key}> not exist")
        return answered(found.document())

    def _of_store(self) -> dict[str, str]:
        """Under the names of 4.9, and of 5.x where it spells them otherwise."""
        info = self._store.runtime_info()
        usage = self._files.usage(self._store.path)
        info["commitLogDirCapacity"] = f"Total : {_readable(usage.total)}, Free : {_readable(usage.available)}."
        info["getTransferredTps"] = info["getTransferedTps"]
        return info

    def _of_broker(self) -> dict[str, str]:
        """Requests run on the loop or on a small pool: there is no queue of a thread pool in front of them."""
        mornings, limits, counters = self._statistics.mornings, self._server.limits, self._server.counters
        settings, pool = self._settings(), self._store.settings.transient_pool_active
        capacity = str(limits.in_flight)
        return {
            "brokerVersionDesc": VERSION_NAME,
            "brokerVersion": str(PROTOCOL_VERSION),
            "brokerActive": "true",
            "msgPutTotalYesterdayMorning": str(mornings.put_yesterday_morning),
            "msgPutTotalTodayMorning": str(mornings.put_today_morning),
            "msgPutTotalTodayNow": str(self._statistics.put_total),
            "msgGetTotalYesterdayMorning": str(mornings.got_yesterday_morning),
            "msgGetTotalTodayMorning": str(mornings.got_today_morning),
            "msgGetTotalTodayNow": str(self._statistics.got_total),
            "sendThreadPoolQueueSize": str(len(self._acknowledgements)),
            "sendThreadPoolQueueCapacity": capacity,
            "pullThreadPoolQueueSize": "0",
            "pullThreadPoolQueueCapacity": str(settings.held_pulls_max),
            "queryThreadPoolQueueSize": "0",
            "queryThreadPoolQueueCapacity": str(limits.blocking_calls),
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": capacity,
            "sendThreadPoolQueueHeadWaitTimeMills": "0",
            "pullThreadPoolQueueHeadWaitTimeMills": "0",
            "queryThreadPoolQueueHeadWaitTimeMills": "0",
            "startAcceptSendRequestTimeStamp": str(settings.accept_sends_from_ms),
            "remainTransientStoreBufferNumbs": (
                NO_BUFFER_LIMIT if not pool else str(int(not self._store.is_transient_pool_deficient))
            ),
            "emberConnections": str(counters.connections),
            "emberRequests": str(counters.requests),
            "emberRequestsInFlight": str(counters.in_flight),
            "emberRequestBytesKept": str(counters.kept_bytes),
            "emberBytesUnread": str(counters.unread_bytes),
            "emberBytesUnsent": str(counters.unsent_bytes),
            "emberClosedInvalid": str(counters.closed_invalid),
            "emberClosedIdle": str(counters.closed_idle),
            "emberClosedStalled": str(counters.closed_stalled),
            "emberClosedCrowded": str(counters.closed_crowded),
            **{f"emberRefused{what}": str(times) for what, times in self._refused().items()},
            **self._replication(),
        }


def _readable(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f} {unit}" if unit != "B" else f"{size:.0f} B"
        size /= 1024
    return f"{size:.1f} TiB"
