"""A file in commitlog/ that has the name of a log file and is none: found, reported, and left alone."""

import hashlib
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.files import RealFiles
from embermq.inspect.dump import Dump
from embermq.inspect.snapshot import DamagedRange, Survey
from embermq.inspect.store_shape import found_shape
from embermq.repair.salvage.salvaging import salvage
from embermq.repair.verify.store_check import verify
from tests.support import golden

RECORDS = 200
ROOMY = {"disk_full_percent": 100, "disk_clean_percent": 100, "delayed_delivery": False}


@pytest.fixture(params=["between two", "inside the first", "a copy of the last", "noise", "empty", "far behind"])
def stray(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The file, in a store of RocketMQ with six log files of 64 KiB."""
    log = golden.restore("basic", tmp_path) / "commitlog"
    last = sorted(log.iterdir())[-1].read_bytes()
    start, content = {
        "between two": (32768, bytes(100)),
        "inside the first": (123, bytes(100)),
        "a copy of the last": (400_000, last),
        "noise": (65536 + 4096, hashlib.shake_128(b"x").digest(65536)),
        "empty": (32768, b""),
        "far behind": (1_000_000_000, last),
    }[request.param]
    path = log / f"{start:020d}"
    path.write_bytes(content)
    return path


def digests(log: Path) -> dict[str, str]:
    return {path.name: hashlib.sha1(path.read_bytes()).hexdigest() for path in log.iterdir()}


def messages_in(root: Path) -> int:
    job = Dump(Survey.open(root))
    assert not [piece for piece in job.pieces() if isinstance(piece, DamagedRange)]
    return job.messages


def settings_of(root: Path, *, found: bool) -> StoreSettings:
    """Those of the files, or the usual size of log files, as somebody has it who says nothing."""
    sizes = found_shape(RealFiles(), root).as_settings()
    if not found:
        del sizes["segment_bytes"]
    return StoreSettings().replace(**ROOMY, **sizes)


def test_those_who_read_do_not_see_it(stray: Path) -> None:
    root = stray.parent.parent
    before = digests(stray.parent)
    assert found_shape(RealFiles(), root).as_settings()["segment_bytes"] == 65536
    assert messages_in(root) == RECORDS
    with MessageStore.open(root, settings_of(root, found=False), read_only=True) as store:
        assert sum(1 for _ in store.scan()) == RECORDS
    assert digests(stray.parent) == before


@pytest.mark.parametrize("fast", [False, True])
def test_verify_tells_of_it_and_of_nothing_else(stray: Path, fast: bool) -> None:
    (flaw,) = [flaw for flaw in verify(stray.parent.parent, fast=fast).flaws if flaw.is_fault]
    assert (flaw.file, flaw.physical_offset) == (f"commitlog/{stray.name}", int(stray.name))
    assert "not a multiple" in flaw.fault
    assert "move it" in flaw.remedy
    assert "truncate" not in flaw.remedy


@pytest.mark.parametrize("found", [True, False], ids=["sizes found", "sizes of the settings"])
@pytest.mark.slow
def test_opening_for_writing_destroys_nothing(stray: Path, found: bool) -> None:
    root = stray.parent.parent
    before = digests(stray.parent)
    with MessageStore.open(root, settings_of(root, found=found)) as store:
        assert not store.recovery.damages
        assert store.recovery.truncated_bytes == 0
        assert any(stray.name in finding and "left alone" in finding for finding in store.recovery.findings)
        assert sum(1 for _ in store.scan()) == RECORDS
        store.append_many([Message("T_3", bytes(3000)) for _ in range(30)])  # Into the next file, too.
    after = digests(stray.parent)
    last = max(name for name in before if name != stray.name and int(name) < 400_000)
    assert {name: after[name] for name in before if name != last} == {n: d for n, d in before.items() if n != last}
    assert messages_in(root) == RECORDS + 30
    stray.unlink()
    assert messages_in(root) == RECORDS + 30
    assert verify(root).is_sound


def test_salvage_takes_all_but_it(stray: Path, tmp_path: Path) -> None:
    root = stray.parent.parent
    saved = salvage(root, tmp_path / "new", settings_of(root, found=True))
    assert saved.is_complete, saved
    assert [one.path for one in saved.refused] == ([stray] if stray.stat().st_size else [])
    assert messages_in(tmp_path / "new") == RECORDS
