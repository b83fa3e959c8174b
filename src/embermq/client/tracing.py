"""Message trace: what producers and consumers did with a message, sent as messages to RMQ_SYS_TRACE_TOPIC.

    field 0x01 field 0x01 ... field 0x02        one line for each event, several in a body

RocketMQ's tools (`mqadmin queryMsgTraceById`) find the lines by message id: the KEYS of a trace message are the ids and
keys of the messages in it. A trace is an aid: when it cannot be sent it is dropped, and the drop is counted.
The functions are pure; Tracer belongs to the loop's thread.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from embermq.model.message import Message

log = logging.getLogger(__name__)

_FIELD_END, _LINE_END = "\x01", "\x02"
NORMAL, HALF, COMMITTED, DELAYED = range(4)
LINES_MAX = 100
WAITING_MAX = 4096
BODY_CHARACTERS_MAX = 100_000
FLUSH_SECONDS = 1.0


def pub_line(
    *,
    time_ms: int,
    region: str,
    group: str,
    topic: str,
    message_id: str,
    tags: str,
    keys: str,
    store_host: str,
    body_bytes: int,
    cost_ms: int,
    kind: int,
    offset_message_id: str,
    is_sent: bool,
) -> str:
    """A message was sent, or could not be."""
    fields = (
        *("Pub", time_ms, region, group, topic, message_id, tags, keys, store_host, body_bytes, cost_ms, kind),
        *(offset_message_id, _text(is_sent)),
    )
    return _line(fields)


def before_line(
    *, time_ms: int, region: str, group: str, request_id: str, message_id: str, retries: int, keys: str
) -> str:
    """A message is about to be consumed."""
    return _line(("SubBefore", time_ms, region, group, request_id, message_id, retries, keys))


def after_line(
    *, request_id: str, message_id: str, cost_ms: int, is_consumed: bool, keys: str, code: int, time_ms: int, group: str
) -> str:
    """A message was consumed, or could not be."""
    return _line(("SubAfter", request_id, message_id, cost_ms, _text(is_consumed), keys, code, time_ms, group))


def end_transaction_line(
    *,
    time_ms: int,
    region: str,
    group: str,
    topic: str,
    message_id: str,
    tags: str,
    keys: str,
    store_host: str,
    transaction_id: str,
    state: str,
    is_check: bool,
) -> str:
    """A transaction was ended by its producer."""
    head = ("EndTransaction", time_ms, region, group, topic, message_id, tags, keys, store_host, COMMITTED)
    return _line((*head, transaction_id, state, _text(is_check)))


def _line(fields: Iterable[object]) -> str:
    return _FIELD_END.join(map(str, fields)) + _LINE_END


def _text(value: bool) -> str:
    return "true" if value else "false"


class Tracer:
    """Collects lines and posts them, a hundred at a time or once a second."""

    def __init__(self, topic: str, post: Callable[[Message], None]) -> None:
        self.topic, self._post = topic, post
        self._lines: list[tuple[str, str]] = []  # a line, and the keys by which it is found
        self._timer: asyncio.TimerHandle | None = None
        self.dropped = 0
        self.is_closed = False  # what still comes is dropped

    def add(self, line: str, keys: Iterable[str]) -> None:
        if self.is_closed or len(self._lines) >= WAITING_MAX:
            self.dropped += 1
            return
        self._lines.append((line, " ".join(key for key in keys if key)))
        if len(self._lines) >= LINES_MAX:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Post what there is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lines, self._lines = self._lines, []
        for part in _parts(lines):
            keys = dict.fromkeys(key for _line, found_by in part for key in found_by.split(" ") if key)
            body = "".join(line for line, _keys in part).encode("utf-8", "replace")
            self._post(Message(self.topic, body, keys=" ".join(keys)))


def _parts(lines: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Lines that fit one message together."""
    parts: list[list[tuple[str, str]]] = []
    size = BODY_CHARACTERS_MAX
    for line, keys in lines:
        if size + len(line) > BODY_CHARACTERS_MAX or len(parts[-1]) >= LINES_MAX:
            parts.append([])
            size = 0
        parts[-1].append((line, keys))
        size += len(line)
    return parts
