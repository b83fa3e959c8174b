"""The other way round: what Apache RocketMQ wrote is read here as it reads it itself."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.interop.appender import opened
from tests.interop.compare import assert_agree, assert_holds, reference_answers
from tests.interop.reference import ReferenceSession
from tests.interop.workload import DEFAULT_FILES, SMALL_FILES, SYNC_FLUSH, mixed, put_of

pytestmark = pytest.mark.interop


@pytest.mark.parametrize(
    ("settings", "count"),
    [(SMALL_FILES, 400), (SYNC_FLUSH, 60), (DEFAULT_FILES, 200)],
    ids=["small files", "sync flush", "default sizes"],
)
def test_after_a_clean_close(settings: Mapping[str, str], count: int, directory: Path) -> None:
    puts = mixed(count, seed=20)
    with ReferenceSession(directory, settings) as session:
        answers = session.put_all(map(put_of, puts))
    assert all(answer.ok for answer in answers)
    theirs = reference_answers(directory, settings)
    with opened(directory, settings, read_only=True) as looking:
        assert_agree(looking, theirs)
    with opened(directory, settings) as store:
        assert_agree(store, theirs)


@pytest.mark.parametrize("acknowledged", [1, 40, 900])
@pytest.mark.parametrize("settings", [SMALL_FILES, DEFAULT_FILES], ids=["small files", "default sizes"])
def test_after_a_kill(settings: Mapping[str, str], acknowledged: int, directory: Path) -> None:
    puts = mixed(4000, seed=21)
    with ReferenceSession(directory, settings) as session:
        session.feed([put_of(put) for put in puts])
        coming = session.put_answers()
        answers = [next(coming) for _ in range(acknowledged)]
        session.kill()
        answers += coming
    theirs = reference_answers(directory, settings, drop_empty_files=True)
    records = {record.phy: record for record in theirs.dump.records}
    for answer, put in zip(answers, puts, strict=False):
        assert_holds(records, answer.wrote_offset, put)
    with opened(directory, settings) as store:
        assert_agree(store, theirs)
