"""Expressions against RocketMQ's own filter: the same answer for every pair of an expression and properties, the same
bits for every group."""

import subprocess
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from embermq.errors import ExpressionInvalid
from embermq.format.queue_extension import BloomFilter
from embermq.model.properties import encode_properties
from embermq.sql92 import EvaluationFailed, compile_expression
from tests.interop import reference, sql_pairs

pytestmark = pytest.mark.interop

PAIRS = 20_000
_FOLDER = Path(__file__).parent / "java_filter"
Pair = tuple[str, dict[str, str]]


def asked_of_reference(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What RocketMQ's filter answers, in one JVM."""
    try:
        classes = reference.class_path(_FOLDER / "pom.xml", (_FOLDER,))
    except reference.ReferenceMissing as why:
        pytest.skip(str(why))
    command = reference.java_command("FilterScript", [], jvm=["-Xmx256m", "-XX:+UseSerialGC"], classes=classes)
    lines = b"".join(msgspec.json.encode(one) + b"\n" for one in questions)
    ran = subprocess.run(command, input=lines, capture_output=True, timeout=300, check=True)
    answers = [msgspec.json.decode(line) for line in ran.stdout.splitlines()]
    assert len(answers) == len(questions), ran.stderr[-2000:]
    return answers


def our_answer(expression: str, properties: dict[str, str]) -> str:
    try:
        compiled = compile_expression(expression)
    except ExpressionInvalid:
        return "refused"
    try:
        value = compiled.evaluate(encode_properties(properties))
    except EvaluationFailed:
        return "error"
    return "unknown" if value is None else str(value).lower()


@pytest.mark.parametrize("seed", range(3))
def test_the_same_answers(seed: int) -> None:
    random = Random(seed)
    pairs: list[Pair] = [(sql_pairs.expression(random), sql_pairs.properties(random)) for _ in range(PAIRS)]
    theirs = asked_of_reference([{"expression": text, "properties": has} for text, has in pairs])
    different = [
        (text, has, ours, answer)
        for (text, has), answer in zip(pairs, theirs, strict=True)
        if (ours := our_answer(text, has)) != answer["is"]
    ]
    assert different == []
    seen = {answer["is"] for answer in theirs}
    assert seen == {"true", "false", "unknown", "error", "refused"}


def test_the_same_bits() -> None:
    random = Random(5)
    sizes = [(20, 32), (1, 4), (5, 100), (50, 7), (99, 1)]
    keys = [f"group-{random.randrange(10**6)}é#{'t' * random.randrange(40)}" for _ in range(200)]
    questions: list[dict[str, Any]] = [{"key": key, "f": f, "n": n} for key in keys for f, n in sizes]
    for asked, answer in zip(questions, asked_of_reference(questions), strict=True):
        bloom = BloomFilter.sized(asked["f"], asked["n"])
        assert (answer["k"], answer["m"]) == (bloom.hashes, bloom.bits)
        assert answer["positions"] == bloom.positions(asked["key"])
