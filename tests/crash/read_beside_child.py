"""A process that appends while others read beside it: queue files are written every few milliseconds, a topic is
deleted again and again, old files go if the settings say so. Made to be killed.

    python -m tests.crash.read_beside_child DIRECTORY LIFE SETTINGS-AS-JSON

Each queue of topic Stays counts on from what it has, each queue of topic Goes from 0 after every deletion; a body says
`life offset`, where each life of Goes has another number. Each line of output, `topic queue life next`, says what is
acknowledged; a line with `next` 0 says that a life has begun.
"""

import json
import sys
import threading
import time
from pathlib import Path

from embermq import Message, MessageStore, StoreSettings
from embermq.store.services import retention

STAYS, GOES = "Stays", "Goes"
QUEUES = 3
ROUNDS_OF_A_LIFE = 60
SEGMENTS_MAX = 8
WRITE_OUT_SECONDS = 0.004


def body(life: int, offset: int) -> bytes:
    return b"%d %d " % (life, offset) + b"." * (offset % 50)


def append(store: MessageStore, topic: str, queue_id: int, life: int, offset: int) -> None:
    receipt = store.append(Message(topic, body(life, offset), queue_id=queue_id, keys=[f"{queue_id}-{offset}"]))
    assert receipt.ok
    assert receipt.queue_offset == offset
    print(topic, queue_id, life, offset + 1, flush=True)


def write_out_for_ever(store: MessageStore) -> None:
    while not store.closed:
        store.engine.services.housekeeping.write_out()
        time.sleep(WRITE_OUT_SECONDS)


def main() -> None:
    directory, life_text, given = sys.argv[1:]
    retention.FIRST_LOOK_SECONDS = 0.005
    with MessageStore.open(Path(directory), StoreSettings(**json.loads(given))) as store:
        threading.Thread(target=write_out_for_ever, args=(store,), daemon=True).start()
        life = int(life_text)
        ends = [store.max_offset(STAYS, queue_id) for queue_id in range(QUEUES)]
        while True:
            life += 1
            print(GOES, -1, life, 0, flush=True)
            store.delete_topic(GOES)
            for number in range(ROUNDS_OF_A_LIFE):
                for queue_id in range(QUEUES):
                    append(store, STAYS, queue_id, 0, ends[queue_id])
                    ends[queue_id] += 1
                    append(store, GOES, queue_id, life, number)
                while store.stats().segments > SEGMENTS_MAX:
                    time.sleep(0.0005)


if __name__ == "__main__":
    main()
