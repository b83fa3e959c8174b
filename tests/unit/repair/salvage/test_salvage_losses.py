"""What salvage calls lost: everything that somebody knows of and the new store does not have, and nothing else."""

import errno
import json
import os
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.errors import StorePathInvalid
from embermq.files import RealFiles
from embermq.inspect.store_shape import found_shape
from embermq.repair.salvage.report import Salvaged
from embermq.repair.salvage.salvaging import MARK, REPORT, salvage
from embermq.repair.verify.store_check import verify
from embermq.settings import StoreSettings
from embermq.testing.clock import ManualClock
from embermq.testing.faulty_files import FaultyFiles
from embermq.testing.lossy_files import LossyFiles
from tests.crash import disks, numbered
from tests.crash.disks import ROOT
from tests.support import golden

NEW = Path("/new")
ROOMY = {"disk_full_percent": 100, "disk_clean_percent": 100}


def saved_from(root: Path) -> Salvaged:
    """Into `new` beside it, with the sizes found, and small ones where none is."""
    sizes = {"segment_bytes": 65536, "index_slots_max": 100, "index_entries_max": 400}
    settings = StoreSettings().replace(**(ROOMY | sizes | found_shape(RealFiles(), root).as_settings()))
    before = golden.tree_state(root)
    found = salvage(root, root.parent / "new", settings)
    assert golden.tree_state(root) == before
    return found


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def noise(file: Path) -> bytes:
    content = random.Random(file.name).randbytes(file.stat().st_size)
    file.write_bytes(content)
    return content


def lost_places(name: str, where: Callable[[int], bool]) -> int:
    """How many records of queues RocketMQ had at such places."""
    return sum(1 for record in golden.manifest(name).records if not record.blank and where(record.phy))


# -- whole files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 2, -1])
@pytest.mark.parametrize("how", ["noise", "zeros", "empty", "removed"])
@pytest.mark.slow
def test_a_log_file_of_rocketmq(tmp_path: Path, which: int, how: str) -> None:
    root = golden.restore("basic", tmp_path)
    file = log_files(root)[which]
    start, content = int(file.name), b""
    if how == "noise":
        content = noise(file)
    elif how == "removed":
        file.unlink()
    else:
        os.truncate(file, 0)
        os.truncate(file, 65536 if how == "zeros" else 0)
    found = saved_from(root)
    if (which, how) == (0, "removed"):
        assert found.is_complete  # As after retention: nobody knows of more.
        return
    gone = lost_places("basic", lambda place: start <= place < start + 65536)
    assert not found.is_complete
    assert found.lost_count == gone
    assert found.records == 200 - gone
    (lost,) = found.lost_ranges
    assert lost.physical_offset == start
    assert (lost.kept_in is not None) == (how == "noise")
    if lost.kept_in is not None:
        assert (found.target / lost.kept_in).read_bytes() == content
    assert verify(found.target).is_sound


def test_all_log_files_are_noise(tmp_path: Path) -> None:
    root = golden.restore("basic", tmp_path)
    contents = [noise(file) for file in log_files(root)]
    found = saved_from(root)
    assert (found.records, found.lost_count, len(found.lost_ranges)) == (0, 200, 6)
    assert [(found.target / (lost.kept_in or "")).read_bytes() for lost in found.lost_ranges] == contents
    report = (found.target / "quarantine" / "report.jsonl").read_text().splitlines()
    assert [json.loads(line)["physical_offset"] for line in report] == [n * 65536 for n in range(6)]


@pytest.mark.parametrize("name", ["compressed", "transaction"])
def test_the_only_file_is_empty(tmp_path: Path, name: str) -> None:
    root = golden.restore(name, tmp_path)
    os.truncate(log_files(root)[0], 0)
    found = saved_from(root)
    records = [record for record in golden.manifest(name).records if not record.blank]
    assert found.lost_count == len(records)
    (lost,) = found.lost_ranges
    assert (lost.physical_offset, lost.end, lost.reason) == (0, records[-1].phy + records[-1].size, "is empty")


def test_the_log_is_gone(tmp_path: Path) -> None:
    root = golden.restore("delay", tmp_path)
    for file in log_files(root):
        file.unlink()
    (root / "commitlog").rmdir()
    found = saved_from(root)
    assert found.lost_count == lost_places("delay", lambda _: True)
    assert [lost.reason for lost in found.lost_ranges] == ["the log ends here, and once went further"]


@pytest.mark.parametrize("size", [24576, 25641])
def test_the_only_file_was_cut(tmp_path: Path, size: int) -> None:
    """Whatever its length: the new store has files as the settings say, and all that was left."""
    root = golden.restore("compressed", tmp_path)
    os.truncate(log_files(root)[0], size)
    found = saved_from(root)
    gone = sum(1 for record in golden.manifest("compressed").records if record.phy + record.size > size)
    assert found.lost_count == gone > 0
    assert sum(lost.length for lost in found.lost_ranges) < 65536
    assert found.segment_bytes == 65536
    assert [file.stat().st_size for file in log_files(found.target)] == [65536]
    assert verify(found.target).is_sound


