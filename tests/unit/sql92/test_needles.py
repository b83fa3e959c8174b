"""Needles: what every match contains; and matching is evaluating, whatever they are."""

from random import Random

import pytest

from embermq.errors import ExpressionInvalid
from embermq.model.properties import encode_properties
from embermq.sql92 import EvaluationFailed, compile_expression
from embermq.sql92.grammar import parse
from embermq.sql92.needles import NEEDLES_MAX, needles
from tests.interop import sql_pairs


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("kind = 'rare'", [b"kind\x01rare"]),
        ("'é' = kind", [b"kind\x01\xc3\xa9"]),
        ("kind IN ('b', 'a')", [b"kind\x01a", b"kind\x01b"]),
        ("kind NOT IN ('b', 'a')", [b"kind\x01"]),
        ("n > 5", [b"n\x01"]),
        ("5 = n", [b"n\x01"]),
        ("n = TRUE", [b"n\x01"]),
        ("n > 5 AND kind = 'rare' AND x IS NULL", [b"kind\x01rare"]),
        ("n > 5 OR kind = 'rare'", [b"kind\x01rare", b"n\x01"]),
        ("n BETWEEN 1 AND 5", [b"n\x01"]),
        ("n > 5 OR x IS NULL", []),
        ("NOT (kind = 'rare')", []),
        ("kind <> 'rare'", []),
        ("a = b", []),
        ("TRUE", []),
        ("kind IN (" + ", ".join(f"'{n}'" for n in range(NEEDLES_MAX + 1)) + ")", []),
    ],
)
def test_what_every_match_contains(expression: str, expected: list[bytes]) -> None:
    assert list(needles(parse(expression))) == expected


def test_they_change_no_answer() -> None:
    random, true = Random(1), 0
    for _ in range(3000):
        text, properties = sql_pairs.expression(random), encode_properties(sql_pairs.properties(random))
        try:
            compiled = compile_expression(text)
        except ExpressionInvalid:
            continue
        try:
            value = compiled.evaluate(properties)
        except EvaluationFailed:
            value = None
        assert compiled.matches(properties) is (value is True), text
        true += value is True
    assert true > 100
