"""What a broker sent, made comparable: values of one run (addresses, ports, message ids, times) become words.

Maps have no order, and neither have Java's sets, which are lists in JSON; records of the log are compared byte by byte
but for the time they were stored at and the ports in them.
"""

import json
import re
import struct
import time
from collections.abc import Mapping
from typing import Any

from embermq.remoting import parse_json
from tests.interop.recorder.wire import Frame, Player, Step

RECORDS = frozenset((11, 12, 33, 361))  # requests whose answers carry records
PROPERTIES = frozenset((26,))
VIEW, CONSUME, RESET = 33, 309, 220
HOUR_MS = 3_600_000
_TIME = re.compile(r"(?<![0-9A-Fa-f])1[0-9]{12}(?![0-9A-Fa-f])")
_ADVICE = re.compile(r",?\s*See https?://\S+ for further details\.?.*", re.DOTALL)
# Of a record: where the born host's port, the store time and the store host's port are.
_BORN_AT, _BORN_PORT_AT, _STORED_AT, _STORE_PORT_AT = 40, 52, 56, 68


class Words:
    """The values of one run, and the words they are replaced with."""

    def __init__(self, port: int, client_ports: Mapping[str, int]) -> None:
        self._texts = {f"127.0.0.1:{port}": "BROKER", f"7F000001{port:08X}": "7F000001-BROKER-"}
        self._texts |= {f"127.0.0.1:{one}": f"CLIENT-{name}" for name, one in client_ports.items()}

    def text(self, text: str) -> str:
        for value, word in self._texts.items():
            text = text.replace(value, word)
        return _TIME.sub(lambda found: "TIME" if is_now(int(found[0])) else found[0], text)

    def body(self, data: bytes) -> bytes:
        for value, word in self._texts.items():
            if len(value) == len(word):
                data = data.replace(value.encode(), word.encode())
        return data


def is_now(number: int) -> bool:
    return abs(number - time.time() * 1000) < HOUR_MS


def comparable(step: Step, answer: Frame | None, player: Player, port: int) -> dict[str, Any]:
    """The parts of an answer by name."""
    if answer is None:
        return {"answered": False}
    words = Words(port, player.client_ports)
    header = answer.header
    remark = header.get("remark")
    return {
        "answered": True,
        "code": header["code"],
        "remark": None if remark is None else _ADVICE.sub("", words.text(remark)).strip(),
        "ext": None if header.get("extFields") is None else plain(header["extFields"], words),
        "flag": header["flag"],
        "binary": answer.is_binary,
        "body": body_of(step.code, answer.body, words),
    }


def pushes(player: Player, port: int) -> dict[str, list[Any]]:
    """What the broker asked its clients, by connection."""
    words = Words(port, player.client_ports)
    return {
        name: [
            (
                one.header["code"],
                one.header["flag"],
                plain(one.header.get("extFields") or {}, words),
                _pushed_body(one, words),
            )
            for one in frames
        ]
        for name, frames in player.pushed.items()
    }


def _pushed_body(frame: Frame, words: Words) -> Any:
    """Offsets for a member that speaks C++ are a list, for every other one a map: the same here."""
    code = frame.header["code"]
    body = body_of(VIEW if code == CONSUME else code, frame.body, words)
    if code == RESET and isinstance(body["offsetTable"], list):
        listed = [({k: v for k, v in one.items() if k != "offset"}, one["offset"]) for one in body["offsetTable"]]
        return {"offsetTable": {json.dumps(key, sort_keys=True, separators=(",", ":")): at for key, at in listed}}
    return body


def body_of(code: int, body: bytes, words: Words) -> Any:
    if not body:
        return None
    if code in RECORDS:
        return records(body, words)
    if code in PROPERTIES:
        return dict(line.partition("=")[::2] for line in body.decode().splitlines())
    try:
        return plain(parse_json(body), words)
    except ValueError:
        return words.text(body.decode("latin-1"))


def records(data: bytes, words: Words) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        assert size > 0, "no record"
        record = bytearray(data[at : at + size])
        (born_ms,) = struct.unpack_from(">q", record, _BORN_AT)
        own = ((_BORN_AT, 8),) if is_now(born_ms) else ()  # Made by the broker itself.
        for place, length in (*own, (_BORN_PORT_AT, 4), (_STORED_AT, 8), (_STORE_PORT_AT, 4)):
            record[place : place + length] = bytes(length)
        found.append(words.body(bytes(record)))
        at += size
    return found


def plain(value: Any, words: Words) -> Any:
    if isinstance(value, dict):
        named = {words.text(str(key)): plain(one, words) for key, one in value.items()}
        if named.keys() == {"counter", "timestamp"}:  # The version of a table: how often it was changed.
            return "VERSION"
        if isinstance(named.get("properties"), str):  # Of a message: pairs, in no order.
            named["properties"] = sorted(named["properties"].split("\x02"))
        return named
    if isinstance(value, list):
        return sorted((plain(one, words) for one in value), key=repr)
    if isinstance(value, str):
        return words.text(value)
    if isinstance(value, int) and not isinstance(value, bool) and is_now(value):
        return "TIME"
    return value
