"""The KV config: what is acknowledged is on the disk, what fails is not there, and the file is RocketMQ's."""

import errno
from pathlib import Path
from typing import Any

import pytest

from embermq.errors import KvConfigFailed, LimitReached
from embermq.namesrv.kv_config import NAMESPACES_MAX, VALUE_CHARACTERS_MAX, KvConfig
from embermq.testing import FaultyFiles, LossyFiles
from embermq.testing.faulty_files import Killed
from embermq.testing.unsynced import keep_everything, lose_everything, random_fates

PLACE = Path("/home/namesrv/kvConfig.json")
BACKUP = PLACE.with_name("kvConfig.json.bak")
TEXT = b'{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:4;broker-b:4"}}}'


@pytest.fixture
def disk() -> LossyFiles:
    disk = LossyFiles()
    disk.put(PLACE.parent, None)
    return disk


def opened(files: Any) -> KvConfig:
    kv = KvConfig(files, PLACE)
    kv.load()
    return kv


def put(kv: KvConfig, namespace: str, key: str, value: str, entries_max: int = 100, bytes_max: int = 1 << 20) -> None:
    kv.put(namespace, key, value, entries_max=entries_max, bytes_max=bytes_max)


def test_the_file_is_rocketmqs(disk: LossyFiles) -> None:
    kv = opened(disk)
    put(kv, "ORDER_TOPIC_CONFIG", "orders", "broker-a:4;broker-b:4")
    assert disk.read_all(PLACE) == TEXT
    assert opened(disk).get("ORDER_TOPIC_CONFIG", "orders") == "broker-a:4;broker-b:4"


def test_nothing_is_written_before_the_first_put() -> None:
    disk = LossyFiles()
    disk.put(Path("/home"), None)
    kv = opened(disk)
    assert (kv.get("a", "b"), kv.namespace("a"), kv.entries) == (None, None, 0)
    assert not kv.delete("a", "b")
    assert not disk.exists(PLACE.parent)
    put(kv, "a", "b", "c")
    assert opened(disk).get("a", "b") == "c"


def test_put_get_and_delete(disk: LossyFiles) -> None:
    kv = opened(disk)
    put(kv, "a", "x", "1")
    put(kv, "a", "y", "2")
    put(kv, "a", "x", "3")
    put(kv, "b", "x", "Größe")
    assert kv.namespace("a") == {"x": "3", "y": "2"}
    assert kv.entries == 3
    assert kv.delete("a", "x")
    assert not kv.delete("a", "x")
    assert kv.delete("a", "y")
    assert kv.namespace("a") == {}, "the namespace stays, as in RocketMQ"
    again = opened(disk)
    assert (again.namespace("a"), again.get("b", "x")) == ({}, "Größe")


def test_the_version_before_is_the_backup(disk: LossyFiles) -> None:
    kv = opened(disk)
    put(kv, "ORDER_TOPIC_CONFIG", "orders", "broker-a:4;broker-b:4")
    put(kv, "a", "x", "1")
    assert disk.read_all(BACKUP) == TEXT


@pytest.mark.parametrize("damaged", [b"", b"\0" * 40, b"{", b"[]", b'{"configTable":3}', b"\xff\xfe"])
def test_a_damaged_file_falls_back_to_its_backup_and_is_kept_aside(disk: LossyFiles, damaged: bytes) -> None:
    disk.put(PLACE, damaged)
    disk.put(BACKUP, TEXT)
    kv = opened(disk)
    assert kv.get("ORDER_TOPIC_CONFIG", "orders") == "broker-a:4;broker-b:4"
    put(kv, "a", "x", "1")
    assert opened(disk).entries == 2
    aside = PLACE.with_name("kvConfig.json.damaged-1")
    if damaged.strip(b"\0"):
        assert disk.read_all(aside) == damaged
    else:
        assert not disk.exists(aside)


