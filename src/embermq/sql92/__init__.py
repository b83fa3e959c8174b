"""SQL92 filters: expressions over the properties of a message, with the answers of RocketMQ 4.9.

    compile_expression("price > 5 AND region IN ('eu', 'us')").matches(properties)

    grammar.py     text -> tree: the grammar, and what is refused where. Imports lark, which takes a tenth of a second:
                   it is loaded with the first expression
    tree.py        the nodes, and which of them cannot stand beside each other
    closures.py    tree -> a function of the stored property bytes; looks up what the expression names, and no more
    needles.py     texts without which a message cannot match
    java_values.py numbers as Java reads and compares them

An expression has three values: true, false and unknown. Evaluating it may also fail, as where a property that is no
number is compared with one; then a message does not match. docs/filters.md has the rules. Pure; any thread.
"""

from embermq.sql92.expression import (
    EXPRESSION_CHARACTERS_MAX,
    SQL92,
    EvaluationFailed,
    Expression,
    compile_expression,
    load_grammar,
)

__all__ = [
    "EXPRESSION_CHARACTERS_MAX",
    "SQL92",
    "EvaluationFailed",
    "Expression",
    "compile_expression",
    "load_grammar",
]
