"""One directory, two writers in turn: each reads all that both wrote, and goes on where the other stopped."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.interop.appender import append, append_until_killed, opened
from tests.interop.compare import assert_agree, assert_holds, reference_answers
from tests.interop.reference import ReferenceSession
from tests.interop.workload import SMALL_FILES, Put, mixed, put_of

pytestmark = pytest.mark.interop

TURNS = 4
PUTS_PER_TURN = 90


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_ours_theirs_ours_theirs(killed: bool, directory: Path) -> None:
    settings = {**SMALL_FILES, "mappedFileSizeConsumeQueue": "4000"}
    history: list[tuple[int, Put]] = []
    for turn in range(TURNS):
        write = _ours if turn % 2 == 0 else _theirs
        history += write(directory, settings, seed=30 + turn, killed=killed)
        theirs = reference_answers(directory, settings, drop_empty_files=write is _theirs)
        records = {record.phy: record for record in theirs.dump.records}
        for physical_offset, put in history:
            assert_holds(records, physical_offset, put)
        with opened(directory, settings) as store:
            assert_agree(store, theirs)


def _ours(directory: Path, settings: Mapping[str, str], *, seed: int, killed: bool) -> list[tuple[int, Put]]:
    if killed:
        placed = append_until_killed(directory, settings, seed=seed, acknowledged=PUTS_PER_TURN)
        puts = mixed(max(placed) + 1, seed)
        return [(physical_offset, puts[number]) for number, physical_offset in placed.items()]
    with opened(directory, settings) as store:
        return [(append(store, put).physical_offset, put) for put in mixed(PUTS_PER_TURN, seed)]


def _theirs(directory: Path, settings: Mapping[str, str], *, seed: int, killed: bool) -> list[tuple[int, Put]]:
    puts = mixed(PUTS_PER_TURN, seed)
    with ReferenceSession(directory, settings) as session:
        answers = session.put_all(map(put_of, puts))
        if killed:
            session.kill()
    return [(answer.wrote_offset, put) for answer, put in zip(answers, puts, strict=True)]
