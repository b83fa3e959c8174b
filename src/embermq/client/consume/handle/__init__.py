"""Messages given to handlers: threads and tasks, order, and what becomes of a message that was not consumed.

    concurrent.py       consumption side by side; orderly.py in order
    workers.py          threads and tasks that run handlers; handlers.py what they answer; by_topic.py which one
    retries.py          the way of a message that was not consumed
    hooks.py            what runs around handlers; traced_calls.py lines of the message trace
    figures.py          what was handled, counted

Where messages come from and how offsets are kept is the business of `consume/queues`.
"""
