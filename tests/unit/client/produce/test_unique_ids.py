"""Ids of messages, in RocketMQ's form."""

from datetime import datetime

from embermq.client.produce.unique_ids import UniqueIds
from embermq.testing import ManualClock


def ms_of(*when: int) -> int:
    return int(datetime(*when).timestamp() * 1000)  # type: ignore[arg-type]


def test_the_parts_of_an_id() -> None:
    clock = ManualClock(ms_of(2026, 11, 18, 12) + 345)
    ids = UniqueIds("10.1.2.3", clock, pid=0x1ABCD)
    first, second = ids.next(), ids.next()
    assert len(first) == 32
    assert first == first.upper()
    assert first[:8] == "0A010203"
    assert first[8:12] == "ABCD"
    assert first[12:20] == second[12:20]
    assert int(first[20:28], 16) == clock.now_ms() - ms_of(2026, 11, 1)
    assert (first[28:], second[28:]) == ("0000", "0001")


def test_ipv6_addresses_make_longer_ids() -> None:
    assert len(UniqueIds("::1").next()) == 56


def test_the_month_goes_on_and_the_year_too() -> None:
    clock = ManualClock(ms_of(2026, 12, 31, 23))
    ids = UniqueIds("10.1.2.3", clock)
    assert int(ids.next()[20:28], 16) == clock.now_ms() - ms_of(2026, 12, 1)
    clock.advance(s=2 * 3600)
    assert int(ids.next()[20:28], 16) == clock.now_ms() - ms_of(2027, 1, 1)


def test_two_makers_differ_and_the_counter_wraps() -> None:
    clock = ManualClock(ms_of(2026, 11, 18))
    one, other = UniqueIds("10.1.2.3", clock, pid=1), UniqueIds("10.1.2.3", clock, pid=1)
    assert one.next() != other.next()
    made = [one.next() for _ in range(65_535)]
    assert len(set(made)) == 65_535
    assert one.next().endswith("0000")
