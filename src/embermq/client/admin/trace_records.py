"""Records of a message trace: what producers and consumers with tracing on write into RMQ_SYS_TRACE_TOPIC. Pure.

A trace message holds records that end with 0x02; the fields of a record end with 0x01:

    Pub             type time region group topic msgId tags keys storeHost bodyLength cost msgType offsetMsgId success
    SubBefore       type time region group requestId msgId retryTimes keys
    SubAfter        type requestId msgId cost success keys contextCode [time group]
    EndTransaction  type time region group topic msgId tags keys storeHost msgType transactionId state fromCheck

Clients of other ages write fewer fields, or one more (the client's host): what is missing is None. A record of another
type, without a message id, or with a number that is none, is left out: one bad record does not hide the others.
SubBefore and SubAfter of one delivery share the request id, and become one step.
"""

from collections.abc import Callable, Iterable

import msgspec

FIELD_END, RECORD_END = "\x01", "\x02"
MESSAGE_TYPES = ("normal", "half", "commit", "delay")
CONSUME_RESULTS = ("success", "timeout", "exception", "returned null", "failed")
PUBLISHED, DELIVERED, ENDED = "send", "consume", "end transaction"


class TraceStep(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that happened to a message, as the client that did it wrote it down. Times are the client's, in ms.

    `status` is `success`, `failed` or a consumer's other result; of a delivery that was begun and of whose end there is
    no record, it is `unknown`; of a transaction it is the state that the producer asked for.
    """

    what: str
    timestamp: int | None
    group: str
    msg_id: str
    status: str
    topic: str | None = None
    tags: str | None = None
    keys: str | None = None
    cost_ms: int | None = None
    client_host: str | None = None
    region: str | None = None
    store_host: str | None = None
    body_length: int | None = None
    message_type: str | None = None
    offset_msg_id: str | None = None
    retry_times: int | None = None
    request_id: str | None = None
    transaction_id: str | None = None
    from_check: bool | None = None


class _Fields:
    """The fields of one record; an index past the end is an absent field."""

    def __init__(self, fields: list[str]) -> None:
        self._fields = fields

    def text(self, at: int) -> str | None:
        found = self._fields[at] if at < len(self._fields) else ""
        return None if found in ("", "null") else found

    def number(self, at: int) -> int | None:
        found = self.text(at)
        return None if found is None else int(found)

    def name(self, at: int, names: tuple[str, ...]) -> str | None:
        found = self.number(at)
        return None if found is None else names[found] if 0 <= found < len(names) else str(found)

    def is_true(self, at: int) -> bool:
        return (self.text(at) or "").lower() == "true"


def trace_steps(bodies: Iterable[tuple[bytes, str | None]]) -> list[TraceStep]:
    """The steps in the bodies of trace messages, oldest first; with each body the host that sent it."""
    steps: list[TraceStep] = []
    begun: dict[tuple[str | None, str], TraceStep] = {}
    ended: dict[tuple[str | None, str], TraceStep] = {}
    for body, host in bodies:
        for kind, fields in _records(body):
            step = _read(kind, fields, host)
            if step is None or not step.msg_id:
                continue
            if kind == "SubBefore":
                begun[step.request_id, step.msg_id] = step
            elif kind == "SubAfter":
                ended[step.request_id, step.msg_id] = step
            else:
                steps.append(step)
    for key in {**begun, **ended}:
        steps.append(_delivery(begun.get(key), ended.get(key)))
    return sorted(steps, key=lambda step: (step.timestamp or 0, step.what, step.group, step.request_id or ""))


def _records(body: bytes) -> Iterable[tuple[str, _Fields]]:
    for record in body.decode("utf-8", "replace").split(RECORD_END):
        fields = record.split(FIELD_END)
        yield fields[0], _Fields(fields)


def _read(kind: str, fields: _Fields, host: str | None) -> TraceStep | None:
    reader = _READERS.get(kind)
    try:
        return None if reader is None else reader(fields, host)
    except ValueError:
        return None


def _published(fields: _Fields, host: str | None) -> TraceStep:
    return TraceStep(
        PUBLISHED,
        fields.number(1),
        fields.text(3) or "",
        fields.text(5) or "",
        "success" if fields.text(13) is None or fields.is_true(13) else "failed",
        topic=fields.text(4),
        tags=fields.text(6),
        keys=fields.text(7),
        cost_ms=fields.number(10),
        client_host=fields.text(14) or host,
        region=fields.text(2),
        store_host=fields.text(8),
        body_length=fields.number(9),
        message_type=fields.name(11, MESSAGE_TYPES),
        offset_msg_id=fields.text(12),
    )


def _delivery_begun(fields: _Fields, host: str | None) -> TraceStep:
    return TraceStep(
        DELIVERED,
        fields.number(1),
        fields.text(3) or "",
        fields.text(5) or "",
        "unknown",
        keys=fields.text(7),
        client_host=fields.text(8) or host,
        region=fields.text(2),
        retry_times=fields.number(6),
        request_id=fields.text(4),
    )


def _delivery_ended(fields: _Fields, host: str | None) -> TraceStep:
    result = fields.name(6, CONSUME_RESULTS)
    return TraceStep(
        DELIVERED,
        fields.number(7),
        fields.text(8) or "",
        fields.text(2) or "",
        "success" if fields.is_true(4) else result if result not in (None, "success") else "failed",
        keys=fields.text(5),
        cost_ms=fields.number(3),
        client_host=host,
        request_id=fields.text(1),
    )


def _delivery(begun: TraceStep | None, ended: TraceStep | None) -> TraceStep:
    """Both halves as one: when it began, and how it ended."""
    if begun is None or ended is None:
        whole = begun or ended
        assert whole is not None
        return whole
    return msgspec.structs.replace(begun, status=ended.status, cost_ms=ended.cost_ms)


def _transaction_ended(fields: _Fields, host: str | None) -> TraceStep:
    return TraceStep(
        ENDED,
        fields.number(1),
        fields.text(3) or "",
        fields.text(5) or "",
        (fields.text(11) or "unknown").lower(),
        topic=fields.text(4),
        tags=fields.text(6),
        keys=fields.text(7),
        client_host=host,
        region=fields.text(2),
        store_host=fields.text(8),
        message_type=fields.name(9, MESSAGE_TYPES),
        transaction_id=fields.text(10),
        from_check=fields.is_true(12),
    )


_READERS: dict[str, Callable[[_Fields, str | None], TraceStep]] = {
    "Pub": _published,
    "SubBefore": _delivery_begun,
    "SubAfter": _delivery_ended,
    "EndTransaction": _transaction_ended,
}
