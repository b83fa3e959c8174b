"""Transactions: half messages, their decision, and the question back to the producer. The loop's thread.

    half_messages.py   the records of a transaction, and one made from another; pure
    states.py          the states of a transaction and what each event does, as a table; pure
    undecided.py       which half messages are not decided, and how far both queues are counted
    opening.py         that, from the queues of a store that is opened
    saved_state.py     that, on the disk: never ahead of what the log has durably
    check_rules.py     what a round of checks does about a half message, as a table; pure
    check_back.py      the rounds: producers are asked what became of their transactions
    requests.py        half messages stored, transactions ended (37), checks resumed (323)
    runs.py            many transactions ended at once, of all connections, before the request table is asked

A half message lies in RMQ_SYS_TRANS_HALF_TOPIC, where no consumer sees it. To commit it, the message itself and a
record of the decision (RMQ_SYS_TRANS_OP_HALF_TOPIC) are stored side by side in one append; to roll it back, the record
of the decision alone. Which half messages are undecided is held in memory, so that a second decision changes nothing.
"""

from embermq.broker.transactions.half_messages import is_half
from embermq.broker.transactions.requests import Transactions
from embermq.broker.transactions.runs import EndRuns
from embermq.broker.transactions.saved_state import TRANSACTIONS

__all__ = ["TRANSACTIONS", "EndRuns", "Transactions", "is_half"]
