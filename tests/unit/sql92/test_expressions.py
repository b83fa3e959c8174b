"""Expressions: the results table of docs/filters.md, what is refused and how, and the bounds."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.errors import ExpressionInvalid
from embermq.model.properties import encode_properties, property_value
from embermq.sql92 import EXPRESSION_CHARACTERS_MAX, EvaluationFailed, compile_expression
from embermq.sql92.tree import DEPTH_MAX

PAGE = Path(__file__).resolve().parents[3] / "docs" / "filters.md"
PROPERTIES = {
    "a": "5",
    "b": "abc",
    "c": "true",
    "d": "3.5",
    "q": "it's",
    "big": "3000000000",
    "T": "TRUE",
    "TAGS": "TagA",
}


def rows() -> list[tuple[str, str]]:
    """The table of the page, an expression a row."""
    page = PAGE.read_text(encoding="utf-8")
    table = page.split("<!-- table: results -->")[1].split("<!-- end of table -->")[0]
    found = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    return [(text, cells[1].strip(" |")) for cells in found for text in re.findall(r"`([^`]+)`", cells[0])]


def result(expression: str, properties: bytes) -> str:
    try:
        compiled = compile_expression(expression)
    except ExpressionInvalid:
        return "refused"
    try:
        value = compiled.evaluate(properties)
    except EvaluationFailed:
        assert not compiled.matches(properties)
        return "error"
    assert compiled.matches(properties) is (value is True)
    return "unknown" if value is None else str(value).lower()


@pytest.mark.parametrize(("expression", "expected"), rows())
def test_results(expression: str, expected: str) -> None:
    assert result(expression, encode_properties(PROPERTIES)) == expected


def test_the_page_has_a_table() -> None:
    assert len(rows()) > 150
    assert {expected for _, expected in rows()} == {"true", "false", "unknown", "error", "refused"}


@pytest.mark.parametrize(
    ("expression", "line", "column", "said"),
    [
        ("a in (5)", 1, 7, "found 5 where a string is expected"),
        ("a in ('5',)", 1, 11, "found ) where a string is expected"),
        ("a in ('a' 'b')", 1, 11, "found 'b' where ) or , is expected"),
        ("a in '5'", 1, 6, "found '5' where ( is expected"),
        ("a = 5 AND", 1, 10, "the expression ends where a value is expected"),
        ("", 1, 1, "the expression ends where a value is expected"),
        ("a = 5\n and =", 2, 6, "found = where a value is expected"),
        ("a = 5 #", 1, 7, "'#' begins no token"),
        ("a is x", 1, 6, "found x where NOT or NULL is expected"),
        ("a = 'b", 1, 5, '"\'" begins no token'),
    ],
)
def test_a_refusal_names_its_place(expression: str, line: int, column: int, said: str) -> None:
    with pytest.raises(ExpressionInvalid) as refused:
        compile_expression(expression)
    assert (refused.value.line, refused.value.column) == (line, column)
    assert refused.value.reason == said
    assert str(refused.value) == f"line {line}, column {column}: {said}"


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("5", "Expression will not result in a boolean value: 5"),
        ("- (a=5)", "Expression will not result in a boolean value: (- (a == 5))"),
        ("true or 1e10", "Expression will not result in a boolean value: 1.0E10"),
        ("a between 5 and 0.5", "Illegal values of between, left value(5) must less than or equal to right value(0.5)"),
        ("a > 'it''s'", "Value ''it''s'' cannot be compared."),
        ("a > (b<>1 and x is null)", "Value '((NOT (b == 1)) && (x == NULL))' cannot be compared."),
        ("(a not in ('5','6') or c) > 1", "Value '(a NOT IN ( 5, 6 ) || c)' cannot be compared."),
        ("(not a) in ('x')", "Expected a property for In expression, got: (NOT a)"),
        ("FALSE = 1e-5", "'FALSE' cannot be compared with '1.0E-5'"),
        ("1e309 > a", "1e309 is greater than 1.7976931348623157E308"),
    ],
)
def test_what_cannot_stand_together_is_refused_in_the_words_of_rocketmq(expression: str, said: str) -> None:
    with pytest.raises(ExpressionInvalid) as refused:
        compile_expression(expression)
    assert refused.value.reason == said


# -- properties as they are stored -----------------------------------------------------------------------------------


def test_only_whole_names_are_found() -> None:
    properties = encode_properties({"xa": "6", "ax": "7", "v": "a"})
    assert result("a = 6", properties) == "unknown"
    assert result("xa = 6 and ax = 7", properties) == "true"


def test_the_last_of_two_values_counts_and_an_empty_one_does_not() -> None:
    assert result("a = 6", b"a\x015\x02a\x016") == "true"
    assert result("a = 5", b"a\x015\x02a\x01") == "true"
    assert result("a is null", b"a\x01\x02b\x011") == "true"


@pytest.mark.parametrize(
    ("value", "expression", "expected"),
    [
        ("+5", "v = 5", "true"),
        ("-0", "v = 0", "true"),
        (" 5", "v = 5", "error"),
        (" 5\t", "v = 5.0", "true"),
        ("5_0", "v = 50", "error"),
        ("5_0", "v < 50.5", "error"),
        ("5d", "v = 5", "error"),
        ("5d", "v = 5.0", "true"),
        ("0x1p3", "v = 8.0", "true"),
        ("0x1p3F", "v = 8.0", "true"),
        ("0x10", "v < 8.0", "error"),
        ("-0x1p9999", "v < 8.0", "true"),
        ("NaN", "v > 1.7e308", "true"),
        ("-NaN", "v = v", "true"),
        ("-Infinity", "v < 5.5", "true"),
        ("infinity", "v < 5.5", "error"),
        ("1e999", "v > 1.7e308", "true"),
        ("2147483647", "v > 5", "true"),
        ("2147483648", "v > 5", "error"),
        ("-2147483648", "v < 5", "true"),
        ("9223372036854775807", "v > 2147483648", "true"),
        ("9223372036854775808", "v > 2147483648", "error"),
        ("0" * 5000 + "5", "v = 5", "true"),
        ("9" * 5000, "v = 5", "error"),
        ("٥", "v = 5", "true"),
        ("-٥", "v = -5", "true"),
        ("٥", "v = 5.0", "error"),
        ("𝟓", "v = 5", "error"),
        ("", "v = 5", "unknown"),
        ("-", "v = 5", "error"),
        (".", "v = 5.0", "error"),
        ("é", "v = 'é'", "true"),
        ("é", "v in ('e', 'é')", "true"),
        ("tRUe", "v = true", "true"),
        ("yes", "v = false", "true"),
        ("-2147483648", "v = -2147483648", "true"),
        ("-2147483649", "v = -2147483648", "false"),
    ],
)
def test_text_is_read_as_java_does(value: str, expression: str, expected: str) -> None:
    assert result(expression, b"v\x01" + value.encode()) == expected


def test_zeros_have_signs() -> None:
    properties = b"n\x01-0.0\x02p\x010"
    assert result("n < p", properties) == "true"
    assert result("p > n", properties) == "true"
    assert result("n >= p", properties) == "false"
    assert result("n = p", properties) == "false"


@given(st.lists(st.sampled_from([b"a\x01", b"a", b"\x01", b"\x02", b"5", b"ba\x01", b"\x02a\x01"]), max_size=12))
def test_a_property_is_found_as_everywhere_else(pieces: list[bytes]) -> None:
    properties = b"".join(pieces)
    value = property_value(properties, b"a")
    assert result("a is null", properties) == ("true" if value is None else "false")
    if value is not None:
        assert result(f"a = '{value.decode()}'", properties) == "true"


# -- bounds ----------------------------------------------------------------------------------------------------------


def test_long_chains_are_no_nesting() -> None:
    text = " or ".join(f"a = {n}" for n in range(2000))
    assert result(text, b"a\x011999") == "true"
    assert result("(" * 500 + "a = 5" + ")" * 500, b"a\x015") == "true"


@pytest.mark.parametrize(
    "text",
    [
        "not " * (DEPTH_MAX + 1) + "a",
        "a" + " = a" * (DEPTH_MAX + 1),
        "(" * 4000 + "a" + ")" * 4000,
        "-" * 8000 + "5",
        "a = '" + "x" * EXPRESSION_CHARACTERS_MAX + "'",
        "/*" * 16000,
        "-- " * 10000,
    ],
    ids=["not", "equal", "parentheses", "signs", "length", "comments", "line comments"],
)
def test_hostile_text_is_refused_soon(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ExpressionInvalid):
        compile_expression(text)
    assert time.process_time() - began < 2.0


def test_the_deepest_expression_is_evaluated() -> None:
    assert result("not " * (DEPTH_MAX - 1) + "a", b"a\x015") in ("true", "false")


@given(st.text(alphabet="ab50.'()<>=-+, \n\tANDORTnotilsu/*#L$_é\u0665", max_size=40), st.binary(max_size=30))
@settings(max_examples=300, deadline=None)
def test_no_text_and_no_bytes_raise_anything_else(text: str, properties: bytes) -> None:
    assert result(text, properties) in ("true", "false", "unknown", "error", "refused")


def test_lark_is_loaded_with_the_first_expression() -> None:
    code = (
        "import sys, embermq.sql92, embermq.broker; assert 'lark' not in sys.modules;"
        "embermq.sql92.compile_expression('a = 5'); assert 'lark' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
