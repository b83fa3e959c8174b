"""The syntax of broker.conf: what java.util.Properties reads is what we read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.settings.java_properties import PropertiesSyntaxError, PropertyEntry, parse_properties


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("a: b", "a", "b"),
        ("a b", "a", "b"),
        ("  a   =   b c  ", "a", "b c  "),  # Trailing blanks belong to the value.
        ("a\t:\tb", "a", "b"),
        ("a==b", "a", "=b"),  # Only one separator is skipped.
        ("a=b=c:d", "a", "b=c:d"),
        ("a=", "a", ""),
        ("a", "a", ""),
        ("=b", "", "b"),
        (r"a\=b=c", "a=b", "c"),
        (r"a\ b=c", "a b", "c"),
        (r"a=C\:\\store", "a", r"C:\store"),
        (r"a=x\ty\nz", "a", "x\ty\nz"),
        (r"a=\q", "a", "q"),
        (r"a=\u00e9\u4E2d", "a", "é中"),
        (r"a=\ud83d\ude00", "a", "😀"),  # Two escapes, one character.
        ("a=b # no comment", "a", "b # no comment"),
    ],
)
def test_one_entry(text: str, key: str, value: str) -> None:
    assert parse_properties(text) == [PropertyEntry(key, value, 1)]


def test_comments_and_blank_lines_are_skipped_and_lines_counted() -> None:
    text = "# one\n\n  ! two\na=1\r\n\t\nb=2\rc=3"
    assert parse_properties(text) == [
        PropertyEntry("a", "1", 4),
        PropertyEntry("b", "2", 6),
        PropertyEntry("c", "3", 7),
    ]


def test_continued_lines_lose_their_leading_blanks_and_keep_the_first_line_number() -> None:
    text = "# head\nlevels=1s \\\n    5s \\\n    10s\nnext=1"
    assert parse_properties(text) == [PropertyEntry("levels", "1s 5s 10s", 2), PropertyEntry("next", "1", 5)]


def test_an_even_number_of_backslashes_does_not_continue() -> None:
    assert parse_properties("a=b\\\\\nc=d") == [PropertyEntry("a", "b\\", 1), PropertyEntry("c", "d", 2)]


def test_a_comment_is_not_continued_but_a_continuation_may_look_like_one() -> None:
    assert parse_properties("# x \\\na=1") == [PropertyEntry("a", "1", 2)]
    assert parse_properties("a=1\\\n#2") == [PropertyEntry("a", "1#2", 1)]


def test_a_continuation_at_the_end_of_the_file_ends_there() -> None:
    assert parse_properties("a=1\\") == [PropertyEntry("a", "1", 1)]


def test_a_repeated_key_is_reported_twice() -> None:
    assert [entry.value for entry in parse_properties("a=1\na=2")] == ["1", "2"]


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\u12G4", r"\uzzzz=1", "x=1\na=\\u"])
def test_a_broken_unicode_escape_names_its_line(text: str) -> None:
    with pytest.raises(PropertiesSyntaxError) as caught:
        parse_properties(text)
    assert caught.value.line == text.count("\n") + 1


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_what_is_escaped_comes_back(table: dict[str, str]) -> None:
    text = "".join(f"{_escape(key)}={_escape(value)}\n" for key, value in table.items())
    assert {entry.key: entry.value for entry in parse_properties(text)} == table


@given(st.text())
def test_any_text_is_read_or_refused_with_a_line(text: str) -> None:
    try:
        lines = [entry.line for entry in parse_properties(text)]
    except PropertiesSyntaxError as error:
        lines = [error.line]
    assert all(1 <= line <= len(text) + 1 for line in lines)


def _escape(text: str) -> str:
    entries = text.encode("utf-16-be")
    return "".join(f"\\u{entries[at]:02x}{entries[at + 1]:02x}" for at in range(0, len(entries), 2))
