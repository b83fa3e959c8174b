"""A process in which several threads append at once and delayed messages are delivered meanwhile; made to be killed.

    python -m tests.crash.crowd_child DIRECTORY LIFE SETTINGS-AS-JSON

Thread t appends to queue t of topic Crowd: bodies `life|t|i|...`, one by one, as lists and as batches; the last thread
appends delayed messages for topic Later. Each line of output, `t i`, says that all below i of thread t is acknowledged.
"""

import json
import os
import sys
import threading
from pathlib import Path

from embermq import BatchItem, Message, MessageBatch, MessageStore, StoreSettings

THREADS = 4
LATER = THREADS - 1
BODY = bytes(200)


def body(life: int, thread: int, i: int) -> bytes:
    return b"%d|%d|%d|" % (life, thread, i) + BODY[: i * 7 % 200]


def append(store: MessageStore, life: int, thread: int, i: int) -> int:
    """Append message i and perhaps more; the next number."""
    if thread == LATER:
        assert store.append(Message("Later", body(life, thread, i), delay_level=1)).ok
        return i + 1
    if i % 5 == 3:
        bodies = [body(life, thread, n) for n in range(i, i + 3)]
        if i % 2:
            receipts = store.append_many([Message("Crowd", one, queue_id=thread, keys=[f"{thread}"]) for one in bodies])
            assert all(receipt.ok for receipt in receipts)
        else:
            batch = MessageBatch(Message("Crowd", queue_id=thread), [BatchItem(one) for one in bodies])
            assert store.append_batch(batch).ok
        return i + 3
    assert store.append(Message("Crowd", body(life, thread, i), queue_id=thread)).ok
    return i + 1


def work(store: MessageStore, life: int, thread: int) -> None:
    i = 0
    while True:
        i = append(store, life, thread, i)
        os.write(1, b"%d %d\n" % (thread, i))


def main() -> None:
    directory, life, given = sys.argv[1:]
    with MessageStore.open(Path(directory), StoreSettings(**json.loads(given))) as store:
        threads = [threading.Thread(target=work, args=(store, int(life), thread)) for thread in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
