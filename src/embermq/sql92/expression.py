"""An expression that was compiled, and how it becomes one. Any thread: what is compiled never changes."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from embermq.errors import ExpressionInvalid
from embermq.sql92.java_values import EvaluationFailed

SQL92 = "SQL92"
EXPRESSION_CHARACTERS_MAX = 32_768

__all__ = [
    "EXPRESSION_CHARACTERS_MAX",
    "SQL92",
    "EvaluationFailed",
    "Expression",
    "compile_expression",
    "load_grammar",
]


@dataclass(frozen=True, slots=True)
class Expression:
    """A condition on the properties of a message, given as the property string that is stored.

    `evaluate` gives True, False, or None for unknown; EvaluationFailed where there is no value. `matches` says whether
    the message is one of those that are asked for, and raises nothing. The properties of each of those contain one of
    the `needles`, if there are any.
    """

    text: str
    evaluate: Callable[[bytes], bool | None] = field(repr=False, compare=False)
    matches: Callable[[bytes], bool] = field(repr=False, compare=False)
    needles: tuple[bytes, ...] = field(default=(), repr=False, compare=False)


def compile_expression(text: str) -> Expression:
    """The expression `text` says; ExpressionInvalid, which names line, column and token."""
    if len(text) > EXPRESSION_CHARACTERS_MAX:
        raise ExpressionInvalid(f"{len(text)} characters are more than {EXPRESSION_CHARACTERS_MAX}")
    from embermq.sql92.closures import compile_tree
    from embermq.sql92.grammar import parse
    from embermq.sql92.needles import needles

    tree = parse(text)
    evaluate, found = compile_tree(tree), needles(tree)
    return Expression(text, evaluate, _matcher(evaluate, found), found)


def _matcher(evaluate: Callable[[bytes], bool | None], needles: tuple[bytes, ...]) -> Callable[[bytes], bool]:
    def matches(properties: bytes) -> bool:
        try:
            return evaluate(properties) is True
        except EvaluationFailed:
            return False

    if not needles:
        return matches
    if len(needles) == 1:
        (needle,) = needles
        return lambda properties: needle in properties and matches(properties)
    search = re.compile(b"|".join(map(re.escape, needles))).search
    return lambda properties: search(properties) is not None and matches(properties)


def load_grammar() -> None:
    """Load what the first expression needs, where that is better done before one comes."""
    compile_expression("TRUE")
