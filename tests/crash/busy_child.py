"""A process whose store never rests: messages, topics that are made and deleted, log files that go.

    python -m tests.crash.busy_child DIRECTORY SETTINGS-AS-JSON

Topic `steady` is never deleted; its newest messages are always there. Ends when its standard input does. Prints a line
when there is something to look at.
"""

import json
import select
import sys
import time
from pathlib import Path

from embermq import Message, MessageStore, StoreSettings

KEEP_MS = 150  # Older log files go.
TOPICS = 3


def main() -> None:
    directory, given = sys.argv[1:]
    with MessageStore.open(Path(directory), StoreSettings(**json.loads(given))) as store:
        number = 0
        for _ in range(5):
            number = one_round(store, number)
        print(number, flush=True)
        while not select.select([sys.stdin], [], [], 0.005)[0]:
            number = one_round(store, number)


def one_round(store: MessageStore, first: int) -> int:
    """Some messages, one topic less, and the oldest files gone; answers the number of the next message."""
    passing = f"passing{first % TOPICS}"
    number = first
    for number in range(first, first + 40):
        topic = "steady" if number % 2 else passing
        store.append(Message(topic, bytes(100), tags="t", keys=f"k{number}", queue_id=number // 2 % 2))
    if first % 3 == 0:
        store.delete_topic(passing)
    store.delete_expired(before_ms=time.time_ns() // 1_000_000 - KEEP_MS)
    return number + 1


if __name__ == "__main__":
    main()
