"""Rebuild: byte for byte what live dispatch writes, aside and swapped in; a call that was killed goes on."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from embermq import Message, MessageStore
from embermq.errors import StoreError, StoreLocked, StorePathInvalid
from embermq.files import RealFiles
from embermq.repair.rebuild import build as rebuild_build
from embermq.repair.rebuild.journal import WORK, load_journal
from embermq.repair.rebuild.rebuilding import Rebuilt, rebuild, settings_as_found
from embermq.repair.verify.store_check import verify
from embermq.settings import FlushDisk, StoreSettings
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from embermq.testing.faulty_files import FaultyFiles, Killed
from embermq.testing.lossy_files import LossyFiles
from embermq.testing.unsynced import lose_everything, random_fates
from tests.crash import disks, numbered
from tests.crash.disks import ROOT
from tests.support import golden

COUNT = 120
DERIVED = ("consumequeue", "index")
SETTINGS = disks.builder().settings


def made(disk: Any, **options: Any) -> Rebuilt:
    return rebuild(ROOT, SETTINGS, files=disk, clock=ManualClock(), **options)


def content(disk: LossyFiles, family: str, root: Path = ROOT) -> list[tuple[str, bytes]]:
    """Files and their bytes; index files by order alone, since their names are times."""
    paths = disks.paths(disk, root / family) if disk.exists(root / family) else []
    names = [str(path.relative_to(root)) if family != "index" else "" for path in paths]
    return [(name, disk.read_all(path)) for name, path in zip(names, paths, strict=True)]


@pytest.fixture(scope="module")
def live() -> LossyFiles:
    """A store that was written and closed; copy it before changing anything."""
    return disks.closed(COUNT)


def spoilt(live: LossyFiles) -> LossyFiles:
    """The same with some of its derived files missing, cut and wrong."""
    disk = disks.copy(live)
    queues, index = disks.paths(disk, ROOT / "consumequeue"), disks.paths(disk, ROOT / "index")
    disk.remove(queues[0])
    disks.shorten(disk, queues[3], 40)
    disks.flip(disk, queues[5], 100)
    disks.flip(disk, index[1], 900)
    disk.remove(index[2])
    return disk


def check(disk: LossyFiles, live: LossyFiles) -> None:
    for family in DERIVED:
        assert content(disk, family) == content(live, family), family
    assert not disk.exists(ROOT / WORK)
    report = verify(ROOT, files=disk)
    assert report.flaws == []
    with disks.builder().on(disks.copy(disk)).open() as store:
        assert store.recovery.reason == "closed cleanly"
        numbered.check(store)


# -- what is made --------------------------------------------------------------------------------------


def test_both(live: LossyFiles) -> None:
    disk = spoilt(live)
    found = made(disk)
    check(disk, live)
    report = verify(ROOT, files=live)
    assert (found.queues, found.queue_entries, found.index_entries) == (
        report.queues,
        report.queue_entries,
        report.index_entries,
    )
    assert (found.records, found.resumed_at, found.damages) == (report.records, None, [])


@pytest.mark.parametrize("family", ["queues", "index"])
def test_one_of_them(live: LossyFiles, family: str) -> None:
    disk = spoilt(live)
    before = content(disk, "index" if family == "queues" else "consumequeue")
    made(disk, queues=family == "queues", index=family == "index")
    same, other = DERIVED if family == "queues" else DERIVED[::-1]
    assert content(disk, same) == content(live, same)
    assert content(disk, other) == before
    made(disk, queues=family != "queues", index=family != "index")
    check(disk, live)


def test_nothing_is_lost_if_everything_derived_is_gone(live: LossyFiles) -> None:
    disk = disks.copy(live)
    for family in DERIVED:
        for path in disks.paths(disk, ROOT / family):
            disk.remove(path)
    made(disk)
    check(disk, live)


def test_a_store_that_was_killed() -> None:
    disk = disks.killed(COUNT)
    made(disk)
    report = verify(ROOT, files=disk)
    assert report.is_sound
    assert report.pending_entries == 0
    with disks.builder().on(disk).open() as store:
        assert store.recovery.reason == "not closed cleanly"
        assert not store.recovery.damages
        numbered.check(store)


def test_without_proofs_nothing_is_claimed(live: LossyFiles) -> None:
    """As in a store of RocketMQ: then the next start of ours makes everything again anyway."""
    disk = spoilt(live)
    for name in ("embermq.state", "embermq.index.json", "embermq.inventory.json"):
        disk.remove(ROOT / name)
    made(disk)
    for family in DERIVED:
        assert content(disk, family) == content(live, family)
    assert not disk.exists(ROOT / "embermq.state")
    assert not disk.exists(ROOT / "embermq.inventory.json")


@pytest.mark.parametrize("extension", [False, True], ids=["", "extension"])
@pytest.mark.slow
def test_queues_whose_messages_are_all_gone_keep_their_end(extension: bool) -> None:
    disk = LossyFiles()
    extra = {"retention_hours": 0, "queue_extension": extension, "queue_extension_file_bytes": 2000}
    plan = StoreBuilder(ROOT, flush=FlushDisk.SYNC, **(numbered.TINY | extra))
    with plan.on(disk).open() as store:
        for _ in range(11):
            store.append(Message("Idle", b"x"))
        numbered.append_until(store, 0, COUNT)
        store.wait_for_dispatch()
        assert store.delete_expired().segments > 0
    disk.remove(ROOT / "embermq.offsets.json")
    rebuild(ROOT, plan.settings, files=disk, clock=ManualClock())
    assert verify(ROOT, files=disk).flaws == []
    with plan.on(disk).open() as store:
        assert store.append(Message("Idle", b"y")).queue_offset == 11


@pytest.mark.slow
def test_a_queue_without_messages_and_without_its_extension_is_not_carried_over() -> None:
    """Its files are damaged: rebuilding goes on without them, and does not begin again and again."""
    disk = LossyFiles()
    extra = {"retention_hours": 0, "queue_extension": True, "queue_extension_file_bytes": 2000}
    plan = StoreBuilder(ROOT, flush=FlushDisk.SYNC, **(numbered.TINY | extra))
    with plan.on(disk).open() as store:
        for _ in range(11):
            store.append(Message("Idle", b"x"))
        numbered.append_until(store, 0, COUNT)
        store.wait_for_dispatch()
        assert store.delete_expired().segments > 0
    for path in disks.paths(disk, ROOT / "consumequeue_ext" / "Idle"):
        disk.remove(path)
    rebuild(ROOT, plan.settings, files=disk, clock=ManualClock())
    assert [flaw for flaw in verify(ROOT, files=disk).flaws if flaw.is_fault] == []


GARBAGE = b"\x77" * 64


def append_garbage(disk: LossyFiles) -> int:
    """Put what is no record behind the last one; where."""
    end = disks.places(disk)[-1][1]
    start = end - end % SETTINGS.segment_bytes
    disks.overwrite(disk, ROOT / "commitlog" / f"{start:020d}", end - start, GARBAGE)
    return end


def test_what_a_crash_left_behind_the_last_record_is_no_damage() -> None:
    disk = disks.killed(COUNT)
    end = append_garbage(disk)
    before = disks.contents(disk)
    assert verify(ROOT, files=disk).is_sound
    found = made(disk, into=ROOT.parent / "new")
    assert (found.log_end, found.damages) == (end, [])
    assert found.torn_tail == []  # It was never proved, so there is nothing to report.
    assert {path: raw for path, raw in disks.contents(disk).items() if path in before} == before


def test_without_any_proof_a_torn_tail_is_reported_and_no_damage() -> None:
    """As in a store of RocketMQ, or a copy."""
    disk = disks.killed(COUNT)
    end = append_garbage(disk)
    disk.remove(ROOT / "embermq.state")
    assert verify(ROOT, files=disk).is_sound
    found = made(disk)
    assert (found.log_end, found.damages) == (end, [])
    assert [one.physical_offset for one in found.torn_tail] == [end]


def test_a_last_record_that_was_durable_and_is_damaged_is_damage() -> None:
    disk = disks.killed(COUNT, at_rest=True)
    start, end = disks.places(disk)[-1]
    base = start - start % SETTINGS.segment_bytes
    disks.overwrite(disk, ROOT / "commitlog" / f"{base:020d}", start - base + 4, GARBAGE[: end - start - 4])
    assert not verify(ROOT, files=disk).is_sound
    found = made(disk)
    assert ([one.physical_offset for one in found.damages], found.torn_tail) == ([start], [])


def test_a_torn_tail_of_a_store_that_was_closed_is_damage(live: LossyFiles) -> None:
    disk = disks.copy(live)
    start, end = disks.places(disk)[-1]
    base = start - start % SETTINGS.segment_bytes
    disks.overwrite(disk, ROOT / "commitlog" / f"{base:020d}", start - base + 4, GARBAGE[: end - start - 4])
    disk.remove(ROOT / "embermq.state")
    assert not verify(ROOT, files=disk).is_sound
    found = made(disk)
    assert ([one.physical_offset for one in found.damages], found.torn_tail) == ([start], [])


def test_what_an_earlier_call_left_is_used_and_what_others_left_is_not_touched(live: LossyFiles) -> None:
    disk = disks.copy(live)
    new = ROOT.parent / "new"
    partial = new.with_name("new.partial")
    disk.make_directory(partial / "odd-1234")
    disk.make_directory(partial / "new")
    assert made(disk, into=new).damages == []
    assert not disk.exists(partial)
    other = ROOT.parent / "other.partial"
    disk.make_directory(other / "pictures")
    with pytest.raises(StorePathInvalid, match="holds pictures"):
        made(disk, into=ROOT.parent / "other")
    assert disk.exists(other / "pictures")


def test_a_damaged_log(live: LossyFiles) -> None:
    """What is whole is in the queues; what is not is reported."""
    disk = disks.copy(live)
    start, _ = disks.places(live)[30]
    segment = max(int(path.name) for path in disks.paths(disk, ROOT / "commitlog") if int(path.name) <= start)
    disks.flip(disk, ROOT / "commitlog" / f"{segment:020d}", 8 * (start - segment + 89))
    log = content(disk, "commitlog")
    found = made(disk)
    assert [damage.physical_offset for damage in found.damages] == [start]
    assert content(disk, "commitlog") == log
    assert {flaw.family for flaw in verify(ROOT, files=disk).flaws if flaw.is_fault} == {"commitlog"}


@pytest.mark.parametrize("name", ["basic", "batch", "index", "transaction-raw", "delay-parked", "lmq", "ipv6"])
def test_stores_of_rocketmq(tmp_path: Path, name: str) -> None:
    """Queue files byte for byte as RocketMQ wrote them; the index by what it finds."""
    store = golden.restore(name, tmp_path)
    manifest = golden.manifest(name)
    settings = StoreSettings.from_properties(golden.property_texts(manifest.settings))
    settings = settings.replace(**settings_as_found(RealFiles(), store))
    before = golden.content(store / "consumequeue")
    rebuild(store, settings)
    assert golden.content(store / "consumequeue") == before
    report = verify(store)
    assert report.is_sound, report.flaws


def test_settings_that_directories_show(tmp_path: Path) -> None:
    assert settings_as_found(RealFiles(), tmp_path) == {}
    assert settings_as_found(RealFiles(), golden.restore("cqext", tmp_path / "a")) == {"queue_extension": True}
    assert settings_as_found(RealFiles(), golden.restore("lmq", tmp_path / "b")) == {
        "light_queues": True,
        "multi_dispatch": True,
    }


def test_an_extension(tmp_path: Path) -> None:
    """It is made again without filter bits; entries lead to their own."""
    store = golden.restore("cqext", tmp_path)
    settings = StoreSettings.from_properties(golden.property_texts(golden.manifest("cqext").settings))
    rebuild(store, settings.replace(queue_extension=True))
    assert (store / "consumequeue_ext").exists()
    assert verify(store).is_sound


# -- beside the store ----------------------------------------------------------------------------------


def test_into_a_new_directory_beside_a_store_that_is_running(tmp_path: Path) -> None:
    plan = StoreBuilder(tmp_path / "store")
    with plan.open() as store:
        for n in range(200):
            store.append(Message("T", b"%d" % n, keys=[f"k{n}"]))
        store.wait_for_dispatch()
        store.flush()
        before = golden.content(plan.root / "commitlog")
        found = rebuild(plan.root, plan.settings, into=tmp_path / "new")
        assert found.queue_entries == 200
        after = golden.content(plan.root / "commitlog")
        assert {name: after[name] for name in before} == before  # The store itself may have made files ahead.
        assert not (plan.root / WORK).exists()
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["consumequeue", "index"]
    assert golden.content(tmp_path / "new" / "consumequeue") == golden.content(plan.root / "consumequeue")
    assert golden.content(tmp_path / "new" / "index", names=False) == golden.content(plan.root / "index", names=False)
    assert not (tmp_path / "new.partial").exists()


def test_into_needs_a_place_that_is_free(live: LossyFiles) -> None:
    disk = disks.copy(live)
    disk.make_directory(Path("/there"))
    for target in ("/there", "/nowhere/new"):
        before = disks.contents(disk)
        with pytest.raises(StorePathInvalid):
            made(disk, into=target)
        assert disks.contents(disk) == before


# -- what must not be ----------------------------------------------------------------------------------


def test_a_store_that_somebody_has_open(tmp_path: Path) -> None:
    plan = StoreBuilder(tmp_path / "store")
    with plan.open() as store:
        store.append(Message("T", b"x"))
        with pytest.raises(StoreLocked):
            rebuild(plan.root, plan.settings)
    rebuild(plan.root, plan.settings)


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(StorePathInvalid):
        rebuild(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_what_does_not_agree_with_the_log_is_not_swapped_in(live: LossyFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of ours, or of the memory: what was there stays."""
    disk = disks.copy(live)
    before = {family: content(disk, family) for family in DERIVED}
    run = rebuild_build.Build.run

    def spoil(self: Any, *args: Any) -> Any:
        built = run(self, *args)
        disks.flip(disk, disks.paths(disk, ROOT / WORK / "new" / "consumequeue")[2], 33)
        return built

    monkeypatch.setattr(rebuild_build.Build, "run", spoil)
    with pytest.raises(StoreError, match="does not agree with the log"):
        made(disk)
    assert {family: content(disk, family) for family in DERIVED} == before
    monkeypatch.undo()
    made(disk)
    check(disk, live)


