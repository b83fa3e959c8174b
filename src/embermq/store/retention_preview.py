"""Which log files would go, told from outside: for `embermq store clean --dry-run`. Nothing is written, no lock taken.

The same rules as retention.py, from a Survey. What a running or opened store knows besides (parked messages, queues
that are not durable) may still hold a file that is listed here. One thread.
"""

from itertools import pairwise

from embermq.errors import StorePathInvalid
from embermq.settings import StoreSettings
from embermq.store.lookup import message_at
from embermq.store.retention import OldSegment, RetentionGuard
from embermq.store.retention_rules import is_expired, last_change_ms
from embermq.store.survey import LogSegment, Survey


def files_to_go(
    survey: Survey, settings: StoreSettings, now_ms: int, *, before_ms: int | None = None,
    guard: RetentionGuard | None = None,
) -> list[OldSegment]:  # fmt: skip
    """The oldest files of the log up to the first one that stays; never the one in use."""
    used = [segment for segment in survey.segments if segment.start < survey.log_end]
    going: list[OldSegment] = []
    for segment, following in pairwise(used):
        old = _as_old(survey, segment, following, settings, now_ms, before_ms)
        if not old.expired or (guard is not None and not guard(old)):
            break
        going.append(old)
    return going


def _as_old(
    survey: Survey, segment: LogSegment, following: LogSegment, settings: StoreSettings, now_ms: int,
    before_ms: int | None,
) -> OldSegment:  # fmt: skip
    first = message_at(survey, following.start)
    newest_ms = None if first is None else first.store_timestamp
    try:
        mtime_ms = segment.path.stat().st_mtime_ns // 1_000_000
    except OSError as problem:
        raise StorePathInvalid(segment.path, problem.strerror or str(problem)) from problem
    changed_ms = last_change_ms(mtime_ms, newest_ms, now_ms)
    expired = is_expired(changed_ms, now_ms, settings)
    if before_ms is not None:
        expired = newest_ms is not None and newest_ms < before_ms
    return OldSegment(segment.path, segment.start, segment.end, changed_ms, expired)
