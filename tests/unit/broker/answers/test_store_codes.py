"""What a store answers, as codes of the wire: every status has a row."""

import pytest

from embermq.broker.answers.store_codes import PUT_CODES, STORED, pull_code, refusal_status
from embermq.errors import DiskFull, PageCacheBusy, StoreError
from embermq.model.status import FetchStatus, PutStatus


@pytest.mark.parametrize(
    ("status", "code", "is_stored"),
    [
        ("PUT_OK", 0, True),
        ("FLUSH_DISK_TIMEOUT", 10, True),
        ("SLAVE_NOT_AVAILABLE", 11, True),
        ("FLUSH_SLAVE_TIMEOUT", 12, True),
        ("MESSAGE_ILLEGAL", 13, False),
        ("PROPERTIES_SIZE_EXCEEDED", 13, False),
        ("LMQ_CONSUME_QUEUE_NUM_EXCEEDED", 13, False),
        ("SERVICE_NOT_AVAILABLE", 14, False),
        ("CREATE_MAPEDFILE_FAILED", 1, False),
        ("OS_PAGECACHE_BUSY", 1, False),
        ("UNKNOWN_ERROR", 1, False),
    ],
)
def test_puts(status: str, code: int, is_stored: bool) -> None:
    assert PUT_CODES[PutStatus(status)] == code
    assert (PutStatus(status) in STORED) == is_stored


def test_every_status_of_a_put_has_a_code() -> None:
    assert set(PUT_CODES) == set(PutStatus)


def test_errors_stand_for_statuses() -> None:
    assert refusal_status(PageCacheBusy(1000)) is PutStatus.OS_PAGECACHE_BUSY
    assert refusal_status(DiskFull("full")) is PutStatus.SERVICE_NOT_AVAILABLE
    assert refusal_status(StoreError("something else")) is PutStatus.UNKNOWN_ERROR


@pytest.mark.parametrize(
    ("status", "at_the_start", "elsewhere"),
    [
        ("FOUND", 0, 0),
        ("NO_MATCHED_MESSAGE", 20, 20),
        ("MESSAGE_WAS_REMOVING", 20, 20),
        ("NO_MESSAGE_IN_QUEUE", 19, 21),
        ("NO_MATCHED_LOGIC_QUEUE", 19, 21),
        ("OFFSET_FOUND_NULL", 19, 19),
        ("OFFSET_OVERFLOW_ONE", 19, 19),
        ("OFFSET_OVERFLOW_BADLY", 21, 21),
        ("OFFSET_TOO_SMALL", 21, 21),
    ],
)
def test_pulls(status: str, at_the_start: int, elsewhere: int) -> None:
    assert pull_code(FetchStatus(status), 0) == at_the_start
    assert pull_code(FetchStatus(status), 5) == elsewhere


def test_every_status_of_a_read_has_a_code() -> None:
    for status in FetchStatus:
        assert pull_code(status, 1) in (0, 19, 20, 21)