# -- killed at any step --------------------------------------------------------------------------------


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild_build, "PORTION_BYTES", 6000)


def steps_of_one_run(live: LossyFiles) -> int:
    files = FaultyFiles(spoilt(live))
    made(files)
    return len(files.steps)


def killed_at(disk: LossyFiles, step: int) -> None:
    """A call that dies just before this operation."""

    def die() -> None:
        raise Killed

    files = FaultyFiles(disk)
    files.before(step=step, call=die)
    with pytest.raises(Killed):
        made(files)
    disk.locks.clear()


@pytest.mark.usefixtures("small_portions")
@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.slow(10)
def test_killed_at_some_steps_and_called_again(live: LossyFiles, loses_power: bool) -> None:
    count = steps_of_one_run(live)
    for step in range(1, count + 1, 9):
        go_on_after(live, step, loses_power=loses_power)


@pytest.mark.long
@pytest.mark.usefixtures("small_portions")
@pytest.mark.parametrize("loses_power", [False, True])
def test_killed_at_every_step_and_called_again(live: LossyFiles, loses_power: bool) -> None:
    for step in range(1, steps_of_one_run(live) + 1):
        go_on_after(live, step, loses_power=loses_power)


def go_on_after(live: LossyFiles, step: int, *, loses_power: bool) -> None:
    disk = spoilt(live)
    killed_at(disk, step)
    fates = [lose_everything, random_fates(step)] if loses_power else [None]
    for choose in fates:
        left = disk if choose is None else disk.crash(choose)
        with disks.builder().on(disks.copy(left)).open() as store:  # A store at any time.
            numbered.check(store)
        made(left)
        for family in DERIVED:
            assert content(left, family) == content(live, family), (step, family)
        assert not left.exists(ROOT / WORK), step
        assert verify(ROOT, files=left).is_sound


