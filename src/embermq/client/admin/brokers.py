"""Brokers and clusters: which there are, what they say of themselves, their settings, and cleaning. The loop's thread
only."""

from collections.abc import Mapping
from typing import Any

import msgspec

from embermq.client.admin.asking import Asking
from embermq.client.admin.bodies import table
from embermq.client.calls import BrokerAddress, body_of
from embermq.errors import BrokerUnreachable, RequestRefused
from embermq.remoting import RequestCode
from embermq.settings.java_properties import parse_properties

CLEANINGS = {
    "queues": RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    "topics": RequestCode.CLEAN_UNUSED_TOPIC,
    "log": RequestCode.DELETE_EXPIRED_COMMITLOG,
}


class ListedBroker(msgspec.Struct, frozen=True, rename="camel"):
    """A broker in the list of a cluster. What one that does not answer would say is None, and `problem` says why."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    version: str | None = None
    in_tps: float | None = None
    out_tps: float | None = None
    msg_in_today: int | None = None
    msg_out_today: int | None = None
    page_cache_lock_ms: int | None = None
    earliest_message_timestamp: int | None = None
    disk_used_percent: float | None = None
    problem: str | None = None


class Brokers:
    """Questions about brokers."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def place(self, broker: str) -> BrokerAddress:
        """A broker by its name or address; NameUnknown, with the nearest name."""
        return await self._asking.place(broker)

    async def places(self, cluster: str = "") -> list[BrokerAddress]:
        """The masters of a cluster, or of all."""
        return await self._asking.places(cluster)

    async def listed(self, cluster: str = "") -> list[ListedBroker]:
        """Every broker of every cluster, slaves too, with its most important figures."""
        route = await self._asking.cluster()
        if cluster:
            await self._asking.places(cluster)
        found = []
        for name, data in sorted(route.broker_addr_table.items()):
            if cluster in ("", data.cluster):
                for broker_id, address in sorted(data.broker_addrs.items()):
                    found.append(await self._listed(data.cluster, name, broker_id, address))
        return sorted(found, key=lambda one: (one.cluster, one.broker_name, one.broker_id))

    async def _listed(self, cluster: str, name: str, broker_id: int, address: str) -> ListedBroker:
        bare = ListedBroker(cluster, name, broker_id, address)
        try:
            figures = await self.status(BrokerAddress(name, address))
        except (BrokerUnreachable, RequestRefused) as problem:
            return msgspec.structs.replace(bare, problem=str(problem))
        got_before, got_now = _count(figures, "msgGetTotalTodayMorning"), _count(figures, "msgGetTotalTodayNow")
        put_before, put_now = _count(figures, "msgPutTotalTodayMorning"), _count(figures, "msgPutTotalTodayNow")
        earliest = _count(figures, "earliestMessageTimeStamp")
        ratio = figures.get("commitLogDiskRatio")
        return msgspec.structs.replace(
            bare,
            version=figures.get("brokerVersionDesc"),
            in_tps=_rate(figures, "putTps"),
            out_tps=_rate(figures, "getTransferedTps", "getTransferredTps"),
            msg_in_today=None if put_before is None or put_now is None else put_now - put_before,
            msg_out_today=None if got_before is None or got_now is None else got_now - got_before,
            page_cache_lock_ms=_count(figures, "pageCacheLockTimeMills"),
            earliest_message_timestamp=earliest if earliest is not None and earliest > 0 else None,
            disk_used_percent=None if ratio is None else round(float(ratio) * 100, 2),
        )

    async def status(self, to: BrokerAddress) -> dict[str, str]:
        """The runtime info of a broker, by name."""
        answer = await self._asking.broker(to, RequestCode.GET_BROKER_RUNTIME_INFO)
        return answer.read(_texts)

    async def config(self, to: BrokerAddress) -> dict[str, str]:
        """The settings of a broker, by name."""
        answer = await self._asking.broker(to, RequestCode.GET_BROKER_CONFIG)
        return body_of(to, RequestCode.GET_BROKER_CONFIG, answer.command, _properties)

    async def change_config(self, to: BrokerAddress, changes: Mapping[str, str]) -> None:
        """Change settings of a running broker; RequestRefused for one that may not be changed."""
        await self._asking.broker(to, RequestCode.UPDATE_BROKER_CONFIG, body=_property_lines(changes))

    async def clean(self, to: BrokerAddress, what: str) -> None:
        """Have a broker clean up: `queues` that lead to deleted messages, `topics` without messages, or the `log`."""
        await self._asking.broker(to, CLEANINGS[what], is_long=True)

    async def set_writable(self, broker: str, is_writable: bool) -> int:
        """Let clients send to a broker, or send elsewhere: the name servers change its topics. How many it has.

        It holds until the broker registers something new.
        """
        code = RequestCode.ADD_WRITE_PERM_OF_BROKER if is_writable else RequestCode.WIPE_WRITE_PERM_OF_BROKER
        name = (await self._asking.place(broker)).name
        counts = await self._asking.every_name_server(code, {"brokerName": name})
        field = "addTopicCount" if is_writable else "wipeTopicCount"
        return max(int(answer.ext.get(field, "0")) for answer in counts)

    async def name_server_config(self) -> dict[str, dict[str, str]]:
        """The settings of each name server, by its address."""
        code = RequestCode.GET_NAMESRV_CONFIG
        answers = await self._asking.every_name_server(code)
        return {one.to.address: body_of(one.to, code, one.command, _properties) for one in answers}

    async def change_name_server_config(self, changes: Mapping[str, str]) -> None:
        """Change settings of every name server; RequestRefused for one that may not be changed."""
        await self._asking.every_name_server(RequestCode.UPDATE_NAMESRV_CONFIG, body=_property_lines(changes))


def _texts(body: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in sorted(table(body, "table").items())}


def _properties(body: bytes) -> dict[str, str]:
    return dict(sorted((entry.key, entry.value) for entry in parse_properties(body.decode())))


def _property_lines(changes: Mapping[str, str]) -> bytes:
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in changes.items()).encode()


def _escaped(text: str) -> str:
    """As a .properties file must have it."""
    for character, written in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("=", "\\="), (":", "\\:")):
        text = text.replace(character, written)
    return text


def _count(figures: Mapping[str, str], name: str) -> int | None:
    try:
        return int(figures[name])
    except (KeyError, ValueError):
        return None


def _rate(figures: Mapping[str, str], *names: str) -> float | None:
    """The first of three: over 10 s. They are missing until a broker has run that long."""
    for name in names:
        first = figures.get(name, "").split(" ")[0]
        try:
            return round(float(first), 2)
        except ValueError:
            continue
    return None
