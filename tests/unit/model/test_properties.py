"""The property string: what is written reads back, in the order a Java HashMap would give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.errors import PropertyInvalid
from embermq.model.message import Message, join_keys
from embermq.model.properties import (
    decode_properties,
    encode_properties,
    hash_map_order,
    split_keys,
    tag_texts,
)

TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(st.dictionaries(TEXT, TEXT, max_size=40))
def test_what_is_encoded_decodes_to_the_same(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@pytest.mark.parametrize(
    ("given_order", "map_order"),
    [
        (("TAGS", "DELAY", "REAL_TOPIC", "REAL_QID"), ("REAL_TOPIC", "DELAY", "TAGS", "REAL_QID")),
        (("TAGS", "WAIT"), ("WAIT", "TAGS")),
        (("KEYS", "UNIQ_KEY", "CLUSTER", "WAIT", "TAGS"), ("KEYS", "UNIQ_KEY", "CLUSTER", "WAIT", "TAGS")),
    ],
)
def test_order_is_that_of_a_java_hash_map(given_order: tuple[str, ...], map_order: tuple[str, ...]) -> None:
    assert hash_map_order(given_order) == map_order


def test_decoding_drops_nameless_and_empty_pairs_and_lets_the_last_win() -> None:
    assert decode_properties(b"a\x011\x02\x01x\x02b\x01\x02nothing\x02a\x012\x02") == {"a": "2"}


@pytest.mark.parametrize("properties", [{"": "x"}, {"a": ""}, {"a\x01b": "c"}, {"a": "b\x02"}, {"a": "\ud800"}])
def test_a_pair_that_would_not_read_back_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(PropertyInvalid):
        encode_properties(properties)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.lists(TEXT, max_size=3))
def test_the_short_way_for_tags_and_keys_gives_what_the_long_way_gives(tags: str, keys: list[str]) -> None:
    keys = [key.replace(" ", "_") for key in keys]
    message = Message("t", tags=tags, keys=keys)
    try:
        expected = encode_properties(message.all_properties())
    except PropertyInvalid:
        with pytest.raises(PropertyInvalid):
            message.property_bytes()
    else:
        assert message.property_bytes() == expected


def test_keys_are_joined_by_spaces_and_refuse_spaces_inside() -> None:
    assert join_keys(["a", "b"]) == "a b"
    assert split_keys("a  b ") == ["a", "b"]
    for bad in (["a b"], ["", "x"], [""]):
        with pytest.raises(PropertyInvalid, match="key"):
            join_keys(bad)


def test_a_property_given_twice_with_two_values_is_refused() -> None:
    with pytest.raises(PropertyInvalid, match="TAGS is given twice"):
        Message("t", tags="a", properties={"TAGS": "b"}).property_bytes()
    assert Message("t", tags="a", properties={"TAGS": "a"}).property_bytes() == b"TAGS\x01a"


@pytest.mark.parametrize(
    ("expression", "tags"),
    [("*", None), ("", None), ("a", {"a"}), ("a || b", {"a", "b"}), (" a||  ||b ", {"a", "b"})],
)
def test_subscriptions(expression: str, tags: set[str] | None) -> None:
    assert tag_texts(expression) == tags
