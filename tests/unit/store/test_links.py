"""Links in a store's directory, made by an operator: every operation works in place or is refused, and files that the
store did not make stay as they are, byte for byte, beside every link and behind it."""

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from embermq import Message, MessageStore
from embermq.cli.app import run as embermq
from embermq.errors import StorePathInvalid
from embermq.files import RealFiles
from embermq.files.directories import PathKind, RealDirectory
from embermq.files.trees import remove_tree
from embermq.repair.rebuild.bulk_build import BulkBuild
from embermq.repair.rebuild.rebuilding import rebuild
from embermq.repair.salvage.salvaging import salvage
from embermq.repair.verify.findings import Flaw
from embermq.repair.verify.store_check import verify
from embermq.settings import StoreSettings
from embermq.store import open_for_maintenance
from embermq.store.layout.owned_names import in_queues
from embermq.testing.faulty_files import FaultyFiles, Killed
from tests.support.links import CANARY, listing, move_behind_link, put_canary

SETTINGS = StoreSettings(
    segment_bytes=8192,
    queue_file_bytes=20 * 8,
    index_slots_max=16,
    index_entries_max=40,
    queue_extension=True,
    queue_extension_file_bytes=4096,
    delete_segment_pause_ms=0,
    delete_queue_pause_ms=0,
    disk_full_percent=100,
    disk_clean_percent=100,
)
COUNT = 60
P = TypeVar("P")
R = TypeVar("R")
TOPICS = ("A", "B")


