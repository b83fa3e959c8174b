"""A process that uses a store while system calls fail under it (faultlib.c); tells what was acknowledged.

    LD_PRELOAD=faultlib.so FAULT_...=... python -m tests.crash.fault_child DIRECTORY FIRST SETTINGS

It opens the store, appends in every way, reads back, and closes, several times over. An error of ours is an answer;
any other exception ends the process with its traceback. Standard output has a word a line: `stored` with the numbers
that were acknowledged, `refused`, `closed` or `unclosed`, and at the end `done` with the next number.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from embermq import Message, MessageStore, Receipt
from embermq.errors import EmberError
from embermq.settings import FlushDisk, StoreSettings

OPENINGS = 4
STEPS = 60
LIST_COUNT = 3
BODY = b"x" * 150
WAIT_SECONDS = 30.0


def message(n: int) -> Message:
    return Message("T", b"%d|" % n + BODY, keys=[f"k{n}"], queue_id=n % 3)


def tell(word: str, *numbers: int) -> None:
    os.write(1, f"{word} {' '.join(map(str, numbers))}\n".encode())


class User:
    """Appends numbered messages, and reads them back as they were acknowledged."""

    def __init__(self, store: MessageStore, first: int) -> None:
        self._store, self.n = store, first

    def step(self, turn: int) -> None:
        ways: list[Callable[[], None]] = [self.append, self.append_many, self.append_async, self.read]
        ways[turn % len(ways)]()

    def append(self) -> None:
        n, self.n = self.n, self.n + 1
        acknowledge([self._store.append(message(n))], n)

    def append_many(self) -> None:
        n, self.n = self.n, self.n + LIST_COUNT
        acknowledge(list(self._store.append_many([message(one) for one in range(n, n + LIST_COUNT)])), n)

    def append_async(self) -> None:
        n, self.n = self.n, self.n + LIST_COUNT
        futures: list[tuple[int, Future[Receipt]]] = []
        try:
            for one in range(n, n + LIST_COUNT):
                futures.append((one, self._store.append_async(message(one))))
        finally:
            for one, future in futures:
                acknowledge([future.result(WAIT_SECONDS)], one)

    def read(self) -> None:
        store, at = self._store, max(self.n - 5, 0)
        for queue_id in range(3):
            outcome = store.fetch("T", queue_id, max(store.max_offset("T", queue_id) - 3, 0))
            check(outcome.messages)
            store.offset_at("T", queue_id, 0)
        found = store.find("T", f"k{at}")
        assert all(list(one.keys) == [f"k{at}"] for one in found), found
        check(found)
        for one, _ in zip(store.scan(), range(20), strict=False):
            check([one])
            store.get(one.message_id)
        store.stats()
        store.runtime_info()


def check(messages: object) -> None:
    assert isinstance(messages, list | tuple)
    for one in messages:
        n = int(one.body[: one.body.index(b"|")])
        assert one.body == message(n).body, one
        assert one.queue_id == n % 3, one


def acknowledge(receipts: list[Receipt], n: int) -> None:
    if all(receipt.ok for receipt in receipts):
        tell("stored", *range(n, n + len(receipts)))


def use(root: Path, settings: StoreSettings, n: int, *, opens_badly: bool) -> int:
    """Open, use and close the store once; the next number. Calls fail from the beginning, or once it is open."""
    faults = Path(os.environ["FAULT_FLAG"])
    faults.unlink(missing_ok=True)
    if opens_badly:
        faults.touch()
    try:
        store = MessageStore.open(root, settings)
    except EmberError:
        tell("refused")
        return n
    faults.touch()
    user = User(store, n)
    for turn in range(STEPS):
        try:
            user.step(turn)
        except EmberError:
            tell("refused")
    try:
        store.close()
        tell("closed")
    except EmberError:
        tell("unclosed")
    return user.n


def main(root: Path, first: int, given: dict[str, object]) -> None:
    given = {**given, "flush": FlushDisk(str(given["flush"]))}
    settings = StoreSettings(**given)  # type: ignore[arg-type]
    for turn in range(OPENINGS):
        first = use(root, settings, first, opens_badly=turn % 2 == 1)
    tell("done", first)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
