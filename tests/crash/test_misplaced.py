"""A directory in the place of a file of the store, and a file in the place of a directory.

What is derived is never a reason to refuse: an opening for writing puts the thing aside, with all that is in it, makes
the file again and says so; readers and tools ignore it. A log file is not derived: nothing of the log may be lost.
"""

import os
import shutil
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.errors import StorePathInvalid
from embermq.repair.rebuild.rebuilding import rebuild
from embermq.repair.salvage.salvaging import salvage
from embermq.repair.verify.store_check import verify
from embermq.settings import StoreSettings
from tests.support.living import SMALL

SETTINGS = StoreSettings(**{**SMALL, "delayed_delivery": True, "queue_extension": True})
COUNT = 120
STATE_FILES = (
    "checkpoint",
    "abort",
    "embermq.state",
    "embermq.index.json",
    "embermq.inventory.json",
    "embermq.offsets.json",
    "embermq.deleted.json",
    "embermq.scrub.json",
    "embermq.queues.json",
    "config/delayOffset.json",
    "config/delayOffset.json.bak",
    "quarantine/report.jsonl",
    "checkpoint.tmp",
    "embermq.inventory.json.tmp",
    "embermq.deleted.json.tmp",
    "config/delayOffset.json.tmp",
)
QUEUE_FILES = tuple(
    f"{family}/apples/0/{start:020d}"
    for family, starts in (("consumequeue", (0, 320, 960)), ("consumequeue_ext", (0,)))
    for start in starts
)
PRECIOUS = "precious"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was closed cleanly; copy it."""
    root = tmp_path_factory.mktemp("misplaced") / "store"
    with MessageStore.open(root, SETTINGS) as store:
        for number in range(COUNT):
            topic = ("apples", "pears")[number % 2]
            store.append(Message(topic, f"{number}".encode() * 20, keys=f"k{number}", tags="t"))
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


def put_directory(path: Path) -> None:
    """In the place of a file, with something in it."""
    if path.exists():
        path.unlink()
    path.mkdir(parents=True)
    (path / PRECIOUS).write_text("kept")


def put_file(path: Path) -> None:
    """In the place of a directory, with something in it."""
    if path.exists():
        shutil.rmtree(path)
    path.write_text("kept")


def check_answers(store: MessageStore) -> None:
    """Everything is there, by queue and by key."""
    for topic, first in (("apples", 0), ("pears", 1)):
        assert store.max_offset(topic, 0) >= COUNT // 2
        fetched = [one for at in range(0, COUNT // 2, 8) for one in store.fetch(topic, 0, at, 8).messages]
        expected = [f"{number}".encode() * 20 for number in range(first, COUNT, 2)]
        assert [one.body for one in fetched][: COUNT // 2] == expected
    assert all(store.find(("apples", "pears")[number % 2], f"k{number}") for number in range(0, COUNT, 7))


def check_repaired(root: Path, name: str, *, reported: str = "put aside") -> None:
    """Readers and tools ignore what is in the way, a writer puts it aside, and the next one knows nothing of it."""
    verify(root)
    with MessageStore.open(root, SETTINGS, read_only=True) as store:
        check_answers(store)
    with MessageStore.open(root, SETTINGS) as store:
        check_answers(store)
        assert any(name in finding for finding in store.recovery.findings), store.recovery.findings
        assert any(reported in finding for finding in store.recovery.findings), store.recovery.findings
        assert store.append(Message("apples", b"more", keys="more")).ok
    assert [flaw for flaw in verify(root).flaws if flaw.is_fault] == []
    with MessageStore.open(root, SETTINGS) as store:
        assert (store.recovery.reason, store.recovery.findings) == ("closed cleanly", [])
        check_answers(store)


def asides(root: Path) -> list[Path]:
    return [path for path in root.rglob("*.not-a-*") if path.name.endswith("-1")]


@pytest.mark.parametrize("name", STATE_FILES)
def test_a_directory_in_the_place_of_a_small_file(root: Path, name: str) -> None:
    put_directory(root / name)
    assert any(flaw.file == name and "is a directory" in flaw.fault for flaw in verify(root).flaws)
    check_repaired(root, name)
    assert (root / f"{name}.not-a-file-1" / PRECIOUS).read_text() == "kept"


@pytest.mark.parametrize("name", QUEUE_FILES)
def test_a_directory_in_the_place_of_a_queue_file(root: Path, name: str) -> None:
    put_directory(root / name)
    check_repaired(root, name)
    aside = root / "quarantine" / f"{name.replace('/', '.')}.not-a-file-1"  # RocketMQ reads all names beside it.
    assert (aside / PRECIOUS).read_text() == "kept"


@pytest.mark.parametrize("number", [0, -1])
def test_a_directory_in_the_place_of_an_index_file(root: Path, number: int) -> None:
    name = sorted(path.name for path in (root / "index").iterdir())[number]
    put_directory(root / "index" / name)
    check_repaired(root, name)
    assert (root / "quarantine" / f"index.{name}.not-a-file-1" / PRECIOUS).read_text() == "kept"


@pytest.mark.parametrize("name", ["consumequeue/apples", "consumequeue/apples/0", "consumequeue_ext/pears"])
def test_a_file_in_the_place_of_a_directory_of_queues(root: Path, name: str) -> None:
    put_file(root / name)
    check_repaired(root, name)
    assert [path.read_text() for path in asides(root)] == ["kept"]


def test_a_second_one_gets_another_name(root: Path) -> None:
    for _ in range(2):
        put_directory(root / "checkpoint")
        MessageStore.open(root, SETTINGS).close()
    assert (root / "checkpoint.not-a-file-2" / PRECIOUS).exists()


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "consumequeue_ext", "index", "config", "quarantine"])
def test_a_file_in_the_place_of_a_whole_family_is_refused(root: Path, name: str) -> None:
    put_file(root / name)
    with pytest.raises(StorePathInvalid, match="this is a file where a directory should be"):
        MessageStore.open(root, SETTINGS)
    assert (root / name).read_text() == "kept"


def test_a_directory_in_the_place_of_the_lock_is_refused(root: Path) -> None:
    put_directory(root / "lock")
    with pytest.raises(StorePathInvalid, match="lock"):
        MessageStore.open(root, SETTINGS)
    assert (root / "lock" / PRECIOUS).exists()


def test_rebuild_keeps_a_directory_in_the_place_of_a_queue_file(root: Path) -> None:
    put_directory(root / QUEUE_FILES[0])
    rebuilt = rebuild(root, SETTINGS)
    assert [(path / PRECIOUS).read_text() for path in rebuilt.kept] == ["kept"]
    with MessageStore.open(root, SETTINGS) as store:
        check_answers(store)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_directory_in_the_place_of_a_log_file(root: Path, tmp_path: Path, number: int) -> None:
    """It is not derived: a writer refuses, and changes nothing; with the file back in its place all is as it was."""
    path = sorted((root / "commitlog").iterdir())[number]
    content, before = path.read_bytes(), {one: one.stat().st_mtime_ns for one in root.rglob("*") if one.is_file()}
    put_directory(path)
    assert any(path.name in flaw.file and flaw.family == "commitlog" for flaw in verify(root).flaws)
    with pytest.raises(StorePathInvalid, match=f"{path.name}: is a directory where a log file should be"):
        MessageStore.open(root, SETTINGS)
    with MessageStore.open(root, SETTINGS, read_only=True) as store:
        assert any(path.name in finding for finding in store.recovery.findings)
    after = {one: one.stat().st_mtime_ns for one in root.rglob("*") if one.is_file() and one.name != PRECIOUS}
    before[root / "embermq.state"] = after[root / "embermq.state"]  # Holds the fencing token of the one that refused.
    assert after == {one: time for one, time in before.items() if one != path}
    assert salvage(root, tmp_path / "salvaged", SETTINGS).records > 0
    shutil.rmtree(path)
    path.write_bytes(content)
    with MessageStore.open(root, SETTINGS) as store:
        check_answers(store)


@pytest.mark.parametrize("name", [*QUEUE_FILES[:1], *QUEUE_FILES[-1:], "consumequeue/apples/0", "index"])
def test_a_pipe_in_the_place_of_a_derived_file(root: Path, name: str) -> None:
    path = root / name if name != "index" else next((root / "index").iterdir())
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    os.mkfifo(path)
    verify(root)
    with MessageStore.open(root, SETTINGS, read_only=True) as store:
        assert store.max_offset("apples", 0) == COUNT // 2
    with MessageStore.open(root, SETTINGS) as store:
        assert store.fetch("apples", 0, 0).messages[0].body == b"0" * 20
        assert [one.body for one in store.find("apples", "k2")] == [b"2" * 20]
    report = verify(root)
    assert report.is_sound, report.flaws


def test_rebuild_puts_a_directory_in_the_place_of_a_state_file_aside(root: Path) -> None:
    put_directory(root / "embermq.index.json")
    rebuild(root, SETTINGS)
    assert (root / "embermq.index.json.not-a-file-1" / PRECIOUS).read_text() == "kept"
    with MessageStore.open(root, SETTINGS) as store:
        check_answers(store)
