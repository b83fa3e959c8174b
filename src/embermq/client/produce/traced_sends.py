"""Lines of the message trace for sends. The loop's thread only."""

import time

from embermq.client.produce.hooks import SendContext
from embermq.client.produce.results import SendResult
from embermq.client.tracing import DELAYED, HALF, NORMAL, Tracer, pub_line
from embermq.model.message import join_keys
from embermq.model.properties import DELAY, KEYS, TAGS

TRANSACTION = "TRAN_MSG"


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
        keys = properties.get(KEYS) or (message.keys if isinstance(message.keys, str) else join_keys(message.keys))
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
