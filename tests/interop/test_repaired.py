"""What was rebuilt or salvaged here: RocketMQ opens it, and finds everything that is left."""

from pathlib import Path

import pytest

from embermq import StoreSettings
from embermq.repair.rebuild.rebuilding import rebuild
from embermq.repair.salvage.salvaging import salvage
from tests.interop.appender import append, opened
from tests.interop.compare import assert_agree, assert_finds_every_key, assert_holds, reference_answers
from tests.interop.workload import SMALL_FILES, mixed

pytestmark = pytest.mark.interop


def test_rocketmq_opens_what_was_salvaged(directory: Path, tmp_path: Path) -> None:
    """Damage in the middle: RocketMQ alone would cut everything behind it."""
    puts = mixed(400, seed=81)
    with opened(directory, SMALL_FILES) as store:
        placed = [append(store, put).physical_offset for put in puts]
    lost = placed[50]
    segment = directory / "commitlog" / f"{lost - lost % 65536:020d}"
    raw = bytearray(segment.read_bytes())
    raw[lost % 65536 + 89] ^= 1
    segment.write_bytes(raw)
    settings = StoreSettings.from_properties(SMALL_FILES)
    saved = salvage(directory, tmp_path / "new", settings)
    assert [one.physical_offset for one in saved.lost_ranges] == [lost]
    theirs = reference_answers(tmp_path / "new", SMALL_FILES)
    records = {record.phy: record for record in theirs.dump.records}
    for physical_offset, put in zip(placed, puts, strict=True):
        if physical_offset != lost:
            assert_holds(records, physical_offset, put)
    assert_finds_every_key(theirs)


def test_rocketmq_opens_what_was_rebuilt(directory: Path) -> None:
    puts = mixed(400, seed=82)
    with opened(directory, SMALL_FILES) as store:
        placed = [append(store, put).physical_offset for put in puts]
    for path in (directory / "consumequeue").rglob("0*"):
        if path.is_file():
            path.write_bytes(bytes(len(path.read_bytes())))
    rebuild(directory, StoreSettings.from_properties(SMALL_FILES))
    theirs = reference_answers(directory, SMALL_FILES)
    records = {record.phy: record for record in theirs.dump.records}
    for physical_offset, put in zip(placed, puts, strict=True):
        assert_holds(records, physical_offset, put)
    assert_finds_every_key(theirs)
    with opened(directory, SMALL_FILES) as store:
        assert store.recovery.clean
        assert_agree(store, theirs)
