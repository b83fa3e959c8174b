"""Names that a SQL text speaks of: its words and what it has in quotes, not what its texts and comments say.

Spark's own parser would know better, but it is in the JVM, and with Spark Connect there is none. A name too many does
no harm: it is a table that is not used. Pure.
"""

import re

_PARTS = re.compile(
    r"""
    --(?:\\\n|[^\n])* | /\*(?!\+).*?\*/         # comments; a hint is none
    | \b[rR]'[^']*' | '(?:[^'\\]|\\.)*'         # texts
    | `(?P<quoted>(?:[^`]|``)*)`
    | "(?P<either>(?:[^"\\]|\\.)*)"             # a text, or a name: a setting of the session
    | (?P<word>\w+)
    """,
    re.VERBOSE | re.DOTALL,
)


def names_in(text: str) -> set[str]:
    """Whatever may be the name of a table."""
    found = set()
    for part in _PARTS.finditer(text):
        name = part["quoted"] or part["either"] or part["word"]
        if name is not None:
            found.add(name.replace("``", "`"))
    return found