@pytest.mark.usefixtures("small_portions")
def test_a_call_goes_on_from_the_last_portion(live: LossyFiles) -> None:
    disk = spoilt(live)
    files = FaultyFiles(disk)
    made(files)
    renames = [(at, path.name) for at, (kind, path) in enumerate(files.steps, 1) if kind == "rename"]
    journals = [at for at, name in renames if name == "journal.json"]
    assert len(journals) > 3
    disk = spoilt(live)
    killed_at(disk, journals[2] + 5)
    journal = load_journal(disk, ROOT / WORK)
    assert journal is not None
    found = made(disk)
    assert found.resumed_at == journal.position > 0
    assert found.records < len(disks.places(live))
    check(disk, live)


@pytest.mark.usefixtures("small_portions")
def test_a_log_that_went_on_meanwhile_is_walked_again(live: LossyFiles) -> None:
    """Killed when all but the swap was done; then the store was opened and written to."""
    files = FaultyFiles(spoilt(live))
    made(files)
    swap = next(at for at, (kind, path) in enumerate(files.steps, 1) if kind == "rename" and path.parent.name == "old")
    disk = spoilt(live)
    killed_at(disk, swap)
    journal = load_journal(disk, ROOT / WORK)
    assert journal is not None
    assert journal.ready
    with disks.builder().on(disk).open() as store:
        end = numbered.append_until(store, len(numbered.numbers_in(store)), COUNT + 30)
    found = made(disk)
    assert found.log_end > journal.end
    assert verify(ROOT, files=disk).flaws == []
    with disks.builder().on(disk).open() as store:
        numbered.check(store, range(end))


