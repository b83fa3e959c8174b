"""Whatever call of the file layer fails, with whatever error: users get one of our errors, and the store goes on.

One fault a round: the n-th call of one kind, once or from then on, while a user opens a store, appends, reads in every
way there is, deletes a topic and closes. What must hold: every exception is an EmberError, every call comes to an end,
and after the fault an ordinary opening has everything that was acknowledged.
"""

import errno
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

from embermq import Message, MessageStore
from embermq.errors import EmberError
from embermq.settings import FlushDisk
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from embermq.testing.faulty_files import KINDS, FaultyFiles
from embermq.testing.lossy_files import LossyFiles
from embermq.testing.unsynced import keep_everything
from tests.crash import numbered

ROOT = Path("/store")
ERRORS = (errno.EMFILE, errno.EROFS, errno.EIO, errno.ENOSPC, errno.EACCES, errno.ENOMEM, errno.ELOOP)
BEFORE = 40
SECONDS_MAX = 60.0
T = TypeVar("T")


def builder() -> StoreBuilder:
    return StoreBuilder(ROOT, clock=ManualClock(), flush=FlushDisk.ASYNC, **numbered.TINY)


@pytest.fixture(scope="module")
def closed() -> LossyFiles:
    """A store with several files of each kind. Copied for each round."""
    disk = LossyFiles()
    with builder().on(disk).open() as store:
        for number in range(BEFORE):
            store.append(message(number))
    return disk


def message(number: int) -> Message:
    return Message("orders", b"%d" % number + bytes(300), tags=f"t{number % 3}", keys=[f"k{number}"])


class User:
    """Does everything once, and remembers what was acknowledged and what went wrong."""

    def __init__(self, files: FaultyFiles) -> None:
        self._files = files
        self.acknowledged = set(range(BEFORE))
        self.surprises: list[BaseException] = []

    def run(self) -> None:
        self._read_only()
        store = self._tried(lambda: builder().on(self._files).open())
        if store is None:
            return
        numbers = count(BEFORE)
        for _ in range(12):
            self._append(store, next(numbers))
        few = [next(numbers) for _ in range(10)]
        if self._tried(lambda: store.append_many(map(message, few))) is not None:
            self.acknowledged.update(few)
        self._read(store)
        self._tried(lambda: store.delete_topic("gone"))
        self._append(store, next(numbers))
        self._tried(store.close)

    def _read_only(self) -> None:
        reader = self._tried(lambda: builder().on(self._files).open(read_only=True))
        if reader is not None:
            self._read(reader)
            self._tried(reader.close)

    def _append(self, store: MessageStore, number: int) -> None:
        receipt = self._tried(lambda: store.append(message(number)))
        if receipt is not None and receipt.ok:
            self.acknowledged.add(number)

    def _read(self, store: MessageStore) -> None:
        found = self._tried(lambda: store.fetch("orders", 0, 0).messages)
        self._tried(lambda: store.fetch("orders", 0, 30, tags="t1").messages)
        self._tried(lambda: store.find("orders", key="k7"))
        self._tried(lambda: store.offset_at("orders", 0, 1))
        self._tried(store.topics)
        self._tried(lambda: [one for one, _ in zip(store.scan(), range(5), strict=False)])
        if found:
            self._tried(lambda: store.get(found[0].message_id))
            self._tried(lambda: store.at(found[0].physical_offset))

    def _tried(self, call: Callable[[], T]) -> T | None:
        try:
            return call()
        except EmberError:
            return None
        except BaseException as surprise:
            self.surprises.append(surprise)
            return None


def one_round(closed: LossyFiles, kind: str, nth: int, error: int, *, for_good: bool) -> None:
    disk = closed.crash(keep_everything)
    files = FaultyFiles(disk)
    files.fail(kind, nth=nth, times=None if for_good else 1, error=error)
    user = User(files)
    thread = threading.Thread(target=user.run, daemon=True)
    thread.start()
    thread.join(SECONDS_MAX)
    assert not thread.is_alive(), "a call did not come to an end"
    assert not user.surprises, user.surprises
    files.heal()
    with builder().on(disk).open() as store:
        messages = [one for one in store.scan() if one.topic == "orders"]
    found = {int(one.body.rstrip(b"\0")) for one in messages}
    assert user.acknowledged <= found, (user.acknowledged - found, files.steps[-5:])


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_call_fails(closed: LossyFiles, kind: str) -> None:
    for number, nth in enumerate((1, 5)):
        one_round(closed, kind, nth, ERRORS[(number + len(kind)) % len(ERRORS)], for_good=number % 2 == 1)


@pytest.mark.long
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: errno.errorcode[error])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_call_fails(closed: LossyFiles, kind: str, error: int) -> None:
    for nth in (*range(1, 12), 15, 20, 30, 45, 70):
        for for_good in (False, True):
            one_round(closed, kind, nth, error, for_good=for_good)
