"""A log derived in pieces, in any order, is byte for byte what the live dispatcher makes of it; killed, it goes on."""

import random
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from embermq import Message
from embermq.clock import SystemClock
from embermq.columns.compiled import derive
from embermq.errors import StoreError
from embermq.files import RealFiles
from embermq.format.frame import encode
from embermq.format.index import entry_at
from embermq.model.hosts import Host
from embermq.repair.rebuild import bulk
from embermq.repair.rebuild import bulk_build as rebuild_bulk
from embermq.repair.rebuild.bulk_build import BulkBuild
from embermq.repair.rebuild.journal import WORK, load_journal
from embermq.repair.rebuild.rebuilding import Rebuilt, rebuild, settings_as_found
from embermq.repair.rebuild.writer_lock import WRITER_LOCK_FILE as TURN
from embermq.repair.rebuild.writer_lock import Turn, end_turn, take_turn
from embermq.repair.verify.findings import Flaw
from embermq.repair.verify.store_check import verify
from embermq.settings import FlushDisk, StoreSettings
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from tests.crash import numbered
from tests.support import golden
from tests.unit.repair.rebuild.test_follower import derived


class Killed(BaseException):
    """The driver is gone."""


class Hands:
    """Does pieces of work in a random order, one of them twice; `dies_at` that piece of all the driver is gone."""

    def __init__(self, seed: int = 0, *, cores: int = 4, dies_at: int | None = None) -> None:
        self._chance, self.cores, self._dies_at = random.Random(seed), cores, dies_at
        self.done = 0
        self.titles: list[str] = []

    def __call__(self, function: Callable[[Any], Any], pieces: Sequence[Any], title: str) -> list[Any]:
        self.titles.append(title)
        results: list[Any] = [None] * len(pieces)
        order = list(range(len(pieces)))
        self._chance.shuffle(order)
        for number in [*order, *order[:1]]:
            if self.done == self._dies_at:
                raise Killed
            results[number] = function(pieces[number])
            self.done += 1
        return results


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild_bulk, "SLICE_BYTES_MIN", 1000)


def made(root: Path, settings: StoreSettings, hands: Hands, **options: Any) -> Rebuilt:
    return rebuild(root, settings, make_build=partial(BulkBuild, workers=hands), clock=ManualClock(), **options)


def filled(path: Path, count: int = 300, **settings: Any) -> StoreBuilder:
    builder = StoreBuilder(path, clock=ManualClock(), **(numbered.TINY | settings))
    with builder.open() as store:
        numbered.append_until(store, 0, count)
    return builder


def copied(builder: StoreBuilder, path: Path) -> Path:
    return Path(shutil.copytree(builder.root, path))


def proofs(root: Path) -> dict[str, bytes]:
    """What proves derived files, but for the names of index files."""
    names = [path.name for path in sorted((root / "index").iterdir())]
    found = {}
    for path in sorted(root.glob("embermq.*.json")):
        data = path.read_bytes()
        for number, name in enumerate(names):
            data = data.replace(name.encode(), b"%d" % number)
        found[path.name] = data.split(b'"crc"')[0]
    return found


def check(root: Path, live: StoreBuilder) -> None:
    assert derived(root) == derived(live.root)
    assert not (root / WORK).exists()
    assert flaws_of(root) == []


def flaws_of(root: Path) -> list[Flaw]:
    """A state page does not count in a copy of its directory."""
    return [flaw for flaw in verify(root).flaws if flaw.file != "embermq.state"]


# -- what is made ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.slow
def test_any_slices_in_any_order(tmp_path: Path, seed: int) -> None:
    live = filled(tmp_path / "store")
    root = copied(live, tmp_path / "copy")
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    hands = Hands(seed, cores=1 + seed)
    found = made(root, live.settings, hands)
    assert hands.titles == ["deriving", "completing"]  # And not compared with a second reading: all is regular.
    assert hands.done > 10
    check(root, live)
    report = verify(live.root)
    assert (found.queues, found.queue_entries, found.index_entries) == (
        report.queues,
        report.queue_entries,
        report.index_entries,
    )
    assert (found.records, found.damages, found.resumed_at) == (report.records, [], None)
    walked = copied(live, tmp_path / "walked")
    rebuild(walked, live.settings, clock=ManualClock())
    assert proofs(root) == proofs(walked)