def test_a_file_that_fails_is_told_and_the_next_call_goes_on(live: LossyFiles) -> None:
    files = FaultyFiles(spoilt(live))
    files.fail("create", nth=3, path_contains="embermq.rebuild")
    with pytest.raises(StoreError, match="call it again to continue"):
        made(files)
    made(files)
    inner = files.inner
    assert isinstance(inner, LossyFiles)
    check(inner, live)
    lock = files.lock(ROOT / "lock")
    with pytest.raises(StoreLocked):
        made(files)
    lock.release()


def test_memory_and_threads_are_given_back(live: LossyFiles) -> None:
    before = threading.active_count()
    made(disks.copy(live))
    assert threading.active_count() == before


def test_opening_a_store_with_a_rebuild_that_was_given_up(live: LossyFiles) -> None:
    disk = spoilt(live)
    killed_at(disk, steps_of_one_run(live) // 2)
    assert disk.exists(ROOT / WORK)
    with MessageStore.open(ROOT, SETTINGS, files=disk) as store:
        numbered.check(store)


def test_a_lost_lock_is_noticed_before_anything_is_swapped(tmp_path: Path) -> None:
    plan = StoreBuilder(tmp_path / "store")
    with plan.open() as store:
        store.append(Message("T", b"x", keys=("k",)))
    before = (plan.root / "embermq.state").read_bytes()

    def replace_lock(what: str, done: int, total: int) -> None:
        (plan.root / "other").write_bytes(b"lock")
        os.replace(plan.root / "other", plan.root / "lock")

    with pytest.raises(StoreError, match="was replaced by another file"):
        rebuild(plan.root, plan.settings, progress=replace_lock)
    assert (plan.root / "embermq.state").read_bytes() == before
    assert not (plan.root / "embermq.rebuild" / "old").exists()
    rebuild(plan.root, plan.settings)
