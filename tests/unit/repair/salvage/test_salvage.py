"""Salvage: whatever was done to a store, every whole record is in the new one, where and what it was."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from embermq import Message, MessageStore
from embermq.errors import StoreError, StorePathInvalid
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
from tests.support.bad_disk import BadDisk

COUNT = 120
NEW = Path("/new")
SETTINGS = disks.builder().settings


def saved(disk: Any, **options: Any) -> Salvaged:
    return salvage(ROOT, NEW, SETTINGS, files=disk, clock=ManualClock(), **options)


def opened(disk: LossyFiles) -> MessageStore:
    return MessageStore.open(NEW, SETTINGS, files=disk, clock=ManualClock())


@pytest.fixture(scope="module")
def whole() -> LossyFiles:
    """A store that was closed cleanly; copy it before changing anything."""
    return disks.closed(COUNT)


def segment_of(disk: LossyFiles, place: int) -> tuple[Path, int]:
    start = max(int(path.name) for path in disks.paths(disk, ROOT / "commitlog") if int(path.name) <= place)
    return ROOT / "commitlog" / f"{start:020d}", start


def check(disk: LossyFiles, whole: LossyFiles, lost: set[int]) -> None:
    """The new store has the messages of the old one but for the lost ones, each where and what it was."""
    assert not disk.exists(NEW.with_name("new.partial"))
    with disks.builder().on(disks.copy(whole)).open(read_only=True) as before:
        expected = {one.physical_offset: one for one in before.scan()}
    report = verify(NEW, files=disk)
    assert report.is_sound, report.flaws
    with opened(disk) as store:
        assert store.recovery.reason == "closed cleanly"
        assert not store.recovery.damages
        found = {one.physical_offset: one for one in store.scan() if not one.topic.startswith("EMBERMQ")}
        assert found == {place: one for place, one in expected.items() if place not in lost}
        numbered.check(store, damaged=True)
        end = numbered.append_until(store, COUNT + 8, COUNT + 9)
        assert numbered.numbers_in(store)[-1] == end - 1


# -- what is saved -------------------------------------------------------------------------------------


def test_a_whole_store_is_copied(whole: LossyFiles) -> None:
    disk = disks.copy(whole)
    before = disks.contents(disk)
    found = saved(disk)
    assert found.is_complete
    assert found.records == len(disks.places(whole))
    assert (found.lost_bytes, found.lost_count) == (0, 0)
    for path, content in before.items():
        assert disk.read_all(path) == content  # The old one is only read.
        if path.parent.name == "commitlog":
            assert disk.read_all(NEW / "commitlog" / path.name) == content
    check(disk, whole, set())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.slow(2)
def test_damage_all_over_the_log(whole: LossyFiles, seed: int) -> None:
    """Bits turned over in some bodies, in files of all kinds."""
    source = random.Random(seed)
    disk = disks.copy(whole)
    lost = set()
    for start, end in source.sample(disks.places(whole), 7):
        path, base = segment_of(disk, start)
        place = source.choice([0, 5, 30, 86, 89]) if end - start > 100 else 5
        disks.flip(disk, path, 8 * (start - base + place) + source.randrange(8))
        lost.add(start)
    for family in ("consumequeue", "index"):
        path = source.choice(disks.paths(disk, ROOT / family))
        disks.overwrite(disk, path, 0, source.randbytes(100))
    with disks.builder().on(disks.copy(whole)).open(read_only=True) as before:
        numbers = [numbered.number_of(one.body) for one in before.scan() if one.physical_offset in lost]
        queued = sum(numbered.known(n).queued for n in numbers)
    found = saved(disk)
    assert not found.is_complete
    assert sum(one.length for one in found.lost_ranges) >= sum(e - s for s, e in disks.places(whole) if s in lost)
    assert found.lost_count <= queued  # A queue file that was damaged, too, knows less.
    check(disk, whole, lost)


@pytest.mark.parametrize("which", [0, 1, 2, -1])
@pytest.mark.parametrize("how", ["remove", "empty", "garbage", "short"])
@pytest.mark.slow(2)
def test_a_log_file_is_lost(whole: LossyFiles, which: int, how: str) -> None:
    disk = disks.copy(whole)
    path = disks.paths(disk, ROOT / "commitlog")[which]
    size = len(disk.read_all(path))
    start = int(path.name)
    if how == "remove":
        disk.remove(path)
    elif how == "empty":
        disks.shorten(disk, path, 0)
    elif how == "short":
        disks.shorten(disk, path, size // 2)
    else:
        disks.overwrite(disk, path, 0, random.Random(1).randbytes(size))
    places = disks.places(whole)
    lost = {at for at, end in places if start <= at < start + size and (how != "short" or end > start + size // 2)}
    found = saved(disk)
    if lost and (which, how) != (0, "remove"):  # A log may begin anywhere.
        assert found.lost_ranges
        assert found.lost_count
    check(disk, whole, lost)


def test_offsets_of_a_lost_end_are_not_given_again(whole: LossyFiles) -> None:
    """Consumers may have seen what the queue files still know of."""
    disk = disks.copy(whole)
    with disks.builder().on(disks.copy(whole)).open() as store:
        ends = {queue: store.max_offset("Topic0", queue) for queue in range(3)}
    for path in disks.paths(disk, ROOT / "commitlog")[-2:]:
        disk.remove(path)
    saved(disk)
    with opened(disk) as store:
        for queue, end in ends.items():
            assert store.append(Message("Topic0", b"new", queue_id=queue)).queue_offset == end
            outcome = store.fetch("Topic0", queue, end)
            assert [one.body for one in outcome.messages] == [b"new"]


def test_files_are_believed_for_what_is_in_them(whole: LossyFiles) -> None:
    disk = disks.copy(whole)
    names = disks.paths(disk, ROOT / "commitlog")
    disk.rename(names[1], ROOT / "commitlog" / "lost+found.1234")
    disk.rename(names[2], ROOT / "commitlog" / f"{77 * 8192:020d}")
    disk.put(ROOT / "commitlog" / "notes.txt", b"mine")
    disk.put(ROOT / "commitlog" / "copy of the first", disk.read_all(names[0]))
    found = saved(disk)
    assert found.is_complete
    assert sorted(one.start for one in found.moved) == [8192, 2 * 8192]
    assert {one.path.name: one.reason for one in found.refused} == {
        "notes.txt": "holds no whole record",
        "copy of the first": f"the same part of the log as {names[0]}",
    }
    check(disk, whole, set())


def test_a_cut_copy_under_an_earlier_name_is_not_taken_for_the_file_itself(whole: LossyFiles) -> None:
    disk = disks.copy(whole)
    first, second, third = disks.paths(disk, ROOT / "commitlog")[:3]
    data = disk.read_all(third)
    disks.overwrite(disk, second, 0, data)
    disks.shorten(disk, second, len(data) // 2)
    report = saved(disk)
    lost = {one for one, _ in disks.places(whole) if int(second.name) <= one < int(third.name)}
    assert lost
    check(disk, whole, lost)
    assert [one.path for one in report.refused] == [second]
    assert first not in [one.path for one in report.moved]


def test_a_disk_with_bad_blocks(whole: LossyFiles) -> None:
    inner = disks.copy(whole)
    path = disks.paths(inner, ROOT / "commitlog")[1]
    bad = BadDisk(inner, {path: [4096 + 7]})
    found = salvage(ROOT, NEW, SETTINGS, files=bad, clock=ManualClock())
    assert [(block.path, block.at) for block in found.bad_blocks] == [(path, 4096)]
    start = int(path.name)
    lost = {at for at, end in disks.places(whole) if at < start + 8192 and end > start + 4096 and at >= start}
    assert lost
    check(inner, whole, lost)


def test_a_killed_store_with_a_torn_tail() -> None:
    disk = disks.killed(40)
    end = disks.places(disk)[-1][1]
    path, base = segment_of(disk, end)
    disks.overwrite(disk, path, end - base, b"\x00\x00\x01\x00\xda\xa3\x20\xa7" + bytes(range(60)))
    found = saved(disk)
    assert found.log_end == end
    with opened(disk) as store:
        numbered.check(store)


def test_config_comes_along(whole: LossyFiles) -> None:
    disk = disks.copy(whole)
    offsets = b'{"offsetTable":{"Topic0@g":{0:3,1:2}}}'
    disk.put(ROOT / "config" / "consumerOffset.json", offsets)
    disk.put(ROOT / "config" / "topics.json", b"{}")
    found = saved(disk)
    assert found.config_files == ["consumerOffset.json", "topics.json"]
    assert disk.read_all(NEW / "config" / "consumerOffset.json") == offsets


def test_a_config_file_that_cannot_be_read_is_told(whole: LossyFiles) -> None:
    inner = disks.copy(whole)
    inner.put(ROOT / "config" / "topics.json", b"{}")
    inner.put(ROOT / "config" / "consumerOffset.json", b"{}")
    bad = BadDisk(inner, {ROOT / "config" / "topics.json": [0]})
    found = salvage(ROOT, NEW, SETTINGS, files=bad, clock=ManualClock())
    assert found.config_files == ["consumerOffset.json"]
    assert [fault.partition(":")[0] for fault in found.config_faults] == ["topics.json"]
    assert not found.is_complete


def test_the_report_lies_in_the_new_store(whole: LossyFiles) -> None:
    disk = disks.copy(whole)
    start, end = disks.places(whole)[30]
    path, base = segment_of(disk, start)
    disks.flip(disk, path, 8 * (start - base + 89))
    found = saved(disk)
    (lost,) = found.lost_ranges
    assert (lost.physical_offset, lost.length, lost.reason) == (start, end - start, "bad crc")
    assert lost.kept_in is not None
    assert disk.read_all(NEW / lost.kept_in).ljust(end - start, b"\0") == disk.read_all(path)[start - base : end - base]
    document = json.loads(disk.read_all(NEW / REPORT))
    assert document["lost_ranges"] == [
        {"physical_offset": start, "length": end - start, "reason": "bad crc", "kept_in": lost.kept_in}
    ]
    one = numbered.known(30)
    assert [(lost.topic, lost.queue_id) for lost in found.lost_messages] == [(one.topic, one.queue_id)]


@pytest.mark.parametrize("name", ["basic", "batch", "ipv6", "transaction-raw", "unclean", "deleted-segments"])
def test_stores_of_rocketmq(tmp_path: Path, name: str) -> None:
    store = golden.restore(name, tmp_path)
    settings = StoreSettings.from_properties(golden.property_texts(golden.manifest(name).settings))
    before = golden.tree_state(store)
    found = salvage(store, tmp_path / "new", settings)
    assert found.is_complete, found
    assert golden.tree_state(store) == before
    assert verify(tmp_path / "new").is_sound
    expected = list(golden.content(store / "commitlog").items())
    after = golden.content(tmp_path / "new" / "commitlog")
    if name != "unclean":  # It has an empty file made ahead, which is not taken along.
        assert [(file, after.get(file)) for file, _ in expected] == expected


# -- what must not be ----------------------------------------------------------------------------------


def test_a_place_that_is_not_free(whole: LossyFiles) -> None:
    disk = disks.copy(whole)
    disk.make_directory(NEW)
    with pytest.raises(StorePathInvalid, match="exists already"):
        saved(disk)
    with pytest.raises(StorePathInvalid, match="no such directory"):
        salvage(ROOT, "/nowhere/new", SETTINGS, files=disk)
    with pytest.raises(StorePathInvalid):
        salvage("/none", "/other", SETTINGS, files=disk)
    assert not disk.exists(Path("/other"))


def test_a_full_disk_leaves_nothing_behind(whole: LossyFiles) -> None:
    files = FaultyFiles(disks.copy(whole))
    files.fail("pwrite", nth=3, path_contains="new.partial", error=28)
    with pytest.raises(StoreError, match=r"No space left.*was not made"):
        saved(files)
    assert not files.exists(NEW)
    assert not files.exists(NEW.with_name("new.partial"))
    files.heal()
    assert saved(files).is_complete


def test_what_an_earlier_call_left_is_removed(whole: LossyFiles) -> None:
    disk = disks.copy(whole)
    disk.put(NEW.with_name("new.partial") / "commitlog" / "0".zfill(20), b"old")
    disk.put(NEW.with_name("new.partial") / MARK, b"")
    assert saved(disk).is_complete
    check(disk, whole, set())


def test_nothing_is_delivered_or_deleted_on_the_way() -> None:
    """Parked messages that are long due stay parked: whoever opens the store delivers them."""
    disk = LossyFiles()
    clock = ManualClock()
    plan = disks.builder()
    with MessageStore.open(ROOT, plan.settings, files=disk, clock=clock) as store:
        store.append(Message("Later", b"x", delay_level=1))
    clock.advance(s=100_000)
    found = salvage(ROOT, NEW, plan.settings.replace(delayed_delivery=True), files=disk, clock=clock)
    assert found.records == 1
    with MessageStore.open(NEW, plan.settings, files=disk, clock=clock) as store:
        assert store.topics() == {"SCHEDULE_TOPIC_XXXX": [0]}