@pytest.mark.parametrize("how", ["noise", "removed"])
def test_the_end_of_a_store_of_ours(how: str) -> None:
    disk = disks.closed(120)
    places = disks.places(disk)
    last = disks.paths(disk, ROOT / "commitlog")[-1]
    start, size = int(last.name), len(disk.read_all(last))
    with disks.builder().on(disks.copy(disk)).open(read_only=True) as store:
        ends = {(topic, n): store.max_offset(topic, n) for topic, ids in store.topics().items() for n in ids}
    if how == "removed":
        disk.remove(last)
    else:
        disks.overwrite(disk, last, 0, random.Random(1).randbytes(size))
    found = salvage(ROOT, NEW, disks.builder().settings, files=disk, clock=ManualClock())
    (lost,) = found.lost_ranges
    assert lost.physical_offset == start
    assert lost.end >= places[-1][1]
    assert found.lost_messages
    for one in found.lost_messages:
        assert one.end == ends[one.topic, one.queue_id]
    with MessageStore.open(NEW, disks.builder().settings, files=disk, clock=ManualClock()) as store:
        for one in found.lost_messages:
            assert store.append(Message(one.topic, b"new", queue_id=one.queue_id)).queue_offset == one.end


def test_a_copy_and_a_foreign_file_are_no_loss(tmp_path: Path) -> None:
    root = golden.restore("basic", tmp_path)
    (root / "commitlog" / "copy").write_bytes(log_files(root)[2].read_bytes())
    (root / "commitlog" / "notes").write_bytes(b"mine")
    found = saved_from(root)
    assert found.is_complete
    assert len(found.refused) == 2


# -- nothing was lost ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in golden.ALL_STORES if name != "default-size"])
@pytest.mark.slow
def test_of_a_sound_store_nothing_is_lost(tmp_path: Path, name: str) -> None:
    """With a file that is one blank, with files made ahead, with a torn tail that nothing proves."""
    root = golden.restore(name, tmp_path)
    assert verify(root).is_sound
    found = saved_from(root)
    assert found.is_complete, found
    records = [record for record in golden.manifest(name).records if not record.blank]
    assert found.records == len(records)
    assert verify(found.target).is_sound


def test_a_torn_tail_is_kept_and_told(tmp_path: Path) -> None:
    root = golden.restore("unclean-lost-pages", tmp_path)
    found = saved_from(root)
    (torn,) = found.torn
    assert torn.physical_offset == found.log_end
    assert torn.kept_in is not None
    kept = (found.target / torn.kept_in).read_bytes()
    file = [file for file in log_files(root) if int(file.name) <= torn.physical_offset][-1]
    assert kept
    assert file.read_bytes()[torn.physical_offset - int(file.name) :].startswith(kept)
    assert json.loads((found.target / REPORT).read_bytes())["torn"][0]["physical_offset"] == torn.physical_offset


def test_a_last_record_that_was_confirmed_is_a_loss_in_any_state() -> None:
    for disk in (disks.closed(40), disks.killed(40)):
        start, end = disks.places(disk)[-1]
        path = [one for one in disks.paths(disk, ROOT / "commitlog") if int(one.name) <= start][-1]
        disks.flip(disk, path, 8 * (start - int(path.name) + 90))
        found = salvage(ROOT, NEW, disks.builder().settings, files=disk, clock=ManualClock())
        assert found.torn == []
        (lost,) = found.lost_ranges
        assert (lost.physical_offset, lost.end) == (start, end)
        assert not found.is_complete


# -- records that say something wrong --------------------------------------------------------------------


@pytest.mark.parametrize("bit", [0, 1, 6])
def test_a_turned_bit_in_a_queue_offset(tmp_path: Path, bit: int) -> None:
    """The record has a sum over its body only: it is whole, and no queue can have it."""
    root = golden.restore("transaction", tmp_path)
    record = golden.manifest("transaction").records[10]
    with log_files(root)[0].open("r+b") as file:
        file.seek(record.phy + 20)
        byte = file.read(1)[0]
        file.seek(record.phy + 20)
        file.write(bytes([byte ^ (1 << bit)]))
    found = saved_from(root)
    (stray,) = found.strays
    assert f"{record.topic}/{record.queue_id}" in stray
    assert not found.is_complete
    assert found.records == sum(1 for one in golden.manifest("transaction").records if not one.blank)
    assert json.loads((found.target / REPORT).read_bytes())["strays"] == [stray]
    with MessageStore.open(found.target, read_only=True) as store:
        assert store.at(record.phy) is not None


# -- what else comes along -------------------------------------------------------------------------------


def test_deleted_topics_stay_deleted() -> None:
    disk, plan = LossyFiles(), disks.builder()
    with plan.on(disk).open() as store:
        for number in range(40):
            store.append(Message(("Gone", "Again", "Stays")[number % 3], b"old", queue_id=number % 4))
        store.wait_for_dispatch()
        store.delete_topic("Gone")
        store.delete_topic("Again")
        store.append(Message("Again", b"new", queue_id=1))
        store.wait_for_dispatch()
        topics = store.topics()
    found = salvage(ROOT, NEW, plan.settings, files=disk, clock=ManualClock())
    assert found.is_complete, found
    for _ in range(2):
        with MessageStore.open(NEW, plan.settings, files=disk, clock=ManualClock()) as store:
            assert store.topics() == topics
            assert [one.body for one in store.fetch("Again", 1, 0).messages] == [b"new"]