def test_entries_that_are_no_texts_are_left_out(disk: LossyFiles) -> None:
    disk.put(PLACE, b'{"configTable":{"a":{"x":"1","y":2,"z":null},"b":7}}')
    kv = opened(disk)
    assert kv.namespace("a") == {"x": "1"}
    assert kv.namespace("b") is None


# -- crashes and bad disks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fates", [lose_everything, keep_everything, random_fates(1), random_fates(2)])
def test_a_kill_at_any_step_leaves_the_old_or_the_new_version(fates: Any) -> None:
    """And what was acknowledged before the kill, in any case."""
    step = 0
    while True:
        step += 1
        disk = LossyFiles()
        disk.put(PLACE.parent, None)
        files = FaultyFiles(disk)
        kv = opened(files)
        put(kv, "a", "x", "old")
        before = len(files.steps)

        def killed() -> None:
            raise Killed

        files.before(step=before + step, call=killed)
        try:
            put(kv, "a", "x", "new")
        except Killed:
            pass
        is_done = len(files.steps) < before + step
        survivor = opened(disk.crash(fates))
        assert survivor.get("a", "x") in (("new",) if is_done else ("old", "new"))
        if is_done:
            break
    assert step > 5, "the backup and the file, each written, synced, renamed, and its directory synced"


@pytest.mark.parametrize("kind", ["create", "pwrite", "sync", "rename", "sync_directory"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_change_that_cannot_be_written_is_refused_and_not_there(disk: LossyFiles, kind: str, nth: int) -> None:
    files = FaultyFiles(disk)
    kv = opened(files)
    put(kv, "a", "x", "old")
    files.fail(kind, nth=nth, error=errno.ENOSPC)
    with pytest.raises(
        KvConfigFailed, match=r"the KV config was not changed: .*kvConfig.json cannot be written \(No sp"
    ):
        put(kv, "a", "y", "new")
    assert kv.get("a", "y") is None
    files.heal()
    assert not kv.delete("a", "y"), "it is not there"
    assert opened(disk).namespace("a") == {"x": "old"}, "and not on the disk either, however far the writing went"
    put(kv, "a", "y", "newer")
    assert opened(disk).namespace("a") == {"x": "old", "y": "newer"}


def test_a_file_that_another_process_wrote_is_not_replaced(disk: LossyFiles) -> None:
    first, second = opened(disk), opened(disk)
    put(first, "a", "x", "1")
    with pytest.raises(KvConfigFailed, match="another process; give each name server a kvConfigPath of its own"):
        put(second, "a", "y", "2")
    assert opened(disk).namespace("a") == {"x": "1"}
    assert second.get("a", "y") is None
    put(first, "a", "z", "3")


# -- limits ------------------------------------------------------------------------------------------------------


def test_everything_is_bounded(disk: LossyFiles) -> None:
    kv = opened(disk)
    put(kv, "a", "x", "1", entries_max=1)
    with pytest.raises(LimitReached, match=r"no room for a y: the limit is 1 \(emberMaxKvEntries\)"):
        put(kv, "a", "y", "2", entries_max=1)
    put(kv, "a", "x", "3", entries_max=1)
    with pytest.raises(LimitReached, match=r"bytes: the limit is 100 \(emberMaxKvBytes\)"):
        put(kv, "a", "x", "4" * 100, bytes_max=100)
    with pytest.raises(LimitReached, match=r"a value of 65,536 characters: the limit is 65,535$"):
        put(kv, "a", "x", "4" * (VALUE_CHARACTERS_MAX + 1))
    assert opened(disk).get("a", "x") == "3"


def test_the_number_of_namespaces_is_bounded(disk: LossyFiles) -> None:
    names = ",".join(f'"n{number}":{{}}' for number in range(NAMESPACES_MAX))
    disk.put(PLACE, b'{"configTable":{%s}}' % names.encode())
    kv = opened(disk)
    with pytest.raises(LimitReached, match="no room for the namespace new: the limit is 1,000"):
        put(kv, "new", "x", "1")
    put(kv, "n7", "x", "1")
