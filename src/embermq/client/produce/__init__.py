"""Producers: messages on their way to a broker.

    blocking.py       Producer and TransactionProducer for threads; gate.py bounds what they have under way
    direct.py         single sends on the caller's thread
    producer.py       the same for asyncio
    core.py           ProducerCore: the parts of one producer
    sender.py         Sender: drives tries over connections, by callbacks
    attempts.py       the tries of one message, as a state machine; queue_choice.py which queue is next
    outgoing.py       from a Message to its form on the wire; compression.py, unique_ids.py
    batches.py        many messages in few requests
    replies.py        requests that wait for a reply
    transactions.py   half messages and questions about them
    hooks.py          what runs around sends; traced_sends.py, trace_posts.py the message trace
    settings.py       keyword arguments and defaults; results.py what comes out

Pure: attempts, queue_choice, batches, compression, results, settings.
"""
