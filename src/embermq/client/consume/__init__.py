"""Consumers: members of a group that share the queues of topics, and what they do with the messages.

Each decision is a value made by pure code (allocation, pulls of a queue, retries, starts, locks); a driver on an
asyncio loop carries it out. The same driver serves `embermq.client.aio` and, on a background thread,
`embermq.client`.

    push.py  pull.py      the consumers for asyncio; blocking.py those without; settings.py their options
    consumer_core.py      what both have in common, put together
    queues/               which queues are read, by whom, from where, and how far
    handle/               handlers, side by side or in order; pull_buffers.py messages for who asks for them
    subscribing.py        tags and SQL92
    broker_requests.py    what brokers ask (40, 220, 221, 307, 309); running_info.py

Everything runs on the loop's thread unless its file says otherwise.
"""
