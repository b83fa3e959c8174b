"""File names that are numbers."""

import pytest

from embermq.format.names import index_name, parse_index_name, parse_segment_name, segment_name


def test_segment_names() -> None:
    assert segment_name(0) == "00000000000000000000"
    assert segment_name(1073741824) == "00000000001073741824"
    assert parse_segment_name("00000000001073741824") == 1073741824


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0",
        "0000000000107374182x",
        "0" * 21,
        "+0000000000000000001",
        "9" * 20,
        "\u0660" * 20,
        "0" * 20 + "\n",
    ],
)
def test_foreign_segment_names(name: str) -> None:
    assert parse_segment_name(name) is None


def test_index_names() -> None:
    assert index_name("20231114221320123") == "20231114221320123"
    assert parse_index_name("20231114221320123") == "20231114221320123"
    assert parse_index_name("00000000000000000000") is None
    with pytest.raises(AssertionError):
        index_name("2023")
