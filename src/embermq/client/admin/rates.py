"""Rates: how fast topics are written and read, and how far their groups are behind. The loop's thread only.

Brokers count messages by topic and by topic and group over a minute, an hour and a day. A count that does not exist yet
is refused by a broker with SYSTEM_ERROR; here it is 0. Slaves are not asked: they count only what they deliver.
"""

import msgspec

from embermq.client.admin.asking import Asking
from embermq.client.admin.bodies import convert
from embermq.client.admin.groups import Groups
from embermq.client.admin.topics import Topics
from embermq.client.calls import BrokerAddress
from embermq.remoting import RequestCode, ResponseCode


class TopicRate(msgspec.Struct, frozen=True, rename="camel"):
    """A topic and one group that reads it; a topic that no group reads has one with `group` None."""

    topic: str
    group: str | None
    accumulation: int | None
    in_tps: float
    out_tps: float | None
    in_msg_24_hour: int = msgspec.field(name="inMsg24Hour")
    out_msg_24_hour: int | None = msgspec.field(name="outMsg24Hour")


class _Window(msgspec.Struct):
    sum: int = 0
    tps: float = 0.0


class _Counted(msgspec.Struct, rename="camel"):
    stats_minute: _Window = msgspec.field(default_factory=_Window)
    stats_hour: _Window = msgspec.field(default_factory=_Window)
    stats_day: _Window = msgspec.field(default_factory=_Window)

    @property
    def day_sum(self) -> int:
        """The longest window that has been counted: those of a broker that has just started are 0."""
        return self.stats_day.sum or self.stats_hour.sum or self.stats_minute.sum


class Rates:
    """Questions about rates."""

    def __init__(self, asking: Asking, topics: Topics, groups: Groups) -> None:
        self._asking, self._topics, self._groups = asking, topics, groups

    async def of_topic(self, topic: str) -> list[TopicRate]:
        """A topic with each group that reads it or has offsets in it, over all its masters; RouteMissing."""
        places = await self._asking.topic_places(topic)
        in_tps, in_sum = await self._counted(places, "TOPIC_PUT_NUMS", topic)
        found = []
        for group in await self._topics.groups(topic):
            out_tps, out_sum = await self._counted(places, "GROUP_GET_NUMS", f"{topic}@{group}")
            lag = (await self._groups.progress(group, topic)).lag
            found.append(TopicRate(topic, group, lag, in_tps, out_tps, in_sum, out_sum))
        return found or [TopicRate(topic, None, None, in_tps, None, in_sum, None)]

    async def _counted(self, places: list[BrokerAddress], name: str, key: str) -> tuple[float, int]:
        """Messages a second in the last minute, and messages of the last day, of all these brokers."""
        header = {"statsName": name, "statsKey": key}
        tps, total = 0.0, 0
        for place in places:
            answer = await self._asking.broker(
                place, RequestCode.VIEW_BROKER_STATS_DATA, header, expected=(ResponseCode.SYSTEM_ERROR,)
            )
            if answer.code == 0:
                counted = answer.read(lambda body: convert(body, _Counted))
                tps, total = tps + counted.stats_minute.tps, total + counted.day_sum
        return round(tps, 2), total
