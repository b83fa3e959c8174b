"""A producer of transactions for tests: sends half messages, ends them, and notes what it is asked."""

from pathlib import Path
from typing import Any

from embermq.format.frame import Frame, decode
from embermq.format.frame_message import as_message
from embermq.model.message import StoredMessage
from embermq.model.properties import HALF_TOPIC, OP_TOPIC
from embermq.remoting import Call, Command, NoHeader, Reply, RequestCode, RequestTable, Row
from tests.support.brokers import RunningBroker

GROUP, TOPIC = "pg", "orders"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


class TransactionProducer:
    """Half messages and their ends, through the client of a running broker."""

    def __init__(self) -> None:
        self.asked: list[Command] = []
        self.table = RequestTable([Row(RequestCode.CHECK_TRANSACTION_STATE, NoHeader, self._take)])

    def _take(self, call: Call[NoHeader]) -> Reply | None:
        self.asked.append(call.request)
        return None

    async def prepare(self, broker: RunningBroker, body: bytes = b"pay", more: str = "", **fields: Any) -> Command:
        properties = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01U{body.decode()}{more}"
        return await broker.send(TOPIC, body, properties, **({"f": 4, "e": 2} | fields))

    async def end(self, broker: RunningBroker, half: Command, decision: int, **fields: Any) -> Command:
        return await broker.call(RequestCode.END_TRANSACTION, end_fields(half, decision) | fields)


def end_fields(half: Command, decision: int) -> dict[str, Any]:
    assert half.ext is not None
    assert half.code == 0, half.remark
    return {
        "producerGroup": GROUP,
        "tranStateTableOffset": half.ext["queueOffset"],
        "commitLogOffset": int(half.ext["msgId"][16:], 16),
        "commitOrRollback": decision,
        "fromTransactionCheck": False,
        "msgId": "U",
    }


async def visible(broker: RunningBroker, queue_id: int = 2) -> list[StoredMessage]:
    """What consumers see."""
    return await broker.stored(TOPIC, queue_id)


async def halves(broker: RunningBroker) -> list[StoredMessage]:
    return await broker.stored(HALF_TOPIC)


async def ops(broker: RunningBroker) -> list[bytes]:
    return [op.body for op in await broker.stored(OP_TOPIC)]


def stored_of(record: bytes) -> StoredMessage:
    """The message of one record."""
    frame = decode(record, 0, len(record), physical_offset=None, check_crc=True)
    assert isinstance(frame, Frame), frame
    return as_message(frame)


def config_file(path: Path, name: str) -> Path:
    return path / "store" / "config" / name
