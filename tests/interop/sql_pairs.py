"""Random SQL92 expressions and properties: most of them sound, some with a token too few, too many or elsewhere."""

from random import Random

NAMES = ["a", "b", "c", "d", "x", "y", "T", "big", "neg", "odd", "_$9", "TAGS"]
VALUES = [
    *["5", "6", "-5", "+5", "0", "-0", "05", "3000000000", "-2147483648", "2147483648", "9223372036854775807"],
    *[
        "9223372036854775808",
        "3.5",
        ".5",
        "5.",
        "5.0",
        "-0.0",
        "0.0",
        "1e1",
        "1E400",
        "5d",
        "5f",
        "0x10",
        "0x1p3",
        "1_0",
    ],
    *["NaN", "-NaN", "Infinity", "-Infinity", " 5", "5 ", "\t5.5\n", "٥", "𝟓", "５", "true", "TRUE", "tRuE", "false"],
    *["abc", "ABC", "it's", "é", "'", "a b", "null", "=", "-", "+", "e5", "5e", "1e+2", "..", "5L"],
]
LITERALS = [
    *["5", "6", "0", "05", "5L", "5l", "0L", "3000000000", "2147483647", "2147483648", "9223372036854775807"],
    *["9223372036854775808", "5.0", "5.", ".5", "3.5", "1e1", "1E-2", "5e", "0.0", "1e400", "4.9e-324"],
    *["'5'", "'abc'", "'it''s'", "''", "'true'", "'3.5'", "'é'", "true", "FALSE", "Null", "TRUE"],
]
BLANKS = [" ", " ", " ", "  ", "\n", "\t", " /* c */ ", " -- c\n", "\f", "\r\n"]
NOISE = [
    "(",
    ")",
    ",",
    "'",
    "#",
    "-",
    "--",
    "/*",
    "and",
    "or",
    "not",
    "is",
    "in",
    "between",
    "null",
    "5",
    "x",
    "=",
    "<>",
]


def properties(random: Random) -> dict[str, str]:
    return {name: random.choice(VALUES) for name in NAMES if name != "x" and random.random() < 0.75}


def expression(random: Random) -> str:
    tokens = _disjunction(random, 3)
    if random.random() < 0.15:
        at = random.randrange(len(tokens) + 1)
        change = random.random()
        if change < 0.4:
            tokens.insert(at, random.choice(NOISE))
        elif change < 0.7:
            tokens[at : at + 1] = []
        else:
            tokens[at : at + 1] = [random.choice(NOISE)]
    return "".join(token + random.choice(BLANKS) for token in tokens)


def _chain(random: Random, parts: list[list[str]], joint: str) -> list[str]:
    tokens = parts[0]
    for part in parts[1:]:
        tokens = [*tokens, random.choice([joint, joint.lower()]), *part]
    return tokens


def _few(random: Random) -> int:
    return random.choice([1, 1, 1, 2, 2, 3])


def _disjunction(random: Random, depth: int) -> list[str]:
    return _chain(random, [_conjunction(random, depth) for _ in range(_few(random))], "OR")


def _conjunction(random: Random, depth: int) -> list[str]:
    return _chain(random, [_equality(random, depth) for _ in range(_few(random))], "AND")


def _equality(random: Random, depth: int) -> list[str]:
    tokens = _comparison(random, depth)
    while random.random() < 0.35:
        if random.random() < 0.3:
            tokens = [*tokens, "IS", *random.choice([["NULL"], ["not", "null"]])]
        else:
            tokens = [*tokens, random.choice(["=", "=", "<>"]), *_comparison(random, depth)]
    return tokens


def _comparison(random: Random, depth: int) -> list[str]:
    tokens = _unary(random, depth)
    chosen = random.random()
    if chosen < 0.3:
        return [*_number(random, depth), random.choice([">", ">=", "<", "<="]), *_number(random, depth)]
    negated = ["NOT"] if random.random() < 0.4 else []
    if chosen < 0.4:
        of, low, high = (_number(random, depth) for _ in range(3))
        return [*of, *negated, "between", *low, "and", *high]
    if chosen < 0.5:
        texts = [[random.choice(LITERALS if random.random() < 0.05 else ["'5'", "'abc'", "'it''s'", "'true'"])]]
        texts += [["'6'"]] * random.choice([0, 0, 1])
        tokens = [random.choice(NAMES)] if random.random() < 0.9 else tokens
        return [*tokens, *negated, "In", "(", *_chain(random, texts, ","), ")"]
    return tokens


def _number(random: Random, depth: int) -> list[str]:
    """What may stand beside > and <; now and then something that may not."""
    chosen = random.random()
    if chosen < 0.05:
        return _unary(random, depth)
    if chosen < 0.65:
        return [random.choice(NAMES)]
    return [
        *random.choice([[], [], ["-"], ["+"]]),
        random.choice(["5", "6", "0", "3000000000", "3.5", ".5", "1e1", "2147483648"]),
    ]


def _unary(random: Random, depth: int) -> list[str]:
    chosen = random.random()
    if chosen < 0.08:
        return [random.choice(["-", "+"]), *_unary(random, depth)]
    if chosen < 0.12:
        return ["NOT", *_unary(random, depth)]
    if chosen < 0.2 and depth:
        return ["(", *_disjunction(random, depth - 1), ")"]
    return [random.choice(NAMES if random.random() < 0.6 else LITERALS)]
