"""Consumers: members of a group that share the queues of topics, and what they do with the messages.

Each decision is a value made by pure code (allocation, pulls of a queue, retries, starts, locks); a driver on an
asyncio loop carries it out. The same driver serves `embermq.client.aio` and, on a background thread,
`embermq.client`.

    push.py  pull.py      the consumers for asyncio; blocking.py those without; settings.py their options
    consumer_core.py      what both have in common, put together
    membership.py         rebalancing; allocation.py which queues belong to whom
    readers.py            queues taken, lost, committed, locked; reader.py the pulls of one
    pulling.py            the pulls of one queue as a state machine; process_queue.py what was pulled, not consumed
    concurrent.py         consumption side by side; orderly.py in order; pull_buffers.py by asking
    workers.py            threads and tasks that run handlers; handlers.py what they answer; handling.py which one
    retries.py            what becomes of a message that was not consumed
    subscribing.py        tags and SQL92; starts.py where a new group begins; locks.py locks of ordered queues
    offset_stores.py      offsets at brokers and in files
    broker_requests.py    what brokers ask (40, 220, 221, 307, 309); running_info.py, figures.py

Everything runs on the loop's thread unless its file says otherwise.
"""
