"""Java's JSON: integer keys, object keys, texts that strict readers refuse."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.remoting import key_object, parse_json, without_nulls, write_json, write_object_keyed
from embermq.remoting.java_json import EXTENDED_BYTES_MAX

QUEUE = {"brokerName": "b", "queueId": 0, "topic": "T"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{0:"1.2.3.4:10911",-1 : "x"}', {"0": "1.2.3.4:10911", "-1": "x"}),
        (b'{"0":"a"}', {"0": "a"}),
        (b'{"brokerAddrs":{0:"a",1:"b"},"x":[{2:3}]}', {"brokerAddrs": {"0": "a", "1": "b"}, "x": [{"2": 3}]}),
        (b' { name : "x" , } \n', {"name": "x"}),
        (b'{"t":"a\tb","u":1.5,"v":null,1:true}', {"t": "a\tb", "u": 1.5, "v": None, "1": True}),
        (b"{1:[],2:{}}", {"1": [], "2": {}}),
    ],
)
def test_texts_of_java(text: bytes, value: Any) -> None:
    assert parse_json(text) == value


@pytest.mark.parametrize(
    "text",
    [
        b'{{"brokerName":"b","queueId":0,"topic":"T"}:{"maxOffset":5}}',
        b'{\n{"topic":"T",\n"queueId":0, "brokerName":"b"}\n:{"maxOffset":5}\n}',
        b'{"{\\"brokerName\\":\\"b\\",\\"queueId\\":0,\\"topic\\":\\"T\\"}":{"maxOffset":5}}',
    ],
)
def test_objects_as_keys(text: bytes) -> None:
    ((key, value),) = parse_json(text).items()
    assert key_object(key) == QUEUE
    assert value == {"maxOffset": 5}


@pytest.mark.parametrize(
    "text", [b"", b"{", b"{1", b"{1:", b"{1:2", b"[1", b"{1:2} x", b"{1;2}", b"[1;2]", b"{:1}", b"\xff", b"{1:nul}"]
)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)


def test_depth_is_bounded() -> None:
    with pytest.raises(ValueError, match=r"deep|recursion"):
        parse_json(b"{1:" * 100_000, 1 << 20)


def test_what_the_slow_reader_reads_is_bounded() -> None:
    body = b"{1:[" + b"1," * EXTENDED_BYTES_MAX + b"1]}"
    with pytest.raises(ValueError, match="not JSON"):
        parse_json(body)
    assert len(parse_json(body, len(body))["1"]) == EXTENDED_BYTES_MAX + 1
    assert len(parse_json(body[3:-1])) == EXTENDED_BYTES_MAX + 1, "what is strict is read at any length"


@pytest.mark.parametrize("text", [b'{1:"\\ud800"}', b'{"\\udc00":1,}', b"{1:NaN}", b"{1:-Infinity}", b"{1:1e999}"])
def test_what_could_not_be_written_again_is_not_read(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)


def test_a_map_with_object_keys_is_written_in_javas_form() -> None:
    body = write_json({"offsetTable": write_object_keyed([(QUEUE, {"offset": 1}), (QUEUE | {"queueId": 1}, 2)])})
    assert body == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"offset":1},'
        b'{"brokerName":"b","queueId":1,"topic":"T"}:2}}'
    )
    assert [key_object(key)["queueId"] for key in parse_json(body)["offsetTable"]] == [0, 1]


def test_integer_keys_are_written_quoted_and_nulls_left_out() -> None:
    assert write_json({0: "a"}) == b'{"0":"a"}'
    assert without_nulls({"a": None, "b": 0}) == {"b": 0}


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('abc:{}"\\\t,', max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_what_is_written_is_read(value: Any) -> None:
    assert parse_json(write_json(value)) == value
    assert parse_json(b"{1:" + write_json(value) + b"}") == {"1": value}


@given(st.binary(max_size=40) | st.text('{}[]:,"01ab\\ \n', max_size=40).map(str.encode))
def test_any_text_is_a_value_or_refused(text: bytes) -> None:
    with suppress(ValueError):
        assert write_json(parse_json(text))
