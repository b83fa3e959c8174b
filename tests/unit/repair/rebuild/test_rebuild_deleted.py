"""A rebuild leaves out what a deleted topic had, as the live dispatcher does: byte for byte the same files."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from embermq import Message, MessageStore
from embermq.repair.rebuild import build as rebuild_build
from embermq.repair.rebuild import bulk_build as rebuild_bulk
from embermq.repair.rebuild.bulk_build import BulkBuild
from embermq.repair.rebuild.journal import load_journal
from embermq.repair.rebuild.rebuilding import rebuild
from embermq.repair.verify.store_check import verify
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from tests.crash import numbered
from tests.unit.repair.rebuild.test_bulk import Hands, Killed, flaws_of
from tests.unit.repair.rebuild.test_follower import derived

MANY_DISPATCH: dict[str, Any] = {"multi_dispatch": True, "light_queues": True}


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild_bulk, "SLICE_BYTES_MIN", 1000)


def fill(store: MessageStore, topic: str, count: int, word: str = "old") -> None:
    for n in range(count):
        store.append(Message(topic, f"{word} {n}".encode(), keys=[f"{word}{n}"], tags="a", queue_id=n % 2))


def life(store: MessageStore, again: int) -> None:
    """T is deleted once, V twice; W is deleted at the very end."""
    fill(store, "T", 60)
    fill(store, "U", 40)
    fill(store, "V", 20)
    store.delete_topic("V")
    store.delete_topic("T")
    fill(store, "V", 7, "second")
    fill(store, "T", again, "new")
    fill(store, "U", 20, "more")
    store.delete_topic("V")
    fill(store, "W", 9)
    fill(store, "V", again, "third")
    store.delete_topic("W")


def builder_at(path: Path, **settings: Any) -> StoreBuilder:
    return StoreBuilder(path, clock=ManualClock(), **(numbered.TINY | settings))


def both_rebuilds(live: StoreBuilder, tmp_path: Path) -> None:
    """By the walk and in pieces; with the old queues at hand, beside the store, and without them, in it."""
    expected = derived(live.root)
    in_pieces = partial(BulkBuild, workers=Hands(3))
    for name, make_build in (("walk", rebuild_build.Build), ("pieces", in_pieces)):
        rebuild(live.root, live.settings, into=tmp_path / f"{name}-beside", make_build=make_build)
        assert derived(tmp_path / f"{name}-beside") == expected, name
        root = Path(shutil.copytree(live.root, tmp_path / name))
        shutil.rmtree(root / "consumequeue")
        shutil.rmtree(root / "index")
        rebuild(root, live.settings, make_build=make_build, clock=ManualClock())
        assert derived(root) == expected, name
        assert flaws_of(root) == []


@pytest.mark.parametrize(
    ("again", "settings"), [(0, {}), (6, {}), (90, {}), (6, {"queue_extension": True}), (6, MANY_DISPATCH)]
)
@pytest.mark.slow(2)
def test_deleted_topics(tmp_path: Path, again: int, settings: dict[str, Any]) -> None:
    live = builder_at(tmp_path / "live", **settings)
    with live.open() as store:
        life(store, again)
        store.wait_for_dispatch()
        assert set(store.topics()) == ({"U"} | ({"T", "V"} if again else set()))
    assert not verify(live.root).flaws
    both_rebuilds(live, tmp_path)


def test_after_the_log_has_lost_its_beginning(tmp_path: Path) -> None:
    """Of some topics only the note is left, of one the log has only some of what came before it was deleted."""
    live = StoreBuilder(tmp_path / "live", **(numbered.TINY | {"retention_hours": 0, "delete_segment_pause_ms": 0}))
    with live.open() as store:
        fill(store, "gone", 30)
        fill(store, "idle", 30)
        store.delete_topic("gone")
        fill(store, "U", 300)
        fill(store, "T", 80)
        store.wait_for_dispatch()
        assert store.delete_expired().segments
        fill(store, "T", 80)
        fill(store, "U", 30)
        store.delete_topic("T")
        fill(store, "T", 3, "new")
        store.wait_for_dispatch()
        assert "T" in store.topics()
    walked = tmp_path / "walked"
    rebuild(live.root, live.settings, into=walked)
    made = derived(walked)
    assert {name for name in made if name.startswith("T/")} == {"T/0/" + "0" * 20, "T/1/" + "0" * 20}
    assert not any(name.startswith("gone/") for name in made)
    assert any(name.startswith("idle/") for name in made) == (live.root / "consumequeue" / "idle").exists()
    live_t = {name: data for name, data in derived(live.root).items() if name.startswith("T/")}
    assert {name: data for name, data in made.items() if name.startswith("T/")} == live_t
    rebuild(live.root, live.settings, into=tmp_path / "sliced", make_build=partial(BulkBuild, workers=Hands(1)))
    assert derived(tmp_path / "sliced") == made


def test_messages_of_a_deleted_topic_stay_in_the_light_queues_they_went_to(tmp_path: Path) -> None:
    """Deleting a topic takes its own queues, not those that its messages were also put into; and the other way."""
    live = builder_at(tmp_path / "live", **MANY_DISPATCH)
    with live.open() as store:
        for n in range(40):
            names = "%LMQ%stays,%LMQ%goes"
            store.append(Message("T", b"%d" % n, properties={"INNER_MULTI_DISPATCH": names}, keys=[f"k{n}"]))
        store.delete_topic("T")
        store.delete_topic("%LMQ%goes")
        for n in range(3):
            store.append(Message("S", b"%d" % n, properties={"INNER_MULTI_DISPATCH": "%LMQ%goes"}, keys=[f"s{n}"]))
        store.wait_for_dispatch()
        assert set(store.topics()) == {"%LMQ%stays", "%LMQ%goes", "S"}
    both_rebuilds(live, tmp_path)


def test_killed_and_gone_on_after_another_deletion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier call had built does not count any more: it knew nothing of the deletion."""
    monkeypatch.setattr(rebuild_build, "PORTION_BYTES", 4000)
    live = builder_at(tmp_path / "live")
    with live.open() as store:
        fill(store, "T", 90)
        fill(store, "U", 90)

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as while_killed:
        while_killed.setattr(rebuild_build.Build, "_verified", killed)
        with pytest.raises(Killed):
            rebuild(live.root, live.settings)
    journal = load_journal(live.files, live.root / "embermq.rebuild")
    assert journal is not None
    assert journal.position > 0
    with live.open() as store:
        store.delete_topic("T")
        store.wait_for_dispatch()
    expected = derived(live.root)
    assert not any(name.startswith("T/") for name in expected)
    assert rebuild(live.root, live.settings).resumed_at is None
    assert derived(live.root) == expected


def test_killed_in_the_middle_it_goes_on_with_the_deletions_that_are_still_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild_build, "PORTION_BYTES", 3000)
    live = builder_at(tmp_path / "live")
    with live.open() as store:
        life(store, 30)
        store.wait_for_dispatch()
    expected = derived(live.root)
    note_portion, resumed = rebuild_build.Build.note_portion, []
    left = 0

    def note(self: Any, *args: Any) -> None:
        nonlocal left
        note_portion(self, *args)
        left -= 1
        if not left:
            raise Killed

    for stop in range(1, 100):
        left = stop
        monkeypatch.setattr(rebuild_build.Build, "note_portion", note)
        try:
            rebuild(live.root, live.settings, clock=ManualClock())
        except Killed:
            monkeypatch.setattr(rebuild_build.Build, "note_portion", note_portion)
            resumed.append(rebuild(live.root, live.settings, clock=ManualClock()).resumed_at)
            assert derived(live.root) == expected, stop
        else:
            break  # It has no more portions than that.
    assert len(set(resumed)) == len(resumed) >= 3
    assert None not in resumed
