"""A store on a small disk that fills up and is freed again; run in a mount namespace of its own.

    unshare --user --map-root-user --mount python -m tests.crash.disk_full_child MOUNT SCENARIO

Mounts a tmpfs of DISK_BYTES at MOUNT and plays one scenario. Whatever is not as it should be is an AssertionError,
and so a traceback and exit code 1; a SIGBUS, which is what a full disk does to a careless store, is a negative one.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from embermq import Message, MessageStore, StoreSettings
from embermq.errors import AppendRefused, DiskFull
from embermq.settings import FlushDisk
from embermq.store.services import housekeeping, retention
from tests.support.waiting import wait_until

MIB = 1 << 20
DISK_BYTES = 24 * MIB
PATIENCE_SECONDS = 60.0
BODY = bytes(2000)


def settings(**more: object) -> StoreSettings:
    small: dict[str, object] = {
        "segment_bytes": MIB,
        "queue_file_bytes": 20 * 1000,
        "index_slots_max": 1000,
        "index_entries_max": 4000,
    }
    return StoreSettings(**(small | more))  # type: ignore[arg-type]


def append_until_refused(store: MessageStore, n: int) -> tuple[int, AppendRefused]:
    while True:
        try:
            assert store.append(message(n)).ok
        except AppendRefused as refused:
            return n, refused
        n += 1


def message(n: int) -> Message:
    return Message("T", b"%d|" % n + BODY, keys=[f"k{n}"], queue_id=n % 3)


def takes_appends(store: MessageStore, n: int) -> bool:
    try:
        return store.append(message(n)).ok
    except AppendRefused:
        return False


def check(store: MessageStore, start: int, end: int) -> None:
    """Messages start..end, and no others, in the log, in their queues, and by their keys."""
    assert store.wait_for_dispatch(PATIENCE_SECONDS)
    numbers = [int(one.body[: one.body.index(b"|")]) for one in store.scan()]
    assert numbers == list(range(start, end)), (numbers[:3], numbers[-3:], start, end)
    for queue_id in range(3):
        at, found = store.min_offset("T", queue_id), []
        while at < store.max_offset("T", queue_id):
            outcome = store.fetch("T", queue_id, at)
            found += [int(one.body[: one.body.index(b"|")]) for one in outcome.messages]
            at = outcome.next_offset
        assert found == [n for n in range(start, end) if n % 3 == queue_id]
    for n in (start, end - 1):
        assert len(store.find("T", f"k{n}")) == 1


def fill_and_free(mount: Path, flush: FlushDisk) -> None:
    """Somebody else takes the disk: appends are refused, reads go on, and all resumes by itself."""
    other = mount / "other"
    with MessageStore.open(mount / "store", settings(flush=flush, delete_when_full=False)) as store:
        n = 0
        while n < 2000:
            store.append(message(n))
            n += 1
        fill_disk(other)
        n, refused = append_until_refused(store, n)
        assert "No space left" in str(refused) or isinstance(refused, DiskFull), refused
        wait_until(lambda: isinstance(append_until_refused(store, n)[1], DiskFull), "refused as full")
        text = str(append_until_refused(store, n)[1])
        assert f"mounted at {mount} is 100% full" in text, text
        assert "90%" in text
        assert "\n" not in text
        first = store.fetch("T", 0, 0)
        assert first.messages[0].body.startswith(b"0|")
        other.unlink()
        wait_until(lambda: takes_appends(store, n), "appends taken again")
        n += 1
        for _ in range(500):
            store.append(message(n))
            n += 1
        check(store, 0, n)
        assert not store.engine.dispatcher.failed_sinks
    with MessageStore.open(mount / "store", settings(flush=flush)) as again:
        check(again, 0, n)
        assert not again.recovery.damages


def fill_disk(path: Path) -> None:
    """Take every block there is."""
    with path.open("wb", buffering=0) as file:
        for size in (MIB, 4096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass


def killed_while_full(mount: Path) -> None:
    """A process that dies on a full disk leaves a store that opens there, and one that goes on when there is room."""
    child = os.fork()
    if child == 0:
        store = MessageStore.open(mount / "store", settings(delete_when_full=False))
        n = 0
        while n < 2000:
            store.append(message(n))
            n += 1
        store.wait_for_dispatch()
        fill_disk(mount / "other")
        n, _ = append_until_refused(store, n)
        (mount / "other").write_bytes(b"")  # Give back a little, to say how far it came.
        (mount / "count").write_text(str(n))
        fill_disk(mount / "other")
        os.kill(os.getpid(), 9)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -9
    n = int((mount / "count").read_text())
    with MessageStore.open(mount / "store", settings(), read_only=True) as reader:
        numbers = [int(one.body[: one.body.index(b"|")]) for one in reader.scan()]
        assert numbers == list(range(n))
    (mount / "other").unlink()
    with MessageStore.open(mount / "store", settings()) as again:
        check(again, 0, n)


def retention_makes_room(mount: Path) -> None:
    """Four times the disk's size goes through it; the oldest files go in time, and nothing is refused for long."""
    retention.FIRST_LOOK_SECONDS = 0.01
    plan = settings(clean_interval_ms=5, delete_segment_pause_ms=1, delete_queue_pause_ms=1)
    with MessageStore.open(mount / "store", plan) as store:
        n = 0
        while store.max_physical < 4 * DISK_BYTES:
            n, refused = append_some(store, n)
            if refused is not None:
                wait_until(partial(takes_appends, store, n), f"appends taken again after: {refused}")
                n += 1
        assert store.min_physical > 2 * DISK_BYTES
    with MessageStore.open(mount / "store", settings(delete_when_full=False)) as again:
        first = next(again.scan())
        check(again, int(first.body[: first.body.index(b"|")]), n)
        assert again.recovery.reason == "closed cleanly", again.recovery


def append_some(store: MessageStore, n: int) -> tuple[int, AppendRefused | None]:
    for _ in range(50):
        try:
            store.append(message(n))
        except AppendRefused as refused:
            return n, refused
        n += 1
    return n, None


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "async": lambda mount: fill_and_free(mount, FlushDisk.ASYNC),
    "sync": lambda mount: fill_and_free(mount, FlushDisk.SYNC),
    "killed": killed_while_full,
    "retention": retention_makes_room,
}


def main() -> None:
    mount, scenario = Path(sys.argv[1]), sys.argv[2]
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(mount)], check=True)
    housekeeping.DISK_CHECK_TICKS = 1
    SCENARIOS[scenario](mount)
    assert threading.active_count() == 1, threading.enumerate()


if __name__ == "__main__":
    main()
