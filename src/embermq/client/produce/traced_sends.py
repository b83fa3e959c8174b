"""Lines of the message trace for sends and the ends of transactions. The loop's thread only."""

import time
from collections.abc import Mapping

from embermq.client.calls import Decision
from embermq.client.produce.hooks import SendContext
from embermq.client.produce.results import SendResult
from embermq.client.received import ReceivedMessage
from embermq.client.tracing import DELAYED, HALF, NORMAL, Tracer, end_transaction_line, pub_line
from embermq.model.message import Message, join_keys
from embermq.model.properties import DELAY, KEYS, REAL_TOPIC, TAGS

TRANSACTION = "TRAN_MSG"
HALVES_MAX = 10_000
_STATES = {Decision.COMMIT: "COMMIT_MESSAGE", Decision.ROLLBACK: "ROLLBACK_MESSAGE", Decision.UNKNOWN: "UNKNOW"}


class TracedSends:
    """What a producer sent, as lines for a tracer."""

    def __init__(self, tracer: Tracer, group: str) -> None:
        self._tracer, self._group = tracer, group

    def sent(self, context: SendContext, result: SendResult | None, is_wanted: bool, cost_seconds: float) -> None:
        """A message was sent, or could not be. A broker may say that it wants no traces."""
        if not is_wanted:
            return
        message = context.message
        properties = message.all_properties()
        keys = _keys(message, properties)
        kind = HALF if TRANSACTION in properties else DELAYED if DELAY in properties else NORMAL
        line = pub_line(
            time_ms=int(time.time() * 1000 - cost_seconds * 1000),
            region="" if result is None else result.region,
            group=self._group,
            topic=message.topic,
            message_id=context.message_id,
            tags=properties.get(TAGS, ""),
            keys=keys,
            store_host=context.address,
            body_bytes=len(message.body),
            cost_ms=round(cost_seconds * 1000),
            kind=kind,
            offset_message_id="" if result is None else result.offset_message_id,
            is_sent=result is not None,
        )
        self._tracer.add(line, [context.message_id, *keys.split(" ")])


class TracedEnds:
    """What became of half messages, as lines for a tracer. Their tags and keys are remembered until then, of the last
    ten thousand: a line without them is still found by the id of the message."""

    def __init__(self, tracer: Tracer, group: str) -> None:
        self._tracer, self._group = tracer, group
        self._halves: dict[str, tuple[str, str]] = {}

    def prepared(self, message_id: str, message: Message) -> None:
        """A half message is being sent."""
        properties = message.all_properties()
        self._halves[message_id] = (properties.get(TAGS, ""), _keys(message, properties))
        if len(self._halves) > HALVES_MAX:
            del self._halves[next(iter(self._halves))]

    def ended(self, sent: SendResult, decision: Decision, address: str) -> None:
        """The producer has decided by itself."""
        tags, keys = self._halves.pop(sent.message_id, ("", ""))
        ids = (sent.message_id, sent.transaction_id or "")
        self._add(sent.queue.topic, ids, tags, keys, address, decision, region=sent.region, is_check=False)

    def answered(self, message: ReceivedMessage, transaction_id: str, address: str, decision: Decision) -> None:
        """A broker has asked."""
        tags, keys = message.tags or "", " ".join(message.keys)
        topic = message.properties.get(REAL_TOPIC, message.topic)
        self._add(topic, (message.message_id, transaction_id), tags, keys, address, decision, region="", is_check=True)

    def _add(
        self,
        topic: str,
        ids: tuple[str, str],
        tags: str,
        keys: str,
        address: str,
        decision: Decision,
        *,
        region: str,
        is_check: bool,
    ) -> None:
        message_id, transaction_id = ids
        line = end_transaction_line(
            time_ms=int(time.time() * 1000),
            region=region,
            group=self._group,
            topic=topic,
            message_id=message_id,
            tags=tags,
            keys=keys,
            store_host=address,
            transaction_id=transaction_id,
            state=_STATES[decision],
            is_check=is_check,
        )
        self._tracer.add(line, [message_id, *keys.split(" ")])


def _keys(message: Message, properties: Mapping[str, str]) -> str:
    return properties.get(KEYS) or (message.keys if isinstance(message.keys, str) else join_keys(message.keys))
