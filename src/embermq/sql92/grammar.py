"""The grammar of SQL92 filters, and the way from text to a tree. Imports lark; the rest of the package does not.

Precedence, loosest first: OR; AND; = <> IS; > >= < <= BETWEEN IN; + - NOT. NOT binds tighter than a comparison:
`NOT a = 5` is `(NOT a) = 5`. Names keep their case, keywords have none.

RocketMQ's parser ends with the longest expression it can read and never looks at what follows: `a = 5 5` is `a = 5`. So
tokens are read one by one; the first that cannot continue ends the expression, if it is one by then.
"""

from typing import Any

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args

from embermq.errors import ExpressionInvalid
from embermq.sql92 import tree
from embermq.sql92.java_values import LONG_MAX
from embermq.sql92.tree import Constant, Node, Property, Truth

# Open parentheses and signs that wait for their operand; nothing in the parser is recursive.
OPEN_MAX = 2_000
_SHOWN_CHARACTERS = 40

GRAMMAR = r"""
?start: disjunction
?disjunction: conjunction | conjunction (_OR conjunction)+ -> disjunction
?conjunction: equality | equality (_AND equality)+ -> conjunction
?equality: comparison
         | equality "=" comparison -> equal
         | equality _UNEQUAL comparison -> not_equal
         | equality _IS NULL -> is_null
         | equality _IS _NOT NULL -> is_not_null
?comparison: unary
         | comparison ORDER unary -> order
         | comparison _BETWEEN unary _AND unary -> between
         | comparison _NOT _BETWEEN unary _AND unary -> not_between
         | comparison _IN "(" STRING ("," STRING)* ")" -> is_in
         | comparison _NOT _IN "(" STRING ("," STRING)* ")" -> not_in
?unary: primary
      | "+" unary
      | "-" unary -> negation
      | _NOT unary -> opposite
?primary: STRING -> text
        | INTEGER -> integer
        | DECIMAL -> decimal
        | TRUE -> true
        | FALSE -> false
        | NULL -> null
        | NAME -> property
        | "(" disjunction ")"

_UNEQUAL.2: "<>"
ORDER: ">=" | "<=" | ">" | "<"
STRING: /'(?:''|[^'])*'/
DECIMAL.2: /(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
INTEGER: /0|[1-9][0-9]*[lL]?/
_AND.3: /AND(?![A-Za-z0-9_$])/i
_OR.3: /OR(?![A-Za-z0-9_$])/i
_NOT.3: /NOT(?![A-Za-z0-9_$])/i
_BETWEEN.3: /BETWEEN(?![A-Za-z0-9_$])/i
_IN.3: /IN(?![A-Za-z0-9_$])/i
_IS.3: /IS(?![A-Za-z0-9_$])/i
TRUE.3: /TRUE(?![A-Za-z0-9_$])/i
FALSE.3: /FALSE(?![A-Za-z0-9_$])/i
NULL.3: /NULL(?![A-Za-z0-9_$])/i
NAME: /[A-Za-z_$][A-Za-z0-9_$]*/

BLANK: /[ \t\n\r\f]+/
LINE_COMMENT.4: /--[^\n\r]*[\n\r]/
BLOCK_COMMENT.4: /\/\*[\s\S]*?\*\//
%ignore BLANK
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""


@v_args(inline=True)
class _ToTree(Transformer[Token, Node]):
    """Nodes for the rules of the grammar, made as they are recognised."""

    def text(self, token: Token) -> Node:
        return Constant(_text(token))

    def integer(self, token: Token) -> Node:
        value = int(token.rstrip("lL"))
        if value > LONG_MAX:
            raise ExpressionInvalid(f"{value} needs more than 64 bits")
        return Constant(value)

    def decimal(self, token: Token) -> Node:
        value = float(token)
        if value == float("inf"):
            raise ExpressionInvalid(f"{token} is greater than 1.7976931348623157E308")
        if value == 0.0:
            raise ExpressionInvalid(f"{token} is less than 4.9E-324; write 0 without a point")
        return Constant(value)

    def true(self, _: Token) -> Node:
        return Truth(True)

    def false(self, _: Token) -> Node:
        return Truth(False)

    def null(self, _: Token) -> Node:
        return Truth(None)

    def property(self, token: Token) -> Node:
        return Property(str(token))

    def negation(self, of: Node) -> Node:
        return tree.negation(of)

    def opposite(self, of: Node) -> Node:
        return tree.opposite(of)

    def disjunction(self, *parts: Node) -> Node:
        return tree.joined(False, list(parts))

    def conjunction(self, *parts: Node) -> Node:
        return tree.joined(True, list(parts))

    def equal(self, left: Node, right: Node) -> Node:
        return tree.equal(left, right)

    def not_equal(self, left: Node, right: Node) -> Node:
        return tree.opposite(tree.equal(left, right))

    def is_null(self, of: Node, _: Token) -> Node:
        return tree.is_null(of)

    def is_not_null(self, of: Node, _: Token) -> Node:
        return tree.opposite(tree.is_null(of))

    def order(self, left: Node, operator: Token, right: Node) -> Node:
        return tree.order(str(operator), left, right)

    def between(self, of: Node, low: Node, high: Node) -> Node:
        return tree.between(of, low, high)

    def not_between(self, of: Node, low: Node, high: Node) -> Node:
        return tree.not_between(of, low, high)

    def is_in(self, of: Node, *texts: Token) -> Node:
        return tree.is_in(of, [_text(one) for one in texts], is_negated=False)

    def not_in(self, of: Node, *texts: Token) -> Node:
        return tree.is_in(of, [_text(one) for one in texts], is_negated=True)


def _text(token: Token) -> str:
    return token[1:-1].replace("''", "'")


_PARSER = Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=_ToTree(), propagate_positions=False)


def parse(text: str) -> Node:
    """The tree of an expression; ExpressionInvalid."""
    parsing: Any = _PARSER.parse_interactive(text)  # Its methods are untyped.
    last: Token | None = None
    try:
        for token in parsing.lexer_thread.lex(parsing.parser_state):
            if len(parsing.parser_state.state_stack) > OPEN_MAX:
                raise ExpressionInvalid(
                    f"more than {OPEN_MAX} operands are open", line=token.line or 0, column=token.column or 0
                )
            try:
                parsing.feed_token(token)
            except UnexpectedToken:
                if "$END" not in parsing.accepts():
                    raise
                break
            last = token
        found = parsing.feed_eof(last)
    except UnexpectedCharacters as problem:
        raise ExpressionInvalid(
            f"{problem.char!r} begins no token", line=problem.line, column=problem.column, token=problem.char
        ) from None
    except UnexpectedToken as problem:
        raise _unexpected(text, problem.token, problem.expected or set()) from None
    return tree.logical(found)


def _unexpected(text: str, token: Token, expected: set[str]) -> ExpressionInvalid:
    wanted = _wanted(expected)
    if token.type == "$END":
        lines = text.split("\n")
        return ExpressionInvalid(
            f"the expression ends where {wanted} is expected", line=len(lines), column=len(lines[-1]) + 1
        )
    shown = str(token)[:_SHOWN_CHARACTERS]
    return ExpressionInvalid(
        f"found {shown} where {wanted} is expected", line=token.line or 0, column=token.column or 0, token=shown
    )


def _wanted(expected: set[str]) -> str:
    """What may stand at a place, in a word or two."""
    if "NAME" in expected:
        return "a value"
    if expected == {"STRING"}:
        return "a string"
    names = {"RPAR": ")", "LPAR": "(", "COMMA": ",", "EQUAL": "=", "ORDER": "> >= < <="}
    known = sorted(names.get(one, one.lstrip("_")) for one in expected if one != "$END" and not one.startswith("__"))
    return " or ".join(known) or "the end"
