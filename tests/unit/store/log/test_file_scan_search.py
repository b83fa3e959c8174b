"""Looking for the next record window by window finds what a look at the whole file finds."""

import random
from pathlib import Path

import numpy as np
import pytest

from embermq.columns.plain.scan import resync
from embermq.files import RealFile, RealFiles
from embermq.store.log import file_scan as survey_scan
from embermq.store.log.file_scan import LogSegment, next_record
from tests.support.records import LogOfRecords

START = 1 << 20


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_scan, "FIRST_WINDOW_BYTES", 512)
    monkeypatch.setattr(survey_scan, "_SEARCH_BYTES", 2048)


def a_log(seed: int) -> tuple[bytes, list[int]]:
    """Records shorter and longer than any window, and damage between; bodies hold copies of records."""
    chance, log = random.Random(seed), LogOfRecords(START)
    for number in range(30):
        body = chance.randbytes(chance.choice([10, 300, 600, 3_000, 9_000]))
        if number % 5 == 4:
            body += bytes(log.columns(number - 1).data[-200:])
        log.append("orders", 0, number, body=body)
    data = bytearray(log.columns().data.tobytes())
    for _ in range(6):
        at = chance.randrange(len(data) - 100)
        data[at : at + 90] = chance.randbytes(90)
    return bytes(data) + bytes(5_000), log.offsets


@pytest.mark.parametrize("seed", range(6))
def test_as_by_one_look(seed: int, tmp_path: Path) -> None:
    data, offsets = a_log(seed)
    path = tmp_path / f"{START:020}"
    path.write_bytes(data)
    segment, whole = LogSegment(path, START, len(data)), np.frombuffer(data, np.uint8)
    file, chance = RealFiles().open(path, False), random.Random(seed)
    for at in [0, 1, len(data) - 3, *(offset - START for offset in offsets), *chance.choices(range(len(data)), k=60)]:
        for limit in (None, START + len(data) // 2):
            end = len(data) if limit is None else limit - START
            expected = resync(whole, START, at, end) if at < end else -1
            found = next_record(file, segment, START + at, limit)
            assert found == (None if expected < 0 else START + expected), (at, limit)
    file.close()


def test_a_search_never_reads_the_rest_of_a_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogOfRecords(START + 100_000)
    log.append("orders", 0, 0, body=b"behind much noise")
    record = log.columns().data.tobytes()
    path = tmp_path / f"{START:020}"
    path.write_bytes(random.Random(1).randbytes(100_000) + record)
    asked: list[int] = []
    pread = RealFile.pread

    def counted(file: RealFile, count: int, at: int) -> bytes:
        asked.append(count)
        return pread(file, count, at)

    monkeypatch.setattr(RealFile, "pread", counted)
    file = RealFiles().open(path, False)
    assert next_record(file, LogSegment(path, START, 100_000 + len(record)), START) == START + 100_000
    assert max(asked) <= 2048
    file.close()
