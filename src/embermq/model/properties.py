"""Message properties: names and values in one byte string.

    name 0x01 value 0x02 name 0x01 value ...      (no 0x02 after the last pair; readers accept one)

RocketMQ keeps properties in a Java HashMap and writes them in that map's order. The order means
nothing to a reader, but the same order gives the same bytes, so `encode_properties` repeats it.
A value or name holding 0x01 or 0x02, or an empty one, would read back as something else and is refused.
"""

from collections.abc import Mapping
from functools import lru_cache

from embermq.errors import PropertyInvalid

KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"
WAIT = "WAIT"
DELAY = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
# Arbitrary delivery time, by the names of RocketMQ 5: when, or after how long; which message not to deliver after all.
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_CANCEL = "TIMER_DEL_UNIQKEY"
TIMER_DUE_MS = "TIMER_OUT_MS"  # of a parked message: when it is due

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
# Topics of parked messages: the tag code of a queue entry is the time at which its message is due.
PARKING_TOPICS = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC))
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"

NAME_END = "\x01"
PAIR_END = "\x02"

_L, _W = b"LW"
_WAIT_TRUE = b"WAIT\x01true"
_TIMER_NAMES = tuple(f"{name}{NAME_END}".encode() for name in (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC))

_TABLE_MIN = 16
_CHAIN_MAX = 8
_TREE_TABLE_MIN = 64


def _spread_hash(name: str) -> int:
    """Java's String.hashCode over UTF-16 units, with the high half folded in as HashMap does."""
    value = 0
    units = name.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value ^ value >> 16


@lru_cache(maxsize=4096)
def hash_map_order(names: tuple[str, ...]) -> tuple[str, ...]:
    """`names`, put into a Java HashMap one after another, in the order the map gives them back."""
    size = _TABLE_MIN
    hashes: dict[str, int] = {}
    for name in names:
        value = hashes[name] = _spread_hash(name)
        in_bucket = sum(1 for other in hashes.values() if other & size - 1 == value & size - 1)
        if in_bucket > _CHAIN_MAX and size < _TREE_TABLE_MIN:
            size *= 2  # A long chain in a small table enlarges the table before its time.
        if len(hashes) * 4 > size * 3:
            size *= 2
    return tuple(sorted(hashes, key=lambda name: hashes[name] & size - 1))


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The property string of `properties`; PropertyInvalid when a pair would not read back as it is."""
    if not properties:
        return b""
    if None in properties.values():
        raise PropertyInvalid(f"properties {dict(properties)!r}: a value is None; leave the property out")
    names = tuple(properties)
    ordered = hash_map_order(names) if len(names) > 1 else names
    text = PAIR_END.join([f"{name}{NAME_END}{properties[name]}" for name in ordered])
    if text.count(NAME_END) != len(names) or text.count(PAIR_END) != len(names) - 1:
        _explain_bad_pair(properties)
    if f"{NAME_END}{PAIR_END}" in text or text[-1] == NAME_END or text[0] == NAME_END or "\x02\x01" in text:
        _explain_bad_pair(properties)
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise PropertyInvalid("a property holds a lone surrogate, which has no UTF-8 form") from None


def _explain_bad_pair(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        for what, part in (("name", name), ("value", str(value))):
            if not part:
                raise PropertyInvalid(f"property {name!r}: the {what} is empty, and would be lost on reading")
            if NAME_END in part or PAIR_END in part:
                raise PropertyInvalid(
                    f"property {name!r}: the {what} holds the control character 0x01 or 0x02,"
                    " which separates properties; encode it first"
                )
    raise AssertionError(f"unexplained bad properties {properties!r}")


def decode_properties(encoded: bytes | bytearray | memoryview) -> dict[str, str]:
    """All pairs; empty names and values are dropped and a later duplicate wins, as in RocketMQ."""
    found: dict[str, str] = {}
    for pair in str(encoded, "utf-8", "replace").split(PAIR_END):
        at = pair.find(NAME_END)
        if 0 < at < len(pair) - 1:
            found[pair[:at]] = pair[at + 1 :]
    return found


def has_meaning_to_store(encoded: bytes) -> bool:
    """May one of these properties change what the store does? WAIT=true, which every Java client sends, does not."""
    if _L not in encoded and _W not in encoded:
        return False  # Each of the names has one of these letters, and a letter is found fast.
    if b"DELAY\x01" in encoded or b"INNER_MULTI_DISPATCH\x01" in encoded:
        return True
    if b"TIMER_DEL" in encoded and any(name in encoded for name in _TIMER_NAMES):
        return True
    waits = encoded.count(b"WAIT\x01")
    return waits > 0 and waits != encoded.count(_WAIT_TRUE + b"\x02") + encoded.endswith(_WAIT_TRUE)


def property_value(encoded: bytes, name: bytes) -> bytes | None:
    """The value that decode_properties would give one name, without decoding the others."""
    start = name + b"\x01"
    at = encoded.rfind(start)
    while at >= 0:
        if at == 0 or encoded[at - 1] == 2:
            begin = at + len(start)
            end = encoded.find(b"\x02", begin)
            value = encoded[begin:] if end < 0 else encoded[begin:end]
            if value:
                return value
        at = encoded.rfind(start, 0, at + len(start) - 1)
    return None


def split_keys(keys: str | None) -> list[str]:
    """KEYS holds several keys, parted by single spaces."""
    return [key for key in keys.split(" ") if key] if keys else []


def tag_texts(expression: str) -> frozenset[str] | None:
    """The tags of a subscription `a || b`, or None for all (`*` or nothing)."""
    tags = frozenset(tag for part in expression.split("||") if (tag := part.strip()))
    return None if not tags or tags == {"*"} else tags
