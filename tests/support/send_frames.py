"""Frames of sends as clients write them, and as none should: strategies for tests of what reads them.

A frame is made of header fields and a way to write them: JSON with any spacing, numbers with or without quotes, escapes
where none are needed; or binary. `broken` cuts, flips and lengthens what was made.
"""

import json
import struct
from typing import Any

from hypothesis import strategies as st

LONG = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
}
JAVA = {
    "a": "producerGroup",
    "b": "T",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "UNIQ_KEY\x017F000001\x02WAIT\x01true\x02TAGS\x01paid",
    "j": "0",
    "k": "false",
    "m": "false",
}


def frame(header: bytes, body: bytes = b"", kind: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def json_frame(fields: dict[str, Any], body: bytes = b"", opaque: int = 1, code: int = 310, **more: Any) -> bytes:
    """As a Java client writes it."""
    top = {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": opaque}
    whole = top | {"serializeTypeCurrentRPC": "JSON", "version": 409} | more
    return frame(json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass"), body)


def binary_frame(
    fields: dict[str, str], body: bytes = b"", opaque: int = 1, code: int = 310, flag: int = 0, remark: bytes = b""
) -> bytes:
    values = b""
    for name, value in fields.items():
        text = value.encode("utf-8", "surrogatepass")
        values += struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(text)) + text
    fixed = struct.pack(">hBhii", code, 0, 409, opaque, flag)
    return frame(fixed + struct.pack(">i", len(remark)) + remark + struct.pack(">i", len(values)) + values, body, 1)


_TEXTS = st.sampled_from(
    [
        "",
        "x",
        "paid",
        "true",
        "false",
        "1",
        "0",
        "3",
        "-1",
        "订单",
        "a b",
        "é",
        "\U0001f600",
        "\x00",
        "\n",
        '"',
        "\\",
        "/",
    ]
)
_NAMES = st.sampled_from(
    [
        "TAGS",
        "KEYS",
        "WAIT",
        "UNIQ_KEY",
        "DELAY",
        "MYDELAY",
        "TRAN_MSG",
        "PGROUP",
        "REAL_TOPIC",
        "CLUSTER",
        "INNER_MULTI_DISPATCH",
        "region",
        "n1",
        "n2",
        "n3",
        "n4",
        "n5",
        "n6",
        "Aa",
        "BB",
        "键",
        "",
    ]
)
# Of half messages, mostly such that nothing is rare about them.
_HALF_PROPERTIES = st.lists(
    st.tuples(
        st.sampled_from(["TAGS", "WAIT", "n1", "n2", "Aa", "BB", "键", "REAL_QID"]), st.sampled_from(["true", "v"])
    ),
    max_size=8,
    unique_by=lambda pair: pair[0],
).flatmap(
    lambda pairs: st.permutations([*pairs, ("TRAN_MSG", "true"), ("PGROUP", "pg")]).map(
        lambda order: "\x02".join(f"{name}\x01{value}" for name, value in order)
    )
)
PROPERTY_STRINGS = st.one_of(
    _HALF_PROPERTIES,
    st.lists(st.tuples(_NAMES, _TEXTS), max_size=5).map(
        lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs)
    ),
    st.lists(
        st.tuples(_NAMES.filter(bool), st.sampled_from(["v", "true", "订单"])), max_size=13, unique_by=lambda p: p[0]
    ).map(lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs)),
    st.text(st.sampled_from('ab\x01\x02\x00é\\"'), max_size=8),
)
_NUMBERS = st.one_of(
    st.sampled_from(["0", "1", "3", "4", "7", "-1", "-0", "007", "+1", " 1", "1.0", "1e2", "", "x", "true"]),
    st.sampled_from(["2147483647", "2147483648", "-2147483648", "-2147483649", "9" * 18, "9" * 19, "9" * 30]),
)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "a": st.one_of(st.just("group"), _TEXTS),
    "b": st.sampled_from(["T", "T", "T", "Other", "Unknown", "", "T ", "é", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", 7]),
    "c": st.sampled_from(["TBW102", "", "none"]),
    "i": PROPERTY_STRINGS,
    "k": st.sampled_from(["true", "false", "TRUE", "0", "1", "yes", True, False, 1, 0, None]),
    "m": st.sampled_from(["false", "false", "true", "0", "1", False, True, None]),
    "f": st.sampled_from(["0", "0", "1", "4", "8", "12", "16", "769", 0, 1]),
}
for _name in "deghjl":
    _VALUES[_name] = st.one_of(st.just(JAVA.get(_name, "3")), _NUMBERS, st.sampled_from([0, 1, 3, 2**31, 1.0, None]))


@st.composite
def field_values(draw: st.DrawFn) -> dict[str, Any]:
    """The fields of a send: those of a Java client with a few changes."""
    fields: dict[str, Any] = dict(JAVA)
    for name in draw(st.lists(st.sampled_from("abcdefghijklm"), max_size=3)):
        fields[name] = draw(_VALUES[name])
    for name in draw(st.lists(st.sampled_from("abcdefghijm"), max_size=1)) if draw(st.booleans()) else []:
        fields.pop(name, None)
    if draw(st.integers(0, 4)) == 0:
        fields[draw(st.sampled_from(["n", "AccessKey", "z", "é", "Signature"]))] = draw(
            st.sampled_from(["", "x", 3, True, None, [1], "é", "\n"])
        )
    return fields


@st.composite
def send_frames(draw: st.DrawFn) -> bytes:
    """One frame, usually a good one."""
    fields, body = draw(field_values()), draw(st.binary(max_size=20))
    code = draw(st.sampled_from([310, 310, 310, 10, 11, 320]))
    opaque = draw(st.sampled_from([0, 1, 77, -5, 2**31 - 1, -(2**31)]))
    if code == 10:
        fields = {LONG.get(name, name): value for name, value in fields.items()}
    if draw(st.integers(0, 3)) == 0:
        texts = {name: value if isinstance(value, str) else str(value) for name, value in fields.items()}
        made = binary_frame(
            texts, body, opaque, code, draw(st.sampled_from([0, 0, 0, 2])), draw(st.sampled_from([b"", b"", b"x"]))
        )
    else:
        made = draw(_json_frames(fields, body, opaque, code))
    return draw(_broken(made)) if draw(st.integers(0, 9)) == 0 else made


@st.composite
def _json_frames(draw: st.DrawFn, fields: dict[str, Any], body: bytes, opaque: int, code: int) -> bytes:
    top: dict[str, Any] = {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": opaque}
    for name, value in draw(
        st.lists(
            st.sampled_from(
                [
                    ("version", 409),
                    ("remark", None),
                    ("remark", "why"),
                    ("flag", 2),
                    ("flag", "0"),
                    ("language", 3),
                    ("language", "GO"),
                    ("code", str(code)),
                    ("opaque", str(opaque)),
                    ("extFields", None),
                    ("more", 1),
                    ("serializeTypeCurrentRPC", "JSON"),
                    ("version", 1.5),
                ]
            ),
            max_size=2,
        )
    ):
        top[name] = value
    order = draw(st.permutations(list(top))) if draw(st.integers(0, 3)) == 0 else list(top)
    comma, colon = draw(st.sampled_from([(",", ":"), (",", ":"), (", ", ": "), (" ,\n", "\t: ")]))
    text = json.dumps(
        {name: top[name] for name in order}, separators=(comma, colon), ensure_ascii=draw(st.booleans())
    ).encode("utf-8", "surrogatepass")
    text += draw(st.sampled_from([b"", b"", b"\n", b" ", b"x", b"}"]))
    if draw(st.integers(0, 9)) == 0:
        text = text.replace(b'"code"', b'"code":310,"code"', 1)
    return frame(text, body)


@st.composite
def _broken(draw: st.DrawFn, whole: bytes) -> bytes:
    """A frame with something wrong: a byte, a length, or its end missing."""
    match draw(st.integers(0, 3)):
        case 0:
            at = draw(st.integers(0, len(whole) - 1))
            return whole[:at] + bytes((draw(st.integers(0, 255)),)) + whole[at + 1 :]
        case 1:
            length = draw(st.sampled_from([-1, 0, 3, 4, 5, len(whole) - 5, len(whole), 1 << 24, 2**31 - 1]))
            return struct.pack(">i", length) + whole[4:]
        case 2:
            header = draw(st.sampled_from([0, 1, len(whole) - 8, len(whole) - 7, 0xFF_FFFF, 2 << 24]))
            return whole[:4] + struct.pack(">I", header) + whole[8:]
        case _:
            return whole[: draw(st.integers(0, len(whole) - 1))]
