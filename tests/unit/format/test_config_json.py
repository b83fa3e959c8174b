"""RocketMQ's JSON dialect."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.format.config_json import format_config, parse_config, with_integer_keys

DELAY_OFFSETS = '{\n\t"offsetTable":{1:10,2:4,3:4\n\t}\n}'
CONSUMER_OFFSETS = '{\n\t"offsetTable":{\n\t\t"TopicTest@group":{0:250,1:249\n\t\t},\n\t\t"{1:2@\\"g":{}\n\t}\n}'
FILTERS = (
    '{\n\t"filterDataByTopic":{\n\t\t"T":{\n\t\t\t"bitPos":[1,110,107],\n\t\t\t"dead":true,\n'
    '\t\t\t"expression":"a > 5",\n\t\t\t"none":null\n\t\t}\n\t}\n}'
)


@pytest.mark.parametrize("text", [DELAY_OFFSETS, CONSUMER_OFFSETS, FILTERS, "{}", '{\n\t"offsetTable":{}\n}'])
def test_reading_and_writing_gives_the_same_text(text: str) -> None:
    assert format_config(parse_config(text)) == text


def test_integer_keys_with_and_without_quotes() -> None:
    assert parse_config(DELAY_OFFSETS) == {"offsetTable": {1: 10, 2: 4, 3: 4}}
    assert with_integer_keys(parse_config('{"1":10, 2 : 4,\n -3:5}')) == {1: 10, 2: 4, -3: 5}
    with pytest.raises(ValueError):
        with_integer_keys({"x": 1})


def test_braces_and_numbers_inside_strings_are_left_alone() -> None:
    text = '{"a":"{1:2,3:4}\\"{5:6","b":[1,2]}'
    assert parse_config(text) == {"a": '{1:2,3:4}"{5:6', "b": [1, 2]}


@pytest.mark.parametrize("text", ["", "{", "{1:}", '{"a":1', "{a:1}", "\0\0\0"])
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError):
        parse_config(text)


NAMES = st.text(st.characters(exclude_characters="\ufdd0", exclude_categories=["Cs"]), max_size=8)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(1 << 63), 1 << 63), NAMES)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(NAMES, inner, max_size=3),
        st.dictionaries(st.integers(-100, 100), inner, max_size=3),
    ),
    max_leaves=10,
)


@given(VALUES)
def test_round_trip(value: Any) -> None:
    assert parse_config(format_config(value)) == value
