"""Times as people write them."""

import re
from datetime import datetime

import pytest

from embermq.cli.store.times import parse_time_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1000", 1000),
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20.123+00:00", 1_700_000_000_123),
        ("2023-11-15T06:13:20+08:00", 1_700_000_000_000),
        ("20231114T221320Z", 1_700_000_000_000),
    ],
)
def test_times(text: str, ms: int) -> None:
    assert parse_time_ms(text) == ms


def test_local_time_unless_it_says_otherwise() -> None:
    assert parse_time_ms("2024-01-31T12:00") == datetime(2024, 1, 31, 12).timestamp() * 1000
    assert parse_time_ms("2024-01-31") == datetime(2024, 1, 31).timestamp() * 1000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1700000000", "looks like seconds (2023-11-14T22:13:20Z); times are in milliseconds: 1700000000000"),
        ("100000000", "looks like seconds"),
        ("99999999999", "looks like seconds"),
        ("1700000000123456", "looks like microseconds; times are in milliseconds: 1700000000123"),
        ("1700000000123456789", "looks like nanoseconds; times are in milliseconds: 1700000000123"),
        ("yesterday", "'yesterday' is no time; use 2024-01-31"),
        ("", "is no time"),
        ("-5", "is no time"),
        ("2024-13-01", "is no time"),
        ("10000-01-01", "is no time"),
    ],
)
def test_what_is_no_time(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        parse_time_ms(text)
