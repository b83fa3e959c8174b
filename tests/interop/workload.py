"""Messages of every kind, the same for both sides: as values of ours, and as puts for RocketMQ.

Deterministic from a seed. Hosts and born times are always given, so that the same message makes the same
bytes wherever it is stored; only the store time is left to a clock.
"""

import hashlib
import random
from collections.abc import Mapping

from embermq.model import flags
from embermq.model.hosts import Host
from embermq.model.message import BatchItem, Message, MessageBatch
from tests.interop.reference import Json

Put = Message | MessageBatch

BORN_MS = 1_700_000_000_000
# Parked for two hours: longer than any test, so no delivery disturbs a comparison.
LONGEST_DELAY_LEVEL = 18
TOPICS = ("orders", "payments-eu", "%RETRY%billing")
TAGS = (None, "paid", "sent", "zurückgestellt", "Aa", "BB")
SMALL_FILES: Mapping[str, str] = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "1000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}
DEFAULT_FILES: Mapping[str, str] = {}
SYNC_FLUSH: Mapping[str, str] = {**SMALL_FILES, "flushDiskType": "SYNC_FLUSH"}
V4_STORE = Host("192.168.7.9", 10911)
V6_STORE = Host("fd00::1:2", 10911)


def mixed(count: int, seed: int) -> list[Put]:
    """Plain, delayed, transactional, IPv6 and batched messages, bodies from none to a few KiB."""
    chance = random.Random(seed)
    names = [f"{seed}-{n}" for n in range(count)]
    return [_batch(chance, name) if n % 13 == 12 else _any(chance, name) for n, name in enumerate(names)]


def plain(count: int, seed: int) -> list[Message]:
    """Ordinary messages only."""
    chance = random.Random(seed)
    return [_message(chance, f"{seed}-{n}") for n in range(count)]


def _any(chance: random.Random, name: str) -> Message:
    kind = chance.randrange(12)
    if kind == 0:
        return _message(chance, name, delay_level=LONGEST_DELAY_LEVEL)
    if kind == 1:
        transaction = chance.choice((flags.PREPARED, flags.COMMIT, flags.ROLLBACK))
        return _message(chance, name, sys_flag=transaction)
    return _message(chance, name, v6=kind == 2)


def _message(chance: random.Random, name: str, *, delay_level: int = 0, sys_flag: int = 0, v6: bool = False) -> Message:
    number = int(name.rpartition("-")[2])
    born_address = f"2001:db8::{number % 9999:x}" if v6 else f"10.1.2.{number % 250}"
    return Message(
        chance.choice(TOPICS),
        _body(chance),
        tags=chance.choice(TAGS),
        keys=[f"k{chance.randrange(30)}", f"m-{name}"][: chance.randrange(3)],
        properties=_properties(chance, name),
        queue_id=chance.randrange(3),
        flag=chance.choice((0, 0, 7, -1)),
        delay_level=delay_level,
        sys_flag=sys_flag,
        born_timestamp=BORN_MS + number,
        born_host=Host(born_address, 40_000 + number % 999),
        store_host=V6_STORE if v6 and chance.random() < 0.5 else V4_STORE,
        reconsume_times=chance.choice((0, 0, 3)),
        prepared_transaction_offset=77 if sys_flag == flags.COMMIT else 0,
    )


def _batch(chance: random.Random, name: str) -> MessageBatch:
    header = _message(chance, name)
    # The header gives topic, queue, hosts and times; a key there would name every item alike.
    header = Message(
        header.topic,
        queue_id=header.queue_id,
        properties={"CLUSTER": "DefaultCluster"},
        born_timestamp=header.born_timestamp,
        born_host=header.born_host,
        store_host=header.store_host,
    )
    items = [
        BatchItem(_body(chance), {**_properties(chance, f"{name}.{n}"), "TAGS": "batched", "KEYS": f"b{n}"}, flag=n)
        for n in range(chance.randrange(1, 7))
    ]
    return MessageBatch(header, items)


def _body(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice((0, 1, 20, 100, 300, 1000, 3000)))


def _properties(chance: random.Random, name: str) -> dict[str, str]:
    names = [f"prop{chance.randrange(40)}" for _ in range(chance.randrange(4))]
    extra = {each: f"v{chance.randrange(999)}-значение" for each in names}
    return {"UNIQ_KEY": hashlib.md5(name.encode()).hexdigest().upper(), **extra}


def put_of(put: Put, clock_ms: int | None = None) -> Json:
    """The same put for RocketMQ; without a clock it stamps the wall time."""
    header = put.header if isinstance(put, MessageBatch) else put
    assert header.born_host is not None
    assert header.store_host is not None
    reported: Json = {
        "topic": header.topic,
        "queueId": header.queue_id,
        "properties": list(header.all_properties().items()),
        "body": {"hex": header.body.hex()},
        "flag": header.flag,
        "sysFlag": header.sys_flag,
        "bornTimestamp": header.born_timestamp,
        "bornHost": header.born_host,
        "storeHost": header.store_host,
        "reconsumeTimes": header.reconsume_times,
        "preparedTransactionOffset": header.prepared_transaction_offset,
        "clock": clock_ms,
    }
    if isinstance(put, MessageBatch):
        reported["items"] = [
            {"body": {"hex": item.body.hex()}, "flag": item.flag, "properties": list(item.properties.items())}
            for item in put.items
        ]
    return reported