def body(number: int) -> bytes:
    return b"%d|" % number + bytes(300)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with several files of each kind."""
    root = tmp_path_factory.mktemp("links") / "store"
    with MessageStore.open(root, SETTINGS) as store:
        for number in range(COUNT):
            store.append(message(number))
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{}}')
    return root


def message(number: int) -> Message:
    return Message(TOPICS[number % 2], body(number), keys=[f"k{number}"], tags="t", queue_id=number // 2 % 2)


@dataclass
class Scene:
    """A copy of the store, and a place outside it where links lead."""

    root: Path
    outside: Path
    count: int = COUNT

    @property
    def base(self) -> Path:
        return self.root.parent

    def link(self, name: str) -> Path:
        """Put a part of the store behind a link; a canary beside its target, and in it if it is a directory."""
        # A log file keeps its name: one that leads to another name is refused.
        last = Path(name).name if name.startswith("commitlog/") else "target"
        target = self.outside / name.replace("/", "-") / last
        move_behind_link(self.root / name, target)
        put_canary(target.parent / "beside.txt")
        if target.is_dir():
            put_canary(target / "notes.txt")
            put_canary(target / "mine" / "deep.txt")
        return target

    def canaries(self) -> list[Path]:
        return sorted(path for path in self.base.rglob("*") if path.name in ("beside.txt", "notes.txt", "deep.txt"))


@pytest.fixture
def scene(template: Path, tmp_path: Path) -> Scene:
    shutil.copytree(template, tmp_path / "store")
    (tmp_path / "outside").mkdir()
    return Scene(tmp_path / "store", tmp_path / "outside")


Operation = Callable[[Scene], None]

# -- operations, each of which leaves a store that `check` can read -------------------------------------------------


def append_more(scene: Scene) -> None:
    with MessageStore.open(scene.root, SETTINGS) as store:
        store.append(message(scene.count))
        scene.count += 1
        if store.min_physical == 0:
            check_messages(store, scene.count)


def rebuild_in_place(scene: Scene) -> None:
    made = rebuild(scene.root, SETTINGS)
    assert (made.records, made.kept) == (scene.count, [])
    with MessageStore.open(scene.root, SETTINGS, read_only=True) as store:
        check_messages(store, scene.count)


def rebuild_queues(scene: Scene) -> None:
    rebuild(scene.root, SETTINGS, index=False)


def rebuild_in_pieces(scene: Scene) -> None:
    """As many tasks do it."""

    class OneHand:
        cores = 2

        def __call__(self, function: Callable[[P], R], pieces: Sequence[P], title: str) -> list[R]:
            return [function(piece) for piece in pieces]

    settings = SETTINGS.replace(queue_extension=False)
    made = rebuild(scene.root, settings, make_build=partial(BulkBuild, workers=OneHand()))
    assert (made.records, made.kept) == (scene.count, [])


def rebuild_aside(scene: Scene) -> None:
    rebuild(scene.root, SETTINGS, into=scene.base / "derived")
    assert (scene.base / "derived" / "consumequeue" / "A" / "0").is_dir()
    shutil.rmtree(scene.base / "derived")


def salvage_aside(scene: Scene) -> None:
    assert salvage(scene.root, scene.base / "salvaged", SETTINGS).records == scene.count
    assert faults(scene.base / "salvaged") == []
    shutil.rmtree(scene.base / "salvaged")


def delete_old_files(scene: Scene) -> None:
    with open_for_maintenance(scene.root, SETTINGS) as store:
        assert store.delete_expired(before_ms=1 << 60).segments > 0


def delete_topic(scene: Scene) -> None:
    with MessageStore.open(scene.root, SETTINGS) as store:
        assert store.delete_topic("A") == 2
        assert store.topics() == {"B": [0, 1]}
        store.append(Message("A", b"new life"))
        assert store.fetch("A", 0, 0).messages[0].body == b"new life"


def clean(scene: Scene) -> None:
    assert command("clean", str(scene.root), "--all-before", "2100-01-01") == 0


def drop(scene: Scene) -> None:
    assert command("drop", str(scene.root), "A") == 0


def load(scene: Scene) -> None:
    lines = scene.base / "more.jsonl"
    lines.write_text('{"topic": "A", "body": "AAAA"}\n')
    assert command("load", str(scene.root), "--from", str(lines)) == 0
    lines.unlink()


class Refused(Exception):
    """A command ended with one line on standard error."""


def command(*words: str) -> int:
    code = embermq(["store", *words])
    if code == 2:
        raise Refused
    return code


OPERATIONS = [
    append_more,
    rebuild_in_place,
    rebuild_queues,
    rebuild_aside,
    salvage_aside,
    delete_old_files,
    delete_topic,
    clean,
    drop,
    load,
]


def check_messages(store: MessageStore, count: int) -> None:
    for number in range(count):
        topic, queue_id, queue_offset = TOPICS[number % 2], number // 2 % 2, number // 4
        assert store.fetch(topic, queue_id, queue_offset).messages[0].body == body(number)
        assert [one.body for one in store.find(topic, f"k{number}")] == [body(number)]


# -- every link, every operation ------------------------------------------------------------------------------------

DIRECTORIES = ["commitlog", "consumequeue", "consumequeue_ext", "index", "config", "quarantine"]
FURTHER_DOWN = ["consumequeue/A", "consumequeue/A/0", "consumequeue_ext/A", "consumequeue_ext/A/0"]
SINGLE_FILES = [f"consumequeue/A/0/{0:020d}", f"commitlog/{0:020d}", "config/consumerOffset.json"]


LINKS = [*DIRECTORIES, *FURTHER_DOWN, *SINGLE_FILES, "embermq.rebuild"]


def is_refused(link: str, operation: Operation) -> bool:
    """Rebuilding gives up what a link below the top leads to, so it does not."""
    if operation not in (rebuild_in_place, rebuild_queues, rebuild_in_pieces):
        return False
    return link == "embermq.rebuild" or link in FURTHER_DOWN or link.startswith("consumequeue/A/0/")


def do(scene: Scene, link: str, operation: Operation) -> None:
    """It works and leaves a sound store, or it is refused and changes nothing; canaries stay."""
    canaries, before = scene.canaries(), listing(scene.base)
    leads_to = os.readlink(scene.root / link) if (scene.root / link).is_symlink() else None
    if leads_to is not None and is_refused(link, operation):
        with pytest.raises(StorePathInvalid) as refusal:
            operation(scene)
        assert "\n" not in str(refusal.value)
        assert listing(scene.base) == before
        return
    operation(scene)
    assert set(scene.canaries()) >= set(canaries)
    assert all(path.read_bytes() == CANARY for path in canaries)
    if link not in SINGLE_FILES:
        assert os.readlink(scene.root / link) == leads_to
    assert faults(scene.root) == []


def faults(root: Path) -> list[Flaw]:
    return [flaw for flaw in verify(root).flaws if flaw.is_fault]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.slow(2)
def test_one_operation_after_the_other(scene: Scene, link: str) -> None:
    scene.link(link)
    for operation in (append_more, rebuild_in_place, delete_old_files, delete_topic):
        do(scene, link, operation)


@pytest.mark.long
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("link", LINKS)
def test_each_operation(scene: Scene, link: str, operation: Operation) -> None:
    scene.link(link)
    do(scene, link, operation)


@pytest.mark.parametrize("link", ["consumequeue", "index", "consumequeue/A", "embermq.rebuild"])
def test_rebuilding_in_pieces(scene: Scene, link: str) -> None:
    shutil.rmtree(scene.root / "consumequeue_ext")
    scene.link(link)
    do(scene, link, rebuild_in_pieces)


@pytest.mark.parametrize("operation", [clean, drop, load])
def test_commands(scene: Scene, operation: Operation) -> None:
    for link in ("commitlog", "consumequeue", "index", "config", "embermq.rebuild"):
        scene.link(link)
    do(scene, "consumequeue", operation)


def test_the_command_says_in_one_line_what_is_refused(scene: Scene, capfd: pytest.CaptureFixture[str]) -> None:
    scene.link("embermq.rebuild")
    with pytest.raises(Refused):
        command("rebuild", str(scene.root))
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "embermq.rebuild: this is a link where we would work; move it away" in said


def test_a_linked_index_file(scene: Scene) -> None:
    name = sorted(path.name for path in (scene.root / "index").iterdir())[0]
    scene.link(f"index/{name}")
    before = listing(scene.base)
    with pytest.raises(StorePathInvalid, match="is a link, and what it leads to would not be rebuilt"):
        rebuild(scene.root, SETTINGS)
    assert listing(scene.base) == before
    append_more(scene)
    assert faults(scene.root) == []
    delete_old_files(scene)
    assert all(path.read_bytes() == CANARY for path in scene.canaries())


@pytest.mark.parametrize("name", ["consumequeue", "index"])
def test_files_of_others_among_those_rebuilt_stay_where_they_were(scene: Scene, name: str) -> None:
    """Also without a link."""
    found = [put_canary(scene.root / name / "notes.txt"), put_canary(scene.root / name / "mine" / "deep.txt")]
    if name == "consumequeue":
        found += [put_canary(scene.root / name / place / "x.txt") for place in ("A/0", "B")]
    made = rebuild(scene.root, SETTINGS)
    assert made.kept == []
    assert all(path.read_bytes() == CANARY for path in found)
    assert not (scene.root / "embermq.rebuild").exists()
    append_more(scene)
    assert faults(scene.root) == []


def test_a_directory_in_the_place_of_a_file_that_is_made_again_is_kept_and_told(scene: Scene) -> None:
    place = scene.root / "consumequeue" / "A" / "0" / f"{0:020d}"
    place.unlink()
    put_canary(place / "notes.txt")
    made = rebuild(scene.root, SETTINGS)
    assert [path.relative_to(scene.root / "embermq.rebuild" / "old") for path in made.kept] == [
        place.relative_to(scene.root)
    ]
    assert (made.kept[0] / "notes.txt").read_bytes() == CANARY
    assert place.is_file()
    before = listing(scene.base)
    with pytest.raises(StorePathInvalid, match="it holds old/consumequeue/A/0"):
        rebuild(scene.root, SETTINGS)
    assert listing(scene.base) == before


# -- links that lead nowhere, in a circle, or to another disk -------------------------------------------------------


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "config", "quarantine"])
@pytest.mark.parametrize("circle", [False, True])
def test_a_link_that_leads_nowhere(scene: Scene, name: str, circle: bool) -> None:
    """Its disk is not mounted: nothing is begun in its place."""
    place = scene.root / name
    if place.exists():
        place.rename(scene.outside / name)
    place.symlink_to(place if circle else scene.outside / "not-mounted")
    before = listing(scene.base)
    with pytest.raises(StorePathInvalid, match="leads in a circle" if circle else "not-mounted, which is not there"):
        MessageStore.open(scene.root, SETTINGS)
    if name in ("consumequeue", "index"):
        with pytest.raises(StorePathInvalid):
            rebuild(scene.root, SETTINGS)
        with MessageStore.open(scene.root, SETTINGS, read_only=True) as store:
            check_messages(store, COUNT)
    assert listing(scene.base) == before


@pytest.mark.parametrize("name", ["consumequeue/A", "consumequeue/A/0", "consumequeue_ext/A"])
def test_a_topic_or_queue_that_leads_nowhere(scene: Scene, name: str) -> None:
    (scene.root / name).rename(scene.outside / "moved")
    (scene.root / name).symlink_to(scene.outside / "not-mounted")
    with pytest.raises(StorePathInvalid, match=f"{name}: is a link that leads nowhere"):
        MessageStore.open(scene.root, SETTINGS)
    (scene.outside / "moved").rename(scene.outside / "not-mounted")
    append_more(scene)
    assert faults(scene.root) == []


def test_a_file_that_leads_nowhere_is_made_again(scene: Scene) -> None:
    place = scene.root / "consumequeue" / "A" / "0" / f"{0:020d}"
    place.unlink()
    place.symlink_to(scene.outside / "gone")
    append_more(scene)
    assert not place.is_symlink()
    assert listing(scene.outside) == {}


def test_a_link_to_another_kind_of_file_is_not_written_through(scene: Scene) -> None:
    """What cannot be a queue file is not emptied, and not removed: the link goes, and the file is made again."""
    place = scene.root / "consumequeue" / "A" / "0" / f"{0:020d}"
    place.unlink()
    place.symlink_to(put_canary(scene.outside / "beside.txt"))
    append_more(scene)
    assert (scene.outside / "beside.txt").read_bytes() == CANARY
    assert place.is_file()
    assert not place.is_symlink()


def test_a_queue_that_leads_to_files_of_another_kind(scene: Scene) -> None:
    """A linked queue may lead anywhere: to the log of another store, whose files have such names too."""
    shutil.copytree(scene.root / "commitlog", scene.outside / "log")
    shutil.rmtree(scene.root / "consumequeue" / "A" / "0")
    (scene.root / "consumequeue" / "A" / "0").symlink_to(scene.outside / "log")
    before = listing(scene.base)
    with pytest.raises(StorePathInvalid, match="in a directory that is a link: it is not removed there"):
        MessageStore.open(scene.root, SETTINGS)
    assert listing(scene.base) == before


@pytest.mark.parametrize("leads_to", ["commitlog", "index", ".", ".."])
def test_a_link_to_another_part_of_the_store_is_not_rebuilt(scene: Scene, leads_to: str) -> None:
    (scene.root / "consumequeue").rename(scene.outside / "queues")
    (scene.root / "consumequeue").symlink_to(scene.root / leads_to)
    before = listing(scene.base)
    with pytest.raises(StorePathInvalid, match=r"consumequeue: is a link to .* of the store is"):
        rebuild(scene.root, SETTINGS)
    assert listing(scene.base) == before


def test_the_lock_is_not_written_through_a_link(scene: Scene) -> None:
    (scene.root / "lock").unlink()
    (scene.root / "lock").symlink_to(put_canary(scene.outside / "beside.txt"))
    with pytest.raises(StorePathInvalid, match="this is a link where the lock file should be"):
        MessageStore.open(scene.root, SETTINGS)
    assert (scene.outside / "beside.txt").read_bytes() == CANARY


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="needs a second file system")
@pytest.mark.disk
def test_queues_on_another_file_system_are_rebuilt_there(scene: Scene) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        target = Path(other) / "queues"
        shutil.copytree(scene.root / "consumequeue", target)
        shutil.rmtree(scene.root / "consumequeue")
        (scene.root / "consumequeue").symlink_to(target)
        put_canary(target / "notes.txt")
        # The extension stays behind, where queues built over there cannot be renamed to.
        with pytest.raises(StorePathInvalid, match="consumequeue_ext: lies on another file system"):
            rebuild(scene.root, SETTINGS)
        (target / "A" / "0" / f"{0:020d}").write_bytes(bytes(160))
        shutil.rmtree(scene.root / "consumequeue_ext")
        made = rebuild(scene.root, SETTINGS.replace(queue_extension=False))
        assert made.families == ("queues", "index")
        assert (made.queues, made.records, made.kept) == (4, COUNT, [])
        assert sorted(path.name for path in Path(other).iterdir()) == ["queues"]
        assert (target / "notes.txt").read_bytes() == CANARY
        with MessageStore.open(scene.root, SETTINGS.replace(queue_extension=False)) as store:
            check_messages(store, COUNT)


class Mounted(RealFiles):
    """A disk where some directory is the root of another file system."""

    def __init__(self, path: Path) -> None:
        self._path = path

    __slots__ = ("_path",)

    def device(self, path: Path) -> int:
        return 2 if path.is_relative_to(self._path) else 1


def test_a_mounted_directory_is_not_rebuilt(scene: Scene) -> None:
    before = listing(scene.base)
    with pytest.raises(StorePathInvalid, match="consumequeue: a file system is mounted at"):
        rebuild(scene.root, SETTINGS, files=Mounted(scene.root / "consumequeue"))
    assert listing(scene.base) == before


# -- killed, or raced -----------------------------------------------------------------------------------------------


def killed_before(scene: Scene, files: FaultyFiles, step: int) -> None:
    def die() -> None:
        raise Killed

    files.before(step=step, call=die)
    with pytest.raises(Killed):
        rebuild(scene.root, SETTINGS, files=files)


def steps_of_a_rebuild(scene: Scene) -> list[int]:
    """The steps just before and behind every rename of a directory."""
    files = FaultyFiles(RealFiles())
    rebuild(scene.root, SETTINGS, files=files)
    moves = [n for n, (kind, path) in enumerate(files.steps, 1) if kind == "rename" and path.suffix != ".json"]
    return sorted({step for move in moves for step in (move, move + 1)})


@pytest.mark.parametrize("opens", [False, True])
def test_a_rebuild_behind_links_that_is_killed_is_ended_by_the_next(scene: Scene, opens: bool) -> None:
    """Between the two renames of the queues; also if the store is opened in between."""
    kill_at(scene, slice(1, 2), opens=opens)


@pytest.mark.long
@pytest.mark.parametrize("opens", [False, True])
def test_a_rebuild_behind_links_that_is_killed_at_any_rename(scene: Scene, opens: bool) -> None:
    kill_at(scene, slice(None), opens=opens)


def kill_at(scene: Scene, which: slice, *, opens: bool) -> None:
    for link in ("consumequeue", "consumequeue_ext", "index"):
        scene.link(link)
    canaries = scene.canaries()
    for step in steps_of_a_rebuild(scene)[which]:
        killed_before(scene, FaultyFiles(RealFiles()), step)
        if opens:
            append_more(scene)
        rebuild_in_place(scene)
        assert scene.canaries() == canaries
        assert not list(scene.base.rglob("*embermq.rebuild*"))
    assert all(path.read_bytes() == CANARY for path in canaries)


def test_a_link_put_in_the_place_of_a_directory_that_is_being_removed(scene: Scene) -> None:
    """Between the look and the removal."""
    tree, other = scene.base / "tree", put_canary(scene.outside / "other" / f"{0:020d}").parent
    (tree / "A" / "0").mkdir(parents=True)
    (tree / "A" / "0" / f"{0:020d}").write_bytes(b"ours")

    class Raced(RealDirectory):
        def kinds(self) -> dict[str, PathKind]:
            found = super().kinds()
            if self.path.name == "0" and not self.path.is_symlink():
                self.path.rename(scene.base / "away")
                (tree / "A" / "0").symlink_to(other)
            return found

        def enter(self, name: str) -> RealDirectory:
            return Raced(self.path / name, self._fd)

    class RacedFiles(RealFiles):
        def open_directory(self, path: Path) -> RealDirectory:
            return Raced(path)

    assert remove_tree(RacedFiles(), tree, in_queues) == [tree / "A" / "0"]
    assert (other / f"{0:020d}").read_bytes() == CANARY
    assert list((scene.base / "away").iterdir()) == []


@pytest.mark.parametrize("which", [0, 2, -1])
def test_a_log_file_that_is_a_link_to_a_foreign_file_is_not_written(template: Path, tmp_path: Path, which: int) -> None:
    root = Path(shutil.copytree(template, tmp_path / "store"))
    log_file = sorted((root / "commitlog").iterdir())[which]
    foreign = tmp_path / "notes.txt"
    foreign.write_bytes(CANARY)
    log_file.unlink()
    log_file.symlink_to(foreign)
    with pytest.raises(StorePathInvalid, match=r"is a link to .*notes\.txt"):
        MessageStore.open(root, SETTINGS)
    assert foreign.read_bytes() == CANARY


@pytest.mark.parametrize("which", [0, -1])
def test_a_log_file_that_lies_behind_a_link_works(template: Path, tmp_path: Path, which: int) -> None:
    root = Path(shutil.copytree(template, tmp_path / "store"))
    log_file = sorted((root / "commitlog").iterdir())[which]
    (tmp_path / "elsewhere").mkdir()
    log_file.rename(tmp_path / "elsewhere" / log_file.name)
    log_file.symlink_to(tmp_path / "elsewhere" / log_file.name)
    with MessageStore.open(root, SETTINGS) as store:
        store.append(message(COUNT))
        found = {int(one.body.split(b"|")[0]) for one in store.scan()}
    assert found == set(range(COUNT + 1))
