"""Numbered messages for small stores."""

from embermq import Message


def orders(count: int, topic: str = "orders", queues: int = 4, body_bytes: int = 20) -> list[Message]:
    """Numbered messages over `queues` queues, with a tag (paid, sent, created in turn) and a key each."""
    tags = ("paid", "sent", "created")
    return [
        Message(
            topic,
            b"%0*d" % (body_bytes, number),
            tags=tags[number % 3],
            keys=[f"o-{number}"],
            properties={"n": str(number)},
            queue_id=number % queues,
        )
        for number in range(count)
    ]
