"""Apache RocketMQ opens what was written here: all that was acknowledged is there, and both answer alike."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.interop.appender import append, append_until_killed, opened
from tests.interop.compare import assert_agree, assert_finds_every_key, assert_holds, reference_answers
from tests.interop.workload import DEFAULT_FILES, SMALL_FILES, SYNC_FLUSH, mixed

pytestmark = pytest.mark.interop


@pytest.mark.parametrize(
    ("settings", "count"),
    [(SMALL_FILES, 400), (SYNC_FLUSH, 60), (DEFAULT_FILES, 200)],
    ids=["small files", "sync flush", "default sizes"],
)
def test_after_a_clean_close(settings: Mapping[str, str], count: int, directory: Path) -> None:
    puts = mixed(count, seed=10)
    with opened(directory, settings) as store:
        placed = [append(store, put).physical_offset for put in puts]
    assert not (directory / "abort").exists()
    theirs = reference_answers(directory, settings)
    records = {record.phy: record for record in theirs.dump.records}
    for physical_offset, put in zip(placed, puts, strict=True):
        assert_holds(records, physical_offset, put)
    assert_finds_every_key(theirs)
    with opened(directory, settings) as store:
        assert_agree(store, theirs)


@pytest.mark.parametrize("acknowledged", [1, 40, 333])
@pytest.mark.parametrize(
    "settings",
    [SMALL_FILES, SYNC_FLUSH, DEFAULT_FILES],
    ids=["small files", "sync flush", "default sizes"],
)
def test_after_a_kill(settings: Mapping[str, str], acknowledged: int, directory: Path) -> None:
    placed = append_until_killed(directory, settings, seed=11, acknowledged=acknowledged)
    puts = mixed(max(placed) + 1, seed=11)
    theirs = reference_answers(directory, settings)
    records = {record.phy: record for record in theirs.dump.records}
    for number, physical_offset in placed.items():
        assert_holds(records, physical_offset, puts[number])
    assert_finds_every_key(theirs)
    with opened(directory, settings) as store:
        assert_agree(store, theirs)
