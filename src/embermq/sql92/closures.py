"""From a tree to a function of the property bytes of a message: its value is True, False or None for unknown.

What kind of value each side of a comparison has is known beforehand (a property is text, a literal is what it is), so
the conversion is chosen once, when the expression is compiled. Text is compared as the bytes that are stored. What a
message looks like is read by name, from the property string itself: no property is decoded that is not asked for.
"""

from collections.abc import Callable
from enum import Enum, auto
from operator import ge, gt, le, lt
from typing import Any

from embermq.model.properties import property_value
from embermq.sql92.java_values import EvaluationFailed, double_order, java_double, java_int, java_long
from embermq.sql92.tree import Constant, Equal, In, IsNull, Junction, Negation, Node, Not, Order, Property, Truth

Value = Any  # bytes, int, float or bool, as the Kind beside it says; None where there is none.
Closure = Callable[[bytes], Value]
Logical = Callable[[bytes], bool | None]


class ValueKind(Enum):
    """What a node's value is, where it has one."""

    TEXT = auto()
    INT = auto()
    LONG = auto()
    DOUBLE = auto()
    TRUTH = auto()
    NOTHING = auto()  # never has one


_NUMBERS = (ValueKind.INT, ValueKind.LONG, ValueKind.DOUBLE)
_READ: dict[ValueKind, Callable[[bytes], int | float]] = {
    ValueKind.INT: java_int,
    ValueKind.LONG: java_long,
    ValueKind.DOUBLE: java_double,
}
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {">": gt, ">=": ge, "<": lt, "<=": le}


def compile_tree(node: Node) -> Logical:
    """A whole expression, or an operand of AND, OR and NOT: a property there is never true."""
    match node:
        case Property(name):
            return _bare(name)
        case Truth(value):
            return lambda _: value
        case Not(of):
            return _not(compile_tree(of))
        case Junction(is_and, parts):
            return _joined(tuple(compile_tree(part) for part in parts), not is_and)
        case In(name, texts, is_negated):
            return _in(name, texts, is_negated)
        case IsNull(of):
            return _is_null(of)
        case Equal(left, right):
            return _equal(left, right)
        case Order(operator, left, right):
            return _order(operator, left, right)
        case _:
            raise AssertionError(f"{node!r} has no truth")


def _value(node: Node) -> tuple[ValueKind, Closure]:
    """The value of an operand of a comparison, and of what kind it is."""
    match node:
        case Property(name):
            return ValueKind.TEXT, _lookup(name)
        case Constant(str() as text):
            stored = text.encode("utf-8", "surrogatepass")
            return ValueKind.TEXT, lambda _: stored
        case Constant(float() as number):
            return ValueKind.DOUBLE, lambda _: number
        case Constant(value):
            return (ValueKind.LONG if node.is_wide else ValueKind.INT), lambda _: value
        case Negation(of):
            return _negation(*_value(of))
        case _:
            return ValueKind.TRUTH, compile_tree(node)


def _lookup(name: str) -> Callable[[bytes], bytes | None]:
    """What model.properties.property_value answers for one name, in a third of its time."""
    encoded = name.encode()
    first = encoded + b"\x01"
    later = b"\x02" + first
    first_end, later_length = len(first), len(later)

    def look_up(properties: bytes) -> bytes | None:
        at = properties.rfind(later)
        if at >= 0:
            begin = at + later_length
        elif properties.startswith(first):
            begin = first_end
        else:
            return None
        end = properties.find(b"\x02", begin)
        value = properties[begin:] if end < 0 else properties[begin:end]
        return value or property_value(properties, encoded)  # An empty value does not count; one before it may.

    return look_up


def _negation(kind: ValueKind, of: Closure) -> tuple[ValueKind, Closure]:
    if kind in _NUMBERS:
        number = of(b"")
        return kind, lambda _: -number

    def nothing(properties: bytes) -> None:
        of(properties)  # It may fail.

    return ValueKind.NOTHING, nothing


# -- logic -------------------------------------------------------------------------------------------------------------


def _bare(name: str) -> Logical:
    look_up = _lookup(name)

    def bare(properties: bytes) -> bool | None:
        return None if look_up(properties) is None else False

    return bare


def _not(of: Logical) -> Logical:
    def opposite(properties: bytes) -> bool | None:
        value = of(properties)
        return None if value is None else not value

    return opposite


