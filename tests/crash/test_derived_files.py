"""Queue and index files missing, empty, short, zeroed or unreadable: every message is back after the next start.

And the two files of ours that a start believes, and the checkpoint, likewise. With and without `abort`.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from embermq import Message
from embermq.repair.verify.store_check import verify
from embermq.store.index.proof import prove_index
from embermq.testing.lossy_files import LossyFiles
from tests.crash import disks, numbered

pytestmark = pytest.mark.usefixtures("short_tail")

COUNT = 70
PLAN = disks.builder()
STORES: dict[str, Callable[[], LossyFiles]] = {
    "closed": lambda: disks.closed(COUNT, PLAN),
    "killed": lambda: disks.killed(COUNT, PLAN, rest_at=COUNT // 2),
    "killed at rest": lambda: disks.killed(COUNT, PLAN, at_rest=True),
}


def remove(disk: LossyFiles, path: Path) -> None:
    disk.remove(path)


def empty(disk: LossyFiles, path: Path) -> None:
    disks.shorten(disk, path, 0)


def halve(disk: LossyFiles, path: Path) -> None:
    disks.shorten(disk, path, disk.stat(path).size // 2)


def cut_one_byte(disk: LossyFiles, path: Path) -> None:
    disks.shorten(disk, path, disk.stat(path).size - 1)


def lengthen(disk: LossyFiles, path: Path) -> None:
    disks.overwrite(disk, path, disk.stat(path).size, b"more")


def zero(disk: LossyFiles, path: Path) -> None:
    disks.overwrite(disk, path, 0, bytes(disk.stat(path).size))


def rubbish(disk: LossyFiles, path: Path) -> None:
    disks.overwrite(disk, path, 0, b"\xa5" * disk.stat(path).size)


WAYS = (remove, empty, halve, cut_one_byte, lengthen, zero, rubbish)


def check_back(disk: LossyFiles, count: int) -> None:
    with PLAN.on(disk).open() as store:
        numbered.check(store, range(count))
        assert not store.recovery.damages
    with PLAN.on(disk).open() as again:
        assert again.recovery.clean
        assert not again.recovery.findings
        numbered.check(again, range(count))


def one_of_each(disk: LossyFiles) -> list[Path]:
    """First, middle and last file of a queue with several, a queue with one, and the same of the index."""
    queues: dict[Path, list[Path]] = {}
    for path in disks.paths(disk, disks.ROOT / "consumequeue"):
        queues.setdefault(path.parent, []).append(path)
    longest = max(queues.values(), key=len)
    index = disks.paths(disk, disks.ROOT / "index")
    assert len(longest) > 1
    assert len(index) > 2
    return [longest[0], longest[-1], min(queues.values(), key=len)[0], index[0], index[1], index[-1]]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_one_derived_file(way: Callable[[LossyFiles, Path], None], store: str) -> None:
    whole = STORES[store]()
    count = len(disks.places(whole, PLAN))
    for path in one_of_each(whole):
        disk = disks.copy(whole)
        way(disk, path)
        try:
            check_back(disk, count)
        except Exception as problem:
            raise AssertionError(f"{way.__name__} {path}") from problem


@pytest.mark.long
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_derived_file(way: Callable[[LossyFiles, Path], None], store: str) -> None:
    whole = STORES[store]()
    count = len(disks.places(whole, PLAN))
    for path in disks.paths(whole, disks.ROOT / "consumequeue") + disks.paths(whole, disks.ROOT / "index"):
        disk = disks.copy(whole)
        way(disk, path)
        check_back(disk, count)


def remove_tree(disk: LossyFiles, directory: Path) -> None:
    for entry in disk.list_directory(directory):
        path = directory / entry.name
        if entry.is_file:
            disk.remove(path)
        else:
            remove_tree(disk, path)
    disk.remove_directory(directory)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("what", ["consumequeue", "consumequeue/Topic0", "consumequeue/Topic1/2", "index", "both"])
def test_a_whole_directory_is_deleted(what: str, store: str) -> None:
    disk = STORES[store]()
    count = len(disks.places(disk, PLAN))
    for name in ["consumequeue", "index"] if what == "both" else [what]:
        remove_tree(disk, disks.ROOT / name)
    check_back(disk, count)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", ["checkpoint", "embermq.state", "embermq.index.json", "embermq.inventory.json"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_small_files(way: Callable[[LossyFiles, Path], None], name: str, store: str) -> None:
    disk = STORES[store]()
    path = disks.ROOT / name
    if not disk.exists(path):
        assert name == "embermq.inventory.json"
        return
    count = len(disks.places(disk, PLAN))
    way(disk, path)
    check_back(disk, count)


def test_everything_but_the_log_is_deleted() -> None:
    disk = STORES["closed"]()
    count = len(disks.places(disk, PLAN))
    for path in disks.paths(disk):
        if path.parent.name != "commitlog":
            disk.remove(path)
    check_back(disk, count)


def test_an_index_does_not_vouch_for_the_queues() -> None:
    """Each family has a proof of its own: with the index durable and the queues not, both come back."""
    disk = LossyFiles()
    store = PLAN.on(disk).open()
    end = numbered.append_until(store, 0, 40)
    store.wait_for_dispatch()
    assert store.engine.index is not None
    prove_index(disk, disks.ROOT, store.engine.index)
    left = disk.crash()
    store.close()
    check_back(left, end)


@pytest.mark.parametrize("name", ["checkpoint", "embermq.inventory.json"])
def test_a_scribbled_queue_file_and_a_missing_proof(name: str) -> None:
    """Every message is there, and nothing of the scribble stays behind the end of the queue. A reader whom no inventory
    tells where queues ended believes none of their files."""
    disk = STORES["closed"]()
    count = len(disks.places(disk, PLAN))
    path = disks.paths(disk, disks.ROOT / "consumequeue" / "Topic0")[-1]
    size = disk.stat(path).size
    disks.overwrite(disk, path, 0, bytes((31 * at + 7) % 127 + 1 for at in range(size)))
    disk.remove(disks.ROOT / name)
    if name == "embermq.inventory.json":
        with PLAN.on(disk).open(read_only=True) as store:
            numbered.check(store, range(count))
    with PLAN.on(disk).open() as store:
        numbered.check(store, range(count))
    report = verify(disks.ROOT, files=disk)
    assert report.is_sound, [flaw for flaw in report.flaws if flaw.is_fault]


def test_an_extension_file_that_is_too_long_is_made_again() -> None:
    """Its entries are not taken over and then lost with it when the next one is put."""
    plan = disks.builder(queue_extension=True, queue_extension_file_bytes=2000)
    disk = disks.closed(40, plan)
    path = disks.paths(disk, disks.ROOT / "consumequeue_ext" / "Topic0" / "1")[0]
    disks.overwrite(disk, path, disk.stat(path).size, b"\x55" * 20)
    with plan.on(disk).open() as store:
        assert store.append(Message("Topic0", b"new", tags="t", queue_id=1)).ok
    report = verify(disks.ROOT, files=disk)
    assert report.is_sound, [flaw for flaw in report.flaws if flaw.is_fault]