@pytest.mark.parametrize("family", ["queues", "index"])
def test_one_of_them(tmp_path: Path, family: str) -> None:
    live, other = filled(tmp_path / "store"), filled(tmp_path / "other")
    shutil.rmtree(other.root / ("consumequeue" if family == "queues" else "index"))
    made(other.root, live.settings, Hands(), queues=family == "queues", index=family == "index")
    check(other.root, live)
    assert verify(other.root).flaws == []
    with other.open() as store:
        assert store.recovery.reason == "closed cleanly"
        numbered.check(store)


def test_beside_a_store_that_is_running(tmp_path: Path) -> None:
    live = filled(tmp_path / "store")
    with live.open() as store:
        numbered.append_until(store, 300, 330)
        store.wait_for_dispatch()
        store.flush()
        made(live.root, live.settings, Hands(), into=tmp_path / "new")
        assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["consumequeue", "index"]
    assert derived(tmp_path / "new") == derived(live.root)
    assert not (tmp_path / "new.partial").exists()


def test_an_empty_log(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.open().close()
    found = made(builder.root, builder.settings, Hands())
    assert (found.records, found.queues, found.queue_entries, found.index_entries) == (0, 0, 0, 0)
    assert verify(builder.root).flaws == []


def test_a_log_that_begins_late(tmp_path: Path) -> None:
    """Queues whose first records have left begin with blanks, as the dispatcher writes them."""
    live = filled(tmp_path / "store")
    for old in sorted((live.root / "commitlog").iterdir())[:2]:
        old.unlink()
    for name in ("consumequeue", "index"):
        shutil.rmtree(live.root / name)
    live.open().close()  # Derives everything from what is left.
    root = copied(live, tmp_path / "copy")
    made(root, live.settings, Hands())
    check(root, live)


@pytest.mark.slow
def test_queues_whose_messages_are_all_gone_keep_their_end(tmp_path: Path) -> None:
    """One goes on with new messages that its files do not know, one stays as it is."""
    live = StoreBuilder(
        tmp_path / "store", clock=SystemClock(), flush=FlushDisk.SYNC, **(numbered.TINY | {"retention_hours": 0})
    )
    with live.open() as store:
        for topic in ("Idle", "Back"):
            for _ in range(11):
                store.append(Message(topic, b"x"))
        numbered.append_until(store, 0, 120)
        store.wait_for_dispatch()
        assert store.delete_expired().segments > 0
        store.append(Message("Back", b"y"))
    (live.root / "embermq.offsets.json").unlink()
    walked, root = copied(live, tmp_path / "walked"), copied(live, tmp_path / "copy")
    for one in (walked, root):  # As after a crash that took the entry of the new message.
        for path in sorted((one / "consumequeue" / "Back" / "0").iterdir()):
            data = path.read_bytes()
            path.write_bytes(data.replace(data[20 * 3 : 20 * 4], bytes(20)) if int(path.name) else data)
    rebuild(walked, live.settings, clock=ManualClock())
    made(root, live.settings, Hands())
    assert derived(root) == derived(walked)
    assert flaws_of(root) == []
    with StoreBuilder(root, clock=ManualClock(), **numbered.TINY).open() as store:
        assert store.append(Message("Idle", b"y")).queue_offset == 11


@pytest.mark.parametrize("name", golden.ALL_STORES)
@pytest.mark.slow(2)
def test_stores_of_rocketmq(tmp_path: Path, name: str) -> None:
    """The same as `embermq store rebuild` makes, whatever is in them."""
    settings = StoreSettings.from_properties(golden.manifest(name).properties())
    roots = [golden.restore(name, tmp_path / way) for way in ("walk", "slices")]
    settings = settings.replace(**settings_as_found(RealFiles(), roots[0]))
    walked = rebuild(roots[0], settings)
    found = made(roots[1], settings, Hands())
    for family in ("consumequeue", "consumequeue_ext"):
        assert golden.content(roots[1] / family) == golden.content(roots[0] / family), family
    assert golden.content(roots[1] / "index", names=False) == golden.content(roots[0] / "index", names=False)
    assert (found.log_end, found.records, found.damages) == (walked.log_end, walked.records, walked.damages)


# -- damage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.slow
def test_a_damaged_log(tmp_path: Path, seed: int) -> None:
    """Damaged anywhere: the same holes are found, and filled in the same way, as by the walk from end to end."""
    chance = random.Random(seed)
    live = filled(tmp_path / "store", 160)
    segments = sorted((live.root / "commitlog").iterdir())
    for _ in range(chance.randrange(1, 4)):
        path = chance.choice(segments[:-1])
        data = bytearray(path.read_bytes())
        at = chance.randrange(len(data) - 300)
        length = chance.randrange(1, 300)
        data[at : at + length] = chance.choice([chance.randbytes(length), bytes(length), b"\xff" * length])
        path.write_bytes(data)
    if seed == 3:
        segments[1].unlink()
    roots = [copied(live, tmp_path / way) for way in ("walk", "slices")]
    walked = rebuild(roots[0], live.settings, clock=ManualClock())
    found = made(roots[1], live.settings, Hands(seed))
    assert found.damages == walked.damages
    assert found.damages or seed != 3
    assert derived(roots[1]) == derived(roots[0])
    assert proofs(roots[1]) == proofs(roots[0])


def test_what_only_looks_like_a_record(tmp_path: Path) -> None:
    """Bodies that hold records of their own place: no slice begins there, or it is done again."""
    builder = StoreBuilder(tmp_path / "store", clock=ManualClock(), **(numbered.TINY | {"segment_bytes": 65536}))
    host = Host("127.0.0.1", 0)
    with builder.open() as store:
        for number in range(40):
            head = store.max_physical + 84 + 4
            body = b""
            while len(body) < 900:
                body += encode(
                    topic="Fake",
                    body=b"x" * 30,
                    physical_offset=head + len(body),
                    queue_offset=number,
                    queue_id=0,
                    flag=0,
                    sys_flag=0,
                    born_timestamp=1,
                    born_host=host,
                    store_timestamp=1,
                    store_host=host,
                    reconsume_times=0,
                    prepared_transaction_offset=0,
                    properties=b"",
                )
            store.append(Message("Real", body, keys=[f"k{number}"]))
    root = copied(builder, tmp_path / "copy")
    hands = Hands(cores=4)
    made(root, builder.settings, hands)
    assert hands.titles.count("deriving") > 1  # It did happen.
    check(root, builder)
    assert [path.name for path in (root / "consumequeue").iterdir()] == ["Real"]


# -- killed ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild_bulk, "PORTION_BYTES", 9000)


@pytest.mark.usefixtures("small_portions")
@pytest.mark.slow
def test_killed_anywhere_it_goes_on(tmp_path: Path) -> None:
    live = filled(tmp_path / "store", 100)
    whole = Hands()
    made(copied(live, tmp_path / "whole"), live.settings, whole)
    assert whole.titles.count("syncing") >= 2
    resumed = 0
    for dies_at in range(0, whole.done, 7):
        root = copied(live, tmp_path / f"killed-{dies_at}")
        hands = Hands(dies_at=dies_at)
        with pytest.raises(Killed):
            made(root, live.settings, hands)
        assert derived(root) == derived(live.root)  # Nothing was swapped.
        found = made(root, live.settings, Hands(dies_at))
        resumed += found.resumed_at is not None
        check(root, live)
        shutil.rmtree(root)
    assert resumed > 2


@pytest.mark.usefixtures("small_portions")
@pytest.mark.slow
def test_a_log_that_went_on_meanwhile(tmp_path: Path) -> None:
    """And one that is another: what was done before counts in the first case only."""
    live = filled(tmp_path / "store", 160)
    with pytest.raises(Killed):
        made(live.root, live.settings, Hands(dies_at=25))
    journal = load_journal(RealFiles(), live.root / WORK)
    assert journal is not None
    assert journal.position > 0
    with live.open() as store:
        numbered.append_until(store, 160, 164)
    root = copied(live, tmp_path / "copy")
    assert made(root, live.settings, Hands()).resumed_at == journal.position
    check(root, live)
    with live.open() as store:
        numbered.append_until(store, 164, 300)
    found = made(live.root, live.settings, Hands())
    assert found.resumed_at is None  # There are more files now.
    check(live.root, filled(tmp_path / "again", 300))


def test_walk_and_slices_do_not_go_on_with_each_others_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild_bulk, "PORTION_BYTES", 9000)
    live = filled(tmp_path / "store", 160)
    root = copied(live, tmp_path / "copy")
    with pytest.raises(Killed):
        made(root, live.settings, Hands(dies_at=25))
    assert rebuild(root, live.settings, clock=ManualClock()).resumed_at is None
    check(root, live)


