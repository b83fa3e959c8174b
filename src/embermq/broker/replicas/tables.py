"""The tables of a slave: topics, groups, offsets and delay progress, asked of its master every ten seconds.

    21    topics            taken as a whole, under the master's version, when that differs
    201   groups            the same
    43    consumer offsets  put over those that are here, pair by pair
    45    delay progress    written to config/delayOffset.json: the store takes it up when it becomes a master

What the master does not answer, or what cannot be read, is left for the next time. On the loop; files are written on
another thread.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from embermq.broker.tables import ConsumerOffsets, GroupTable, TopicTable
from embermq.errors import RemotingError
from embermq.model.data_version import DATA_VERSION, parse_data_version
from embermq.remoting import Command, Connector, RequestCode, parse_json
from embermq.store.tables import CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS, TOPICS, ConfigTable

log = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
TABLE_BYTES_MAX = 64 << 20


class SlaveTables:
    """Takes the tables of a master."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        delays: ConfigTable[int, int],
        connector: Connector,
    ) -> None:
        self._topics, self._groups, self._offsets, self._delays = topics, groups, offsets, delays
        self._connector = connector
        self._failed: dict[int, str] = {}  # What was said of a request that failed.

    async def take(self, master: str) -> bool:
        """Ask for every table; whether all of them came."""
        steps: tuple[tuple[RequestCode, Callable[[Any], None]], ...] = (
            (RequestCode.GET_ALL_TOPIC_CONFIG, self._take_topics),
            (RequestCode.GET_ALL_CONSUMER_OFFSET, self._take_offsets),
            (RequestCode.GET_ALL_DELAY_OFFSET, self._take_delays),
            (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self._take_groups),
        )
        done = [await self._step(master, code, take) for code, take in steps]
        await asyncio.to_thread(self._delays.save)
        return all(done)

    async def _step(self, master: str, code: RequestCode, take: Callable[[Any], None]) -> bool:
        try:
            answer = await self._connector.call(master, Command(code), ANSWER_SECONDS)
            if answer.code != 0:
                raise ValueError(f"code {answer.code}: {answer.remark}")
            # Java writes numbers for keys: only a body that is not too large is read with them.
            document = await asyncio.to_thread(parse_json, answer.body, TABLE_BYTES_MAX)
            take(document)
        except (RemotingError, ValueError) as problem:
            if self._failed.get(code) != str(problem):
                log.warning("event=table_not_taken master=%s code=%d reason=%r", master, code, str(problem))
            self._failed[code] = str(problem)
            return False
        self._failed.pop(code, None)
        return True

    def _take_topics(self, document: Any) -> None:
        entries = TOPICS.table_of(document).value
        version = parse_data_version(document.get(DATA_VERSION))
        if version != self._topics.version or entries != self._topics.all():
            self._topics.take_all(entries, version)

    def _take_groups(self, document: Any) -> None:
        entries = GROUPS.table_of(document).value
        version = parse_data_version(document.get(DATA_VERSION))
        if version != self._groups.version or entries != self._groups.all():
            self._groups.take_all(entries, version)

    def _take_offsets(self, document: Any) -> None:
        self._offsets.take_all(CONSUMER_OFFSETS.table_of(document).value)

    def _take_delays(self, document: Any) -> None:
        self._delays.assign(DELAY_OFFSETS.table_of(document).value)
