"""The end of a log that is gone: reported by a dump as far as it was proved, and by nothing else."""

import os
import random
import shutil
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.format.queue_entry import ENTRY
from embermq.inspect.dump import Dump, DumpFilter
from embermq.inspect.snapshot import DamagedRange, Survey
from embermq.testing.lossy_files import LossyFiles
from tests.crash import disks
from tests.crash.disks import ROOT
from tests.support import golden

SMALL = StoreSettings(segment_bytes=8192, queue_file_bytes=2000, index=False, disk_full_percent=100)


def dumped(survey: Survey, limit: int | None = None) -> tuple[int, list[DamagedRange]]:
    job = Dump(survey, DumpFilter(limit=limit))
    damages = [piece for piece in job.pieces() if isinstance(piece, DamagedRange)]
    return job.messages, damages


def lose(file: Path, how: str) -> None:
    size = file.stat().st_size
    if how == "removed":
        file.unlink()
    elif how == "empty":
        os.truncate(file, 0)
    elif how == "noise":
        file.write_bytes(random.Random(1).randbytes(size))
    else:
        file.write_bytes(bytes(size))


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        store.append_many([Message("t", bytes([number]) * 500) for number in range(60)])
    return tmp_path / "store"


@pytest.mark.parametrize("how", ["removed", "empty", "noise", "zeros"])
@pytest.mark.parametrize("whose", ["ours", "a copy of ours", "RocketMQ's"])
def test_the_last_file_is_lost(tmp_path: Path, ours: Path, whose: str, how: str) -> None:
    root = golden.restore("basic", tmp_path) if whose == "RocketMQ's" else ours
    if whose == "a copy of ours":
        root = shutil.copytree(ours, tmp_path / "copy")  # Its state page proves nothing there.
    survey = Survey.open(root)
    (count, damages), end = dumped(survey), survey.log_end
    assert not damages
    assert survey.lost_end() == end
    last = sorted((root / "commitlog").iterdir())[-1]
    lose(last, how)
    left, damages = dumped(Survey.open(root))
    assert 0 < left < count
    assert sum(damage.end - damage.start for damage in damages) >= end - int(last.name)
    assert damages[-1].end == end
    assert dumped(Survey.open(root), limit=left)[1] == []  # Nobody has asked for what was behind.


def test_a_cut_in_the_last_file(tmp_path: Path) -> None:
    root = golden.restore("compressed", tmp_path)
    (file,) = (root / "commitlog").iterdir()
    end = Survey.open(root).log_end
    os.truncate(file, 24576)
    survey = Survey.open(root)
    _, (damage,) = dumped(survey)
    assert (damage.start, damage.end) == (survey.log_end, end)
    assert "once went further" in damage.reason


@pytest.mark.parametrize("name", ["delay", "basic"])
def test_there_is_no_log(tmp_path: Path, name: str) -> None:
    root = golden.restore(name, tmp_path)
    end = Survey.open(root).log_end
    shutil.rmtree(root / "commitlog")
    assert dumped(Survey.open(root)) == (
        0,
        [DamagedRange(0, end, f"there is no log: no such directory as {root / 'commitlog'}")],
    )
    (root / "commitlog").mkdir()
    assert dumped(Survey.open(root)) == (0, [DamagedRange(0, end, "the log ends here, and once went further")])


def test_the_log_is_said_to_lie_nowhere(ours: Path) -> None:
    (ours / "broker.conf").write_text("storePathCommitLog=/nowhere\n")
    messages, (damage,) = dumped(Survey.open(ours))
    assert messages == 0
    assert damage.reason.endswith("/nowhere")


def test_a_new_store_has_lost_nothing(tmp_path: Path) -> None:
    MessageStore.open(tmp_path / "store", SMALL).close()
    assert dumped(Survey.open(tmp_path / "store")) == (0, [])


@pytest.mark.parametrize("name", golden.UNCLEAN_STORES)
def test_of_a_store_that_was_not_closed_entries_vouch_for_nothing(tmp_path: Path, name: str) -> None:
    survey = Survey.open(golden.restore(name, tmp_path))
    assert survey.lost_end() == survey.log_end


def test_of_a_killed_store_of_ours_the_page_is_the_proof() -> None:
    disk: LossyFiles = disks.killed(60)
    survey = Survey.open(ROOT, files=disk)
    end = survey.log_end
    assert survey.lost_end() == end
    for path in disks.paths(disk, ROOT / "commitlog")[-2:]:
        disk.remove(path)
    survey = Survey.open(ROOT, files=disk)
    assert survey.log_end < end
    assert survey.lost_end() == end


def test_a_running_store_has_lost_nothing(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        store.append_many([Message("t", bytes(500)) for _ in range(40)])
        survey = Survey.open(tmp_path / "store")
        store.append_many([Message("t", bytes(500)) for _ in range(40)])
        store.flush()
        assert survey.lost_end() == survey.log_end
        assert dumped(survey)[1] == []


def test_a_wrong_entry_in_a_store_of_ours_is_no_lost_end(ours: Path) -> None:
    """We have written down where the log ended."""
    file = ours / "consumequeue" / "t" / "0" / "0".zfill(20)
    with file.open("r+b") as entries:
        entries.seek(59 * 20)
        place, size, code = ENTRY.unpack(entries.read(20))
        entries.seek(59 * 20)
        entries.write(ENTRY.pack(place + (1 << 40), size, code))
    assert dumped(Survey.open(ours)) == (60, [])
