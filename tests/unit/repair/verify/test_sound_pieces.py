"""The walk over sound pieces: it is the way nearly all of a log goes, and never says anything else than the steps."""

import random

import pytest

from embermq import Message
from embermq.repair.verify.store_check import VerifyReport, verify
from embermq.store.compare import log_pieces as verify_log
from embermq.store.compare.log_pieces import CheckedPiece, LogPieces
from embermq.testing.lossy_files import LossyFiles
from tests.crash import disks
from tests.crash.disks import ROOT
from tests.support.kernels import force_compiled

COUNT = 120
ROUNDS = 60


@pytest.fixture(scope="module")
def sound() -> LossyFiles:
    """A store of all kinds of messages, closed cleanly. Copy it before changing anything."""
    return disks.closed(COUNT)


@pytest.fixture(autouse=True)
def with_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    force_compiled(monkeypatch)


class Walks:
    """Counts the pieces that were walked to their ends, and those that were given up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ended = self.given_up = 0
        walk = LogPieces._read_sound

        def counted(*arguments: object) -> CheckedPiece | None:
            piece = walk(*arguments)  # type: ignore[arg-type]
            self.ended += piece is not None
            self.given_up += piece is None
            return piece

        monkeypatch.setattr(LogPieces, "_read_sound", counted)


def by_steps(disk: LossyFiles) -> VerifyReport:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LogPieces, "_read_sound", lambda *_: None)
        return verify(ROOT, files=disk)


def counts(report: VerifyReport) -> tuple[int, ...]:
    return (
        report.records,
        report.queues,
        report.queue_entries,
        report.index_entries,
        report.pending_entries,
        report.pending_keys,
    )


def plain_store(messages: int) -> LossyFiles:
    disk = LossyFiles()
    with disks.builder().on(disk).open() as store:
        for n in range(messages):
            store.append(Message(f"T{n % 7}", b"x" * (n % 90), keys=f"k{n} again", tags="t", queue_id=n % 3))
    return disk


@pytest.mark.slow(8)
def test_a_sound_log_is_walked_and_nothing_is_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, walks = plain_store(400), Walks(monkeypatch)
    report = verify(ROOT, files=disk)
    assert (report.flaws, report.records) == ([], 400)
    assert (walks.ended, walks.given_up) == (report.segments, 0)
    assert counts(report) == counts(by_steps(disk))


@pytest.mark.slow
def test_pieces_end_inside_records(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = plain_store(200)
    for size in (100, 333, 4000):
        monkeypatch.setattr(verify_log, "PIECE_BYTES", size)
        report = verify(ROOT, files=disk)
        assert (report.flaws, report.records) == ([], 200)
        assert counts(report) == counts(by_steps(disk))


def test_a_piece_with_a_flaw_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, walks = plain_store(100), Walks(monkeypatch)
    path = disks.paths(disk, ROOT / "consumequeue" / "T3")[0]
    disks.flip(disk, path, 8 * 7)
    assert len(verify(ROOT, files=disk).flaws) == 1
    assert walks.given_up == 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow(2)
def test_whatever_is_damaged_the_findings_are_those_of_the_steps(sound: LossyFiles, seed: int) -> None:
    choice = random.Random(seed)
    families = ("commitlog", "consumequeue", "index")
    found = 0
    for _ in range(ROUNDS // 3):
        disk = disks.copy(sound)
        for _ in range(choice.randint(1, 3)):
            path = choice.choice(disks.paths(disk, ROOT / choice.choice(families)))
            written = len(disk.read_all(path).rstrip(b"\0"))
            disks.flip(disk, path, choice.randrange(8 * max(written, 1)))
        report, expected = verify(ROOT, files=disk), by_steps(disk)
        assert report.flaws == expected.flaws
        assert counts(report) == counts(expected)
        found += report.faults > 0
    assert found > ROUNDS // 12, "the damage should be found now and then"