def _joined(parts: tuple[Logical, ...], decisive: bool) -> Logical:
    """OR is decided by a part that is true, AND by one that is false; else an unknown part makes it unknown."""

    def joined(properties: bytes) -> bool | None:
        result: bool | None = not decisive
        for part in parts:
            value = part(properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return joined


def _in(name: str, texts: tuple[str, ...], is_negated: bool) -> Logical:
    look_up = _lookup(name)
    wanted = frozenset(text.encode("utf-8", "surrogatepass") for text in texts)

    def is_in(properties: bytes) -> bool | None:
        value = look_up(properties)
        return None if value is None else (value in wanted) is not is_negated

    return is_in


def _is_null(of: Node) -> Logical:
    _, value = _value(of)
    return lambda properties: value(properties) is None


# -- comparisons -------------------------------------------------------------------------------------------------------


def _equal(left_node: Node, right_node: Node) -> Logical:
    (left_kind, left), (right_kind, right) = _value(left_node), _value(right_node)
    if isinstance(left_node, Property) and isinstance(right_node, Constant):
        return _equal_constant(left, right_kind, right(b""))
    same = _sameness(left_kind, right_kind)

    def equal(properties: bytes) -> bool | None:
        a, b = left(properties), right(properties)
        if a is None:
            return True if b is None else None
        return False if b is None else same(a, b)

    return equal


def _equal_constant(look_up: Closure, kind: ValueKind, constant: Value) -> Logical:
    """The form most expressions have."""
    if kind is ValueKind.TEXT:

        def equal(properties: bytes) -> bool | None:
            value = look_up(properties)
            return None if value is None else value == constant

        return equal
    read = _READ[kind]

    def equal_number(properties: bytes) -> bool | None:
        value = look_up(properties)
        return None if value is None else read(value) == constant  # A decimal literal is neither 0 nor NaN.

    return equal_number


def _sameness(left: ValueKind, right: ValueKind) -> Callable[[Value, Value], bool]:
    """Whether two values are equal."""
    if ValueKind.NOTHING in (left, right):
        return lambda a, b: False
    if left is ValueKind.TRUTH and right is ValueKind.TEXT:
        return _fail
    if left is ValueKind.TEXT and right is ValueKind.TRUTH:
        return lambda a, b: (isinstance(a, bytes) and a.lower() == b"true") is b
    if left is right and left in (ValueKind.TEXT, ValueKind.TRUTH):
        return lambda a, b: a == b
    if ValueKind.TRUTH in (left, right):
        return lambda a, b: False
    compare = _comparison(left, right)
    return lambda a, b: compare(a, b) == 0


def _fail(a: Value, b: Value) -> bool:
    raise EvaluationFailed("TRUE or FALSE is compared with a text behind it; write the text first")


def _order(operator: str, left_node: Node, right_node: Node) -> Logical:
    (left_kind, left), (right_kind, right) = _value(left_node), _value(right_node)
    decide = _OPERATORS[operator]
    if isinstance(left_node, Property) and right_kind in (ValueKind.INT, ValueKind.LONG):
        return _order_constant(left, _READ[right_kind], decide, right(b""))
    compare = _comparison(left_kind, right_kind)

    def ordered(properties: bytes) -> bool | None:
        a = left(properties)
        if a is None:
            return None
        b = right(properties)
        return None if b is None else decide(compare(a, b), 0)

    return ordered


def _order_constant(
    look_up: Closure, read: Callable[[bytes], int | float], decide: Callable[[Any, Any], bool], constant: Value
) -> Logical:
    def ordered(properties: bytes) -> bool | None:
        value = look_up(properties)
        return None if value is None else decide(read(value), constant)

    return ordered


def _comparison(left: ValueKind, right: ValueKind) -> Callable[[Value, Value], int]:
    """How two values lie to each other: below, at or above 0. Two texts as doubles, text as the number beside it."""
    if ValueKind.NOTHING in (left, right):
        return lambda a, b: 0  # Never asked.
    common = (
        ValueKind.DOUBLE
        if left is right is ValueKind.TEXT or ValueKind.DOUBLE in (left, right)
        else _wider(left, right)
    )
    as_left, as_right = _conversion(left, common), _conversion(right, common)
    if common is ValueKind.DOUBLE:
        return lambda a, b: double_order(as_left(a), as_right(b))
    return lambda a, b: (as_left(a) > as_right(b)) - (as_left(a) < as_right(b))


def _wider(left: ValueKind, right: ValueKind) -> ValueKind:
    return ValueKind.LONG if ValueKind.LONG in (left, right) else ValueKind.INT


def _conversion(kind: ValueKind, common: ValueKind) -> Callable[[Value], float]:
    if kind is ValueKind.TEXT:
        return _READ[common]
    return float if common is ValueKind.DOUBLE else int
