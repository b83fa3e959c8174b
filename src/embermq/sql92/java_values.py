"""Numbers as Java reads and orders them: what text is one, and what -0.0 and NaN are. Pure.

    Integer, Long   a sign and decimal digits of any script (of the Basic Multilingual Plane), nothing else, in range
    Double          blanks around it, a sign; NaN, Infinity, decimal or hexadecimal digits; f, F, d, D behind them

Each reader raises EvaluationFailed for other text. The order of doubles is total: -0.0 is below 0.0, NaN is equal to
itself and above all others.
"""

import math
import re
import unicodedata
from decimal import Decimal

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
_LONG_DIGITS_MAX = 19
_PLAIN_DIGITS_MAX = 9  # No number of so many digits is out of range.

_INTEGER = re.compile(rb"[+-]?[0-9]+")
_DECIMAL = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEX = re.compile(rb"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_SPECIAL = {b"NaN": math.nan, b"Infinity": math.inf}
_BLANKS = bytes(range(0x21))


class EvaluationFailed(Exception):
    """An expression has no value for a message: the message does not match."""


def java_int(text: bytes) -> int:
    """Integer.valueOf."""
    return _in_range(text, INT_MIN, INT_MAX)


def java_long(text: bytes) -> int:
    """Long.valueOf."""
    return _in_range(text, LONG_MIN, LONG_MAX)


def _in_range(text: bytes, least: int, most: int) -> int:
    if len(text) <= _PLAIN_DIGITS_MAX and text.isdigit():
        return int(text)
    digits = text if _INTEGER.fullmatch(text) else _plain_digits(text)
    sign, rest = (digits[:1], digits[1:]) if digits[:1] in (b"+", b"-") else (b"", digits)
    significant = rest.lstrip(b"0")
    if len(significant) <= _LONG_DIGITS_MAX:
        value = int(sign + (significant or b"0"))
        if least <= value <= most:
            return value
    raise _no_number(text)


def _plain_digits(text: bytes) -> bytes:
    """The same number in ASCII digits, if its digits are of another script."""
    characters = text.decode("utf-8", "replace")
    sign, digits = (characters[:1], characters[1:]) if characters[:1] in ("+", "-") else ("", characters)
    values = [unicodedata.decimal(one, -1) if ord(one) < 0x10000 else -1 for one in digits]
    if text.isascii() or not values or -1 in values:
        raise _no_number(text)
    return (sign + "".join(str(int(one)) for one in values)).encode()


def java_double(text: bytes) -> float:
    """Double.valueOf."""
    number = text.strip(_BLANKS)
    if _DECIMAL.fullmatch(number):
        return float(number)
    sign, rest = (number[:1], number[1:]) if number[:1] in (b"+", b"-") else (b"", number)
    if rest in _SPECIAL:
        return -_SPECIAL[rest] if sign == b"-" else _SPECIAL[rest]
    if number[-1:] in (b"f", b"F", b"d", b"D") and _DECIMAL.fullmatch(number[:-1]):
        return float(number[:-1])
    if _HEX.fullmatch(number) or (number[-1:] in (b"f", b"F", b"d", b"D") and _HEX.fullmatch(number[:-1])):
        return _from_hex(number.rstrip(b"fFdD").decode())
    raise _no_number(text)


def _from_hex(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def double_order(left: float, right: float) -> int:
    """Double.compareTo: below, at or above 0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right and left != 0.0:
        return 0
    return (_rank(left) > _rank(right)) - (_rank(left) < _rank(right))


def _rank(value: float) -> float:
    """-0.0, 0.0 and NaN in their order."""
    return 2.0 if math.isnan(value) else math.copysign(1.0, value) if value == 0.0 else 1.5


def java_text(value: float) -> str:
    """Double.toString."""
    if 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int), value
    first, *others = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(others) or '0'}E{exponent + len(others)}"


def _no_number(text: bytes) -> EvaluationFailed:
    shown = text[:60].decode("utf-8", "replace")
    return EvaluationFailed(f"{shown!r} is not a number of the kind it is compared with")
