"""Java's hash codes, on values computed by Java."""

import pytest

from embermq.format.java import index_key_hash, string_hash, string_hash_utf8, wrap_i32, wrap_i64

HASHES = [
    ("TagA", 2598919),
    ("TagB", 2598920),
    ("", 0),
    ("*", 42),
    ("Tag-\u4e2d", 80585882),
    ("\U0001f600", 1772899),
    ("order-created", -392709271),
    ("TopicTest#ogaQmc", -2147483648),
]


@pytest.mark.parametrize(("text", "code"), HASHES)
def test_string_hash(text: str, code: int) -> None:
    assert string_hash(text) == code
    assert string_hash_utf8(text.encode()) == code


def test_lone_surrogates_and_bad_utf8_have_a_hash() -> None:
    assert string_hash("\ud83d") == 0xD83D
    assert string_hash_utf8(b"\xff") == 0xFFFD


def test_index_key_hash_is_never_negative() -> None:
    assert index_key_hash("TopicTest", "k1") == 2746024
    assert index_key_hash("TopicTest", "k2") == 2746025
    assert index_key_hash("TopicTest", "0A0000010001639CFE2B18B4AAC200A1") == 1325187869
    assert index_key_hash("TopicTest", "ogaQmc") == 0


def test_wrapping() -> None:
    assert wrap_i32(1 << 31) == -(1 << 31)
    assert wrap_i64((1 << 63) + 5) == -(1 << 63) + 5
    assert wrap_i64(-5) == -5
