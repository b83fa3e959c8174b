"""Needles: texts one of which the property string of every matching message contains. Finding none of them answers for
the whole expression: it is not true. Most messages are passed over so, without a property being looked up. Pure.

Nothing is known of an expression that holds for messages without some property (`NOT`, `IS NULL`, `a = b`).
"""

from embermq.model.properties import NAME_END
from embermq.sql92.tree import Constant, Equal, In, Junction, Node, Order, Property, Truth

NEEDLES_MAX = 8


def needles(node: Node) -> tuple[bytes, ...]:
    """The needles of an expression; none if nothing is known."""
    found = _needles(node)
    if found is None or len(found) > NEEDLES_MAX:
        return ()
    return tuple(sorted(text.encode("utf-8", "surrogatepass") for text in found))


def _needles(node: Node) -> frozenset[str] | None:
    match node:
        case Equal(Property(name), Constant(str() as text)) | Equal(Constant(str() as text), Property(name)):
            return frozenset([f"{name}{NAME_END}{text}"])
        case Equal(Property(name), Constant() | Truth()) | Equal(Constant(), Property(name)):
            return frozenset([f"{name}{NAME_END}"])
        case Order(_, Property(name), _) | Order(_, _, Property(name)):
            return frozenset([f"{name}{NAME_END}"])
        case In(name, texts, is_negated):
            return frozenset([f"{name}{NAME_END}"] if is_negated else [f"{name}{NAME_END}{text}" for text in texts])
        case Junction(True, parts):
            known = [one for part in parts if (one := _needles(part)) is not None and len(one) <= NEEDLES_MAX]
            return max(known, key=lambda one: min(map(len, one)), default=None)  # Long ones are found less often.
        case Junction(False, parts):
            every = [_needles(part) for part in parts]
            sure = [one for one in every if one is not None]
            return frozenset().union(*sure) if len(sure) == len(every) else None
        case _:
            return None
