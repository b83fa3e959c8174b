"""When old files go: the table of RocketMQ, row by row, and at the edges of each mark."""

import pytest

from embermq.settings import StoreSettings
from embermq.store.services.retention_rules import DiskSeen, Verdict, is_expired, judge

DEFAULTS = StoreSettings()
HOUR_MS = 3_600_000
NOTHING = Verdict(None, False, False)


def verdict(
    log: float | None, queues: float | None = 0.1, hour: int = 12, asked: bool = False, **settings: object
) -> Verdict:
    return judge(DiskSeen(hour, log, queues, asked), DEFAULTS.replace(**settings))


@pytest.mark.parametrize(
    ("used", "goes", "forced", "full"),
    [
        (0.0, False, False, False),
        (0.75, False, False, False),  # A mark itself is not above the mark.
        (0.76, True, False, False),
        (0.85, True, False, False),
        (0.86, True, True, False),
        (0.90, True, True, False),
        (0.91, True, True, True),
        (1.0, True, True, True),
    ],
)
def test_marks_of_the_disk(used: float, goes: bool, forced: bool, full: bool) -> None:
    for found in (verdict(used), verdict(0.1, used)):  # The disk of the queues counts like that of the log.
        assert (found.reason is not None, found.forced, found.full) == (goes, forced, full)


def test_expired_files_go_in_their_hours_only() -> None:
    found = {hour: verdict(0.1, hour=hour).reason for hour in range(24)}
    assert [hour for hour, reason in found.items() if reason] == [4]
    assert found[4] == "it is 04 o'clock"
    several = [hour for hour in range(24) if verdict(0.1, hour=hour, delete_when="02;14").reason]
    assert several == [2, 14]


def test_whoever_asks_need_not_wait_for_the_hour_but_forces_nothing() -> None:
    assert verdict(0.1, asked=True) == Verdict("asked for", False, False)


def test_nothing_is_forced_where_that_is_switched_off() -> None:
    assert not verdict(0.95, delete_when_full=False).forced
    assert verdict(0.95, delete_when_full=False).reason == "the disk is 95% full"
    assert verdict(0.95, delete_when_full=False).full


def test_a_disk_that_cannot_be_looked_at_is_no_reason() -> None:
    """In RocketMQ it is one, and a missing directory counts as full."""
    assert verdict(None, None) == NOTHING
    assert verdict(None, 0.8).reason is not None
    assert verdict(None, None, hour=4).reason is not None
    assert not verdict(None, None, hour=4).forced


def test_force_waits_for_a_reason_where_the_first_mark_is_the_highest() -> None:
    assert verdict(0.88, disk_used_percent_max=95) == NOTHING
    assert verdict(0.88, disk_used_percent_max=95, hour=4) == Verdict("it is 04 o'clock", True, False)
    assert verdict(0.88, disk_used_percent_max=95, asked=True).forced


def test_the_disk_of_the_queues_is_not_looked_at_when_that_of_the_log_gives_a_reason() -> None:
    assert not verdict(0.80, 0.88).forced
    assert verdict(0.70, 0.88).forced
    assert verdict(0.80, 0.95).full  # Appends need both disks.


def test_a_file_is_expired_after_its_time_and_not_a_millisecond_before() -> None:
    kept_ms = 72 * HOUR_MS
    assert not is_expired(1000, 1000 + kept_ms - 1, DEFAULTS)
    assert is_expired(1000, 1000 + kept_ms, DEFAULTS)
    assert not is_expired(1000, 500, DEFAULTS)  # A clock that was set back.
    assert is_expired(1000, 1000, DEFAULTS.replace(retention_hours=0))
