"""The tree of an expression: its nodes, and what RocketMQ refuses before it has seen a message. Pure.

A node is one of

    Property        the text of a property, or unknown
    Constant        a number or text; Truth: TRUE, FALSE or NULL
    Negation        -x: of a number; unknown of all else
    Equal Order     = and <>, and > >= < <=
    In IsNull Not And Or

`written` gives a node as RocketMQ's remarks show it. `depth` bounds how far evaluating it goes down.
"""

from dataclasses import dataclass
from typing import TypeAlias

from embermq.errors import ExpressionInvalid
from embermq.sql92.java_values import INT_MAX, INT_MIN, java_text

DEPTH_MAX = 200


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    depth: int = 1

    @property
    def written(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Constant:
    value: int | float | str
    depth: int = 1

    @property
    def written(self) -> str:
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        return java_text(self.value) if isinstance(self.value, float) else str(self.value)

    @property
    def is_wide(self) -> bool:
        """A number that needs 64 bits: what is compared with it may have as many."""
        return isinstance(self.value, int) and not INT_MIN <= self.value <= INT_MAX


@dataclass(frozen=True, slots=True)
class Truth:
    """TRUE, FALSE, or NULL as None."""

    value: bool | None
    depth: int = 1

    @property
    def written(self) -> str:
        return {True: "TRUE", False: "FALSE", None: "NULL"}[self.value]


@dataclass(frozen=True, slots=True)
class Negation:
    of: "Node"
    depth: int

    @property
    def written(self) -> str:
        return f"(- {self.of.written})"


@dataclass(frozen=True, slots=True)
class Not:
    of: "Node"
    depth: int

    @property
    def written(self) -> str:
        return f"(NOT {self.of.written})"


@dataclass(frozen=True, slots=True)
class Junction:
    """AND or OR of two or more."""

    is_and: bool
    parts: tuple["Node", ...]
    depth: int

    @property
    def written(self) -> str:
        joined, *others = (part.written for part in self.parts)
        for other in others:
            joined = f"({joined} {'&&' if self.is_and else '||'} {other})"
        return joined


@dataclass(frozen=True, slots=True)
class Equal:
    left: "Node"
    right: "Node"
    depth: int

    @property
    def written(self) -> str:
        return f"({self.left.written} == {self.right.written})"


@dataclass(frozen=True, slots=True)
class Order:
    """`operator` is one of > >= < <=."""

    operator: str
    left: "Node"
    right: "Node"
    depth: int

    @property
    def written(self) -> str:
        return f"({self.left.written} {self.operator} {self.right.written})"


@dataclass(frozen=True, slots=True)
class In:
    name: str
    texts: tuple[str, ...]
    is_negated: bool
    depth: int = 1

    @property
    def written(self) -> str:
        return f"{self.name} {'NOT ' if self.is_negated else ''}IN ( {', '.join(self.texts)} )"


@dataclass(frozen=True, slots=True)
class IsNull:
    of: "Node"
    depth: int

    @property
    def written(self) -> str:
        return f"({self.of.written} == NULL)"


Node: TypeAlias = Property | Constant | Truth | Negation | Not | Junction | Equal | Order | In | IsNull
_LOGICAL = (Truth, Not, Junction, Equal, Order, In, IsNull)


def _below(*nodes: Node) -> int:
    depth = 1 + max(node.depth for node in nodes)
    if depth > DEPTH_MAX:
        raise ExpressionInvalid(f"the expression is nested more than {DEPTH_MAX} deep")
    return depth


def logical(node: Node) -> Node:
    """A node where true or false is needed. A property is allowed there, though no text is ever true."""
    if isinstance(node, (*_LOGICAL, Property)):
        return node
    raise ExpressionInvalid(f"Expression will not result in a boolean value: {node.written}")


def negation(node: Node) -> Node:
    return Negation(node, _below(node))


def opposite(node: Node) -> Node:
    return Not(logical(node), _below(node))


def joined(is_and: bool, parts: list[Node]) -> Node:
    return Junction(is_and, tuple(logical(part) for part in parts), _below(*parts))


def is_null(node: Node) -> Node:
    return IsNull(node, _below(node))


def is_in(node: Node, texts: list[str], *, is_negated: bool) -> Node:
    if not isinstance(node, Property):
        raise ExpressionInvalid(f"Expected a property for In expression, got: {node.written}")
    return In(node.name, tuple(dict.fromkeys(texts)), is_negated)


def equal(left: Node, right: Node) -> Node:
    for node in (left, right):
        if isinstance(node, Truth) and node.value is None:
            raise ExpressionInvalid("'NULL' cannot be compared; write IS NULL")
    if isinstance(left, Truth) and isinstance(right, Constant):
        raise ExpressionInvalid(f"'{left.written}' cannot be compared with '{right.written}'")
    return Equal(left, right, _below(left, right))


def order(operator: str, left: Node, right: Node) -> Node:
    for node in (left, right):
        if isinstance(node, _LOGICAL) or (isinstance(node, Constant) and isinstance(node.value, str)):
            raise ExpressionInvalid(f"Value '{node.written}' cannot be compared.")
    return Order(operator, left, right, _below(left, right))


def between(node: Node, low: Node, high: Node) -> Node:
    _check_bounds(low, high)
    return joined(True, [order(">=", node, low), order("<=", node, high)])


def not_between(node: Node, low: Node, high: Node) -> Node:
    return joined(False, [order("<", node, low), order(">", node, high)])


def _check_bounds(low: Node, high: Node) -> None:
    """Refuse numbers with nothing between them. Bounds that are no numbers are refused where they are compared."""
    if not isinstance(low, Constant) or not isinstance(high, Constant):
        return
    if isinstance(low.value, str) or isinstance(high.value, str):
        return
    is_double = isinstance(low.value, float) or isinstance(high.value, float)
    if (float(low.value) > float(high.value)) if is_double else (low.value > high.value):
        raise ExpressionInvalid(
            f"Illegal values of between, left value({low.written}) must less than or equal to right value"
            f"({high.written})"
        )
