"""Answers in Java's JSON as values."""

import msgspec
import pytest

from embermq.client.admin.bodies import by_queue, convert, document, names, table, version_name
from embermq.client.message_queue import MessageQueue


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (409, "V4_9_8"),
        (401, "V4_9_4"),
        (213, "V4_0_0"),
        (232, "V4_1_0_SNAPSHOT"),
        (408, "V4_9_8_SNAPSHOT"),
        (413, "V5_0_0"),
        (479, "V5_3_3"),
        (121, "121"),
        (0, "0"),
    ],
)
def test_versions_have_rocketmqs_names(number: int, name: str) -> None:
    assert version_name(number) == name


def test_queues_as_keys_come_in_order_whether_bare_or_quoted() -> None:
    bare = (
        b'{"t":{{"brokerName":"b","queueId":1,"topic":"T"}:{"n":2},{"brokerName":"a","queueId":3,"topic":"T"}:{"n":1}}}'
    )
    quoted = b'{"t":{"{\\"brokerName\\":\\"a\\",\\"queueId\\":3,\\"topic\\":\\"T\\"}":{"n":1}}}'
    assert by_queue(document(bare), "t") == [
        (MessageQueue("T", "a", 3), {"n": 1}),
        (MessageQueue("T", "b", 1), {"n": 2}),
    ]
    assert by_queue(document(quoted), "t") == [(MessageQueue("T", "a", 3), {"n": 1})]


def test_what_is_absent_is_empty() -> None:
    assert document(b"") == {}
    assert table({}, "t") == {}
    assert table({"t": None}, "t") == {}
    assert names({}, "n") == []
    assert names({"n": ["b", "a"]}, "n") == ["a", "b"]


class Numbers(msgspec.Struct):
    n: int = 0


def test_numbers_may_be_texts() -> None:
    assert convert({"n": "17"}, Numbers).n == 17


@pytest.mark.parametrize("body", [b"[]", b"{", b"12", b"\xff"])
def test_a_body_that_is_no_object_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError):
        document(body)


@pytest.mark.parametrize("value", [{"t": 1}, {"t": {"nothing": 1}}, {"t": {'{"topic":"T"}': 1}}])
def test_a_table_that_is_none_is_a_value_error(value: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        by_queue(value, "t")


def test_a_member_of_another_type_names_it() -> None:
    with pytest.raises(ValueError, match=r"Numbers: .*\$\.n"):
        convert({"n": "x"}, Numbers)