@pytest.mark.parametrize("name", ["consumerOffset.json", "topics.json", "delayOffset.json"])
def test_a_damaged_config_file_is_told(tmp_path: Path, name: str) -> None:
    root = golden.restore("delay", tmp_path)
    (root / "config" / name).write_bytes(b'{"offset')
    (root / "config" / f"{name}.bak").unlink()
    found = saved_from(root)
    (fault,) = found.config_faults
    assert fault.startswith(f"{name}: taken along as it is: cannot be read")
    assert not found.is_complete
    assert (found.target / "config" / name).read_bytes() == b'{"offset'


# -- what must not be ------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["commitlog", "consumequeue"])
def test_files_that_may_not_be_read_are_not_taken_for_empty_ones(part: str) -> None:
    files = FaultyFiles(disks.closed(40))
    files.fail("open", path_contains=f"{ROOT}/{part}", error=errno.EACCES)
    with pytest.raises(StorePathInvalid, match=r"Permission denied; /new was not made") as problem:
        salvage(ROOT, NEW, disks.builder().settings, files=files, clock=ManualClock())
    assert part in str(problem.value)
    assert not files.exists(NEW)
    assert not files.exists(NEW.with_name("new.partial"))


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS])
def test_a_place_that_may_not_be_written(error: int) -> None:
    files = FaultyFiles(disks.closed(40))
    files.fail("make_directory", path_contains="new.partial", error=error)
    with pytest.raises(StorePathInvalid, match="was not made"):
        salvage(ROOT, NEW, disks.builder().settings, files=files, clock=ManualClock())


def test_a_directory_of_somebody_else_is_not_removed() -> None:
    disk = disks.closed(40)
    mine = NEW.with_name("new.partial") / "mine"
    disk.put(mine, b"x")
    with pytest.raises(StorePathInvalid, match="no rest of a salvage"):
        salvage(ROOT, NEW, disks.builder().settings, files=disk)
    assert disk.read_all(mine) == b"x"
    assert not disk.exists(NEW)
    disk.put(mine.parent / MARK, b"")
    with pytest.raises(StorePathInvalid, match="mine: was not left by a salvage"):
        salvage(ROOT, NEW, disks.builder().settings, files=disk)
    assert disk.read_all(mine) == b"x"
    disk.remove(mine)
    assert salvage(ROOT, NEW, disks.builder().settings, files=disk, clock=ManualClock()).is_complete
    assert not disk.exists(mine.parent)
    assert not disk.exists(NEW / MARK)


def test_a_failure_removes_only_what_is_ours() -> None:
    disk = disks.closed(40)
    files = FaultyFiles(disk)
    mine = NEW.with_name("new.partial")
    disk.put(mine, b"a file of somebody")
    with pytest.raises(StorePathInvalid, match="no rest of a salvage"):
        salvage(ROOT, NEW, disks.builder().settings, files=files)
    disk.remove(mine)
    disk.put(mine / MARK, b"")
    files.fail("open", path_contains=f"{ROOT}/commitlog", error=errno.EACCES)
    with pytest.raises(StorePathInvalid, match="Permission denied"):
        salvage(ROOT, NEW, disks.builder().settings, files=files)
    assert not files.exists(NEW)


def test_a_place_inside_the_old_store() -> None:
    disk = disks.closed(40)
    before = disks.contents(disk)
    with pytest.raises(StorePathInvalid, match="only read"):
        salvage(ROOT, ROOT / "sub", disks.builder().settings, files=disk)
    assert disks.contents(disk) == before


def test_every_kind_of_loss_counts(tmp_path: Path) -> None:
    """Of a store with all of it: damage, a lost file, a lost end, and a damaged config file."""
    disk = disks.closed(120)
    names = disks.paths(disk, ROOT / "commitlog")
    start, _ = disks.places(disk)[5]
    disks.flip(disk, names[0], 8 * (start + 90))
    disk.remove(names[2])
    disks.overwrite(disk, names[-1], 0, random.Random(3).randbytes(8192))
    disk.put(ROOT / "config" / "topics.json", b"{{{")
    expected = {at for at, _ in disks.places(disks.closed(120)) if at == start or at // 8192 in (2, len(names) - 1)}
    found = salvage(ROOT, NEW, disks.builder().settings, files=disk, clock=ManualClock())
    for at in expected:
        assert any(lost.physical_offset <= at < lost.end for lost in found.lost_ranges), at
    assert all(one.end <= two.physical_offset for one, two in pairwise(found.lost_ranges))
    assert [fault.partition(":")[0] for fault in found.config_faults] == ["topics.json"]
    with MessageStore.open(NEW, disks.builder().settings, files=disk, clock=ManualClock()) as store:
        numbered.check(store, damaged=True)