def test_a_slice_of_a_killed_driver_comes_too_late(tmp_path: Path) -> None:
    turn = take_turn(tmp_path)
    with turn.writing():
        pass
    later = take_turn(tmp_path)
    with pytest.raises(StoreError, match="another rebuild has taken over"), turn.writing():
        raise AssertionError
    with later.writing():
        pass
    end_turn(tmp_path)
    with pytest.raises(StoreError, match="taken over"), later.writing():
        raise AssertionError
    (tmp_path / TURN).unlink()
    with pytest.raises(StoreError, match="is over"), Turn(tmp_path, "x").writing():
        raise AssertionError
    end_turn(tmp_path)
    assert not (tmp_path / TURN).exists()


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def spoil_entries(work: Path) -> None:
    flip(sorted((work / "new" / "consumequeue").rglob("0*"))[0], 25)


def cut_entries(work: Path) -> None:
    path = sorted((work / "new" / "consumequeue").rglob("0*"))[0]
    path.write_bytes(path.read_bytes()[:30])


def lose_entries(work: Path) -> None:
    sorted((work / "new" / "consumequeue").rglob("0*"))[0].unlink()


def spoil_key(work: Path) -> None:
    flip(sorted((work / "keys").iterdir())[1], 24 * 3)


@pytest.mark.parametrize("spoil", [spoil_entries, cut_entries, lose_entries, spoil_key])
def test_what_does_not_agree_with_the_log_is_not_swapped_in(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    live = filled(tmp_path / "store", 120)
    root = copied(live, tmp_path / "copy")

    class Spoiling(Hands):
        def __call__(self, function: Callable[[Any], Any], pieces: Sequence[Any], title: str) -> list[Any]:
            if title == "completing":
                spoil(root / WORK)
            return super().__call__(function, pieces, title)

    with pytest.raises(StoreError, match="does not agree with the log"):
        made(root, live.settings, Spoiling())
    assert derived(root) == derived(live.root)
    made(root, live.settings, Hands())
    check(root, live)


def test_an_index_that_was_put_wrongly_is_not_swapped_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its header, its slots or its first entries."""
    monkeypatch.setattr(rebuild_bulk, "SLICE_BYTES_MIN", 1 << 20)
    live = filled(tmp_path / "store", 60)
    put_keys = derive.index_put_keys
    slots = live.settings.index_slots_max
    for at in [*range(0, entry_at(0, slots), 9), *range(entry_at(1, slots), entry_at(3, slots), 5)]:

        def put_wrongly(file: Any, *rest: Any, at: int = at) -> int:
            put = put_keys(file, *rest)
            file[at] ^= 1
            return int(put)

        with monkeypatch.context() as patch:
            patch.setattr(derive, "index_put_keys", put_wrongly)
            with pytest.raises(StoreError, match="does not agree with the log"):
                made(live.root, live.settings, Hands(), queues=False)
    made(live.root, live.settings, Hands())
    check(live.root, filled(tmp_path / "again", 60))


def test_many_records_in_a_slice_are_written_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "RECORDS_KEPT_MAX", 7)
    monkeypatch.setattr(rebuild_bulk, "SLICE_BYTES_MIN", 20_000)
    live = filled(tmp_path / "store")
    root = copied(live, tmp_path / "copy")
    made(root, live.settings, Hands())
    check(root, live)


def test_as_many_slices_for_each_core() -> None:
    gib = 1 << 30
    assert [rebuild_bulk._slice_count(gib + 544, cores) for cores in (1, 2, 3, 16)] == [4, 4, 6, 32]
    assert rebuild_bulk._slice_count(8 * gib, 2) == 26
    assert rebuild_bulk._slice_count(500, 4) == 1
    assert rebuild_bulk._slice_count(2500, 4) == 3


@pytest.mark.slow
def test_a_damaged_log_is_read_a_second_time(tmp_path: Path) -> None:
    live = filled(tmp_path / "store", 120)
    path = sorted((live.root / "commitlog").iterdir())[0]
    data = path.read_bytes()
    path.write_bytes(data[:400] + bytes(300) + data[700:])
    hands = Hands()
    assert made(live.root, live.settings, hands).damages
    assert hands.titles == ["deriving", "completing", "comparing"]
