"""Single messages: by place (33), by key (12), given back for a retry (36), and the end of a transaction (37)."""

from enum import IntEnum, unique

import msgspec

from embermq.client.calls.caller import BrokerAddress, Caller
from embermq.client.calls.refusals import refused
from embermq.client.credentials import UNIQUE_KEY_QUERY
from embermq.model import flags
from embermq.remoting import Command, RequestCode, ResponseCode, encode_header

FOREVER_MS = (1 << 63) - 1
# 4.9.3. RocketMQ 5 wants `_UNIQUE_KEY_QUERY` signed in requests of later versions, 4.9 never does.
_VERSION_OF_QUERIES = 399


async def view(caller: Caller, to: BrokerAddress, physical_offset: int, seconds: float) -> bytes | None:
    """The stored record at a place of the broker's log; None if none begins there."""
    request = Command(RequestCode.VIEW_MESSAGE_BY_ID, ext={"offset": str(physical_offset)})
    answer = await caller.call(to, request, seconds)
    if answer.code == ResponseCode.SYSTEM_ERROR:
        return None  # RocketMQ's answer for a place without a record.
    if answer.code != ResponseCode.SUCCESS:
        raise refused(to, request.code, answer)
    return answer.body


async def query(
    caller: Caller,
    to: BrokerAddress,
    topic: str,
    key: str,
    seconds: float,
    *,
    max_count: int = 64,
    begin_ms: int = 0,
    end_ms: int = FOREVER_MS,
    is_unique_key: bool = False,
) -> bytes:
    """Stored records that the index has under a key; some may have another key with the same hash."""
    ext = {
        "topic": topic,
        "key": key,
        "maxNum": str(max_count),
        "beginTimestamp": str(begin_ms),
        "endTimestamp": str(end_ms),
        UNIQUE_KEY_QUERY: "true" if is_unique_key else "false",
    }
    request = Command(RequestCode.QUERY_MESSAGE, ext=ext, version=_VERSION_OF_QUERIES)
    answer = await caller.call(to, request, seconds, topic=topic)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return b""
    if answer.code != ResponseCode.SUCCESS:
        raise refused(to, request.code, answer, topic=topic)
    return answer.body


class SendBack(msgspec.Struct, frozen=True, rename="camel"):
    """A message that a consumer could not process. `delay_level`: 0 the broker decides, -1 dead letters."""

    offset: int  # physical
    group: str
    delay_level: int = 0
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: int | None = None


async def send_back(caller: Caller, to: BrokerAddress, back: SendBack, seconds: float) -> None:
    """Have a message delivered again later; RequestRefused, BrokerUnreachable."""
    request = Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext=encode_header(back))
    topic = back.origin_topic or ""
    answer = await caller.call(to, request, seconds, topic=topic, group=back.group)
    if answer.code != ResponseCode.SUCCESS:
        raise refused(to, request.code, answer, topic=topic, group=back.group)


@unique
class Decision(IntEnum):
    """What becomes of a half message. UNKNOWN: the broker asks again later."""

    UNKNOWN = 0
    COMMIT = flags.COMMIT
    ROLLBACK = flags.ROLLBACK


class EndTransaction(msgspec.Struct, frozen=True, rename="camel"):
    """The decision on a half message, which is named by its two offsets."""

    producer_group: str
    tran_state_table_offset: int  # queue offset in the half topic
    commit_log_offset: int
    commit_or_rollback: int
    from_transaction_check: bool = False
    msg_id: str = ""
    transaction_id: str | None = None


async def end_transaction(
    caller: Caller, to: BrokerAddress, ended: EndTransaction, seconds: float | None, topic: str = ""
) -> None:
    """Commit or roll back. Without `seconds` no answer is waited for; for UNKNOWN there is never one."""
    request = Command(RequestCode.END_TRANSACTION, ext=encode_header(ended))
    group = ended.producer_group
    if seconds is None or ended.commit_or_rollback == Decision.UNKNOWN:
        await caller.tell(to, request, topic=topic, group=group)
        return
    answer = await caller.call(to, request, seconds, topic=topic, group=group)
    if answer.code != ResponseCode.SUCCESS:
        raise refused(to, request.code, answer, topic=topic, group=group)
