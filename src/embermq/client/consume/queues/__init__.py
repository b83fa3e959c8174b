"""Queues that a consumer reads: which are its own, where each begins, what was pulled and how far it is finished.

    membership.py       rebalancing; allocation.py which queues belong to whom
    readers.py          queues taken, lost, committed, locked; reader.py the pulls of one
    pulling.py          the pulls of one queue as a state machine; process_queue.py what was pulled, not consumed
    starts.py           where a new group begins; locks.py locks of ordered queues
    offset_stores.py    offsets at brokers and in files

Pure: allocation, pulling, process_queue, starts, locks. It knows no handler: what is done with messages is a
`Consumption`, given by the consumer.
"""
