"""The messages every scenario uses, and stores filled with them.

Message number n has a body of repeating bytes, the tag `paid`, the key `order-n` and a unique key: what a
broker stores for a client's message, and byte for byte what the peers' benchmark writes. `Form.ENCODED` hands
the property string over ready-made, as a broker has it; `Form.TAGS_AND_KEYS` leaves the unique key out and uses
the arguments everybody uses.
"""

import gc
import os
import shutil
import subprocess
from enum import Enum
from functools import lru_cache
from pathlib import Path

from embermq import Message, MessageStore, StoreSettings
from embermq.clock import SystemClock
from embermq.format.frame import FIXED_BYTES
from embermq.model.properties import encode_properties

TOPIC = "bench"
QUEUES = 4
BATCH = 256
BORN_MS = 1_700_000_000_000
FIRST_NUMBER = 1_000_000  # Seven digits: all records of a run have the same size.
_CHUNK = 4096


class Form(Enum):
    ENCODED = "with unique key"
    TAGS_AND_KEYS = "tags and keys"


class FixedClock(SystemClock):
    """Always the same wall time, so that the same messages give the same bytes; durations are real."""

    def now_ms(self) -> int:
        return BORN_MS + 1000


def property_bytes(number: int) -> bytes:
    unique = f"7F0000010001639CFE2B{number:012X}"
    return encode_properties({"UNIQ_KEY": unique, "KEYS": f"order-{number}", "TAGS": "paid"})


@lru_cache
def bodies(body_bytes: int) -> tuple[bytes, ...]:
    """The 256 different bodies there are; message n of a sequence has the n-th, modulo 256."""
    return tuple(bytes((at * 31 + number) & 0xFF for at in range(body_bytes)) for number in range(256))


def make_messages(
    first: int,
    count: int,
    body_bytes: int,
    form: Form = Form.ENCODED,
    *,
    queue_id: int | None = None,
    topics: int = 1,
) -> list[Message]:
    """Messages first..first+count, over four queues or in one; over many topics round robin."""
    patterns = [memoryview(body) for body in bodies(body_bytes)]
    names = [TOPIC] if topics == 1 else [f"{TOPIC}-{number:04d}" for number in range(topics)]
    messages = []
    for at in range(count):
        number = first + at
        place = at // topics % QUEUES if queue_id is None else queue_id
        body = bytes(patterns[at % 256])  # A copy each: shared ones would stay in the CPU's cache.
        if form is Form.ENCODED:
            message = Message(
                names[at % topics],
                body,
                queue_id=place,
                born_timestamp=BORN_MS,
                encoded_properties=property_bytes(number),
            )
        else:
            message = Message(
                names[at % topics], body, tags="paid", keys=f"order-{number}", queue_id=place, born_timestamp=BORN_MS
            )
        messages.append(message)
    return messages


def record_bytes(number: int, body_bytes: int, form: Form = Form.ENCODED) -> int:
    """Size of the record of a message of topic TOPIC."""
    (message,) = make_messages(number, 1, body_bytes, form)
    return FIXED_BYTES + body_bytes + len(TOPIC) + len(message.property_bytes())


def messages_in(log_bytes: int, body_bytes: int, form: Form = Form.ENCODED) -> int:
    """How many messages make a log of at least `log_bytes`."""
    return -(-log_bytes // record_bytes(FIRST_NUMBER, body_bytes, form))


def load_kernels() -> None:
    """Load everything that is loaded once, so that no round pays for it."""
    import embermq.columns.compiled.admit
    import embermq.columns.compiled.check
    import embermq.columns.compiled.check_log
    import embermq.columns.compiled.derive
    import embermq.columns.compiled.encode
    import embermq.columns.compiled.messages
    import embermq.columns.compiled.pairs
    import embermq.columns.compiled.scan
    import embermq.columns.compiled.stored  # noqa: F401


def fill(
    path: Path,
    settings: StoreSettings,
    *,
    body_bytes: int,
    messages: int,
    form: Form = Form.ENCODED,
    close: bool = True,
) -> MessageStore:
    """A store with so many messages; closed unless the caller wants it running."""
    store = MessageStore.open(path, settings, clock=FixedClock())
    for done in range(0, messages, _CHUNK):
        store.append_many(make_messages(FIRST_NUMBER + done, min(_CHUNK, messages - done), body_bytes, form))
    store.wait_for_dispatch(600.0)
    if close:
        store.close()
    return store


def sync_log(path: Path) -> None:
    """Write the log's pages to the disk: a start that finds them dirty would be measuring the disk."""
    for file in sorted((path / "commitlog").iterdir()):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def copy_store(source: Path, target: Path, *, derived: bool) -> None:
    """The store again in a new place: the log linked (starting a store does not change it), the rest copied.

    Without `derived` only the log comes along: what is left when queues, index and our own files are deleted.
    """
    (target / "commitlog").mkdir(parents=True)
    for file in (source / "commitlog").iterdir():
        if file.stat().st_size:
            os.link(file, target / "commitlog" / file.name)
    if not derived:
        shutil.copy2(source / "checkpoint", target)
        return
    for entry in source.iterdir():
        if entry.name != "commitlog":
            subprocess.run(["cp", "-a", "--sparse=always", str(entry), str(target)], check=True)


def quiet() -> None:
    """Before a measurement: no garbage of the one before."""
    gc.collect()
