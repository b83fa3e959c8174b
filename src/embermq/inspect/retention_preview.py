"""Which log files would go, seen from outside: for `embermq store clean --dry-run`. Nothing is written, no lock taken.

The same rules as retention.py, from a Survey. What only a running store knows (readers, queues that are not durable)
may still hold a file that is listed here. One thread.
"""

from dataclasses import dataclass
from itertools import pairwise

from embermq.errors import StorePathInvalid
from embermq.files import Files, RealFiles
from embermq.inspect.lookup import message_at
from embermq.inspect.snapshot import Survey
from embermq.model.properties import SCHEDULE_TOPIC, TIMER_TOPIC
from embermq.settings import BrokerRole, StoreSettings
from embermq.store.log import LogSegment
from embermq.store.services import OldSegment, RetentionGuard, is_all_before, is_expired, last_change_ms, load_done_bits
from embermq.store.tables import DELAY_OFFSETS, load_entries


@dataclass(frozen=True, slots=True)
class Preview:
    """What would go, and who needs the next file, which is old enough as well; None if nothing does."""

    files: list[OldSegment]
    held_by: str | None = None


def preview(
    survey: Survey,
    settings: StoreSettings,
    now_ms: int,
    *,
    before_ms: int | None = None,
    guard: RetentionGuard | None = None,
    files: Files | None = None,
) -> Preview:
    """The oldest files of the log up to the first one that stays; never the one in use."""
    looking = _Looking(survey, settings, now_ms, before_ms, files or RealFiles())
    parked = looking.first_parked()
    used = [segment for segment in survey.segments if segment.start < survey.log_end]
    going: list[OldSegment] = []
    for segment, following in pairwise(used):
        old = looking.as_old(segment, following)
        if old is None:
            continue  # The store's own retention has just taken it.
        if not old.expired:
            break
        if parked is not None and old.end > parked:
            return Preview(going, "a delayed message that is not delivered yet")
        if guard is not None and not guard(old):
            return Preview(going, "the archive guard")
        if segment.path.parent in settings.commit_log_read_only_paths:
            where = f"{segment.path.parent}, which is read and never written (readOnlyCommitLogStorePaths)"
            return Preview(going, where)
        going.append(old)
    return Preview(going)


@dataclass(frozen=True, slots=True)
class _Looking:
    """One look at a store."""

    survey: Survey
    settings: StoreSettings
    now_ms: int
    before_ms: int | None
    files: Files

    def as_old(self, segment: LogSegment, following: LogSegment) -> OldSegment | None:
        """None if there is no such file any more."""
        first = message_at(self.survey, following.start)
        next_ms = None if first is None else first.store_timestamp
        try:
            changed_ms = last_change_ms(self.files.stat(segment.path).mtime_ns // 1_000_000, next_ms, self.now_ms)
            expired = is_expired(changed_ms, self.now_ms, self.settings)
            if self.before_ms is not None:
                expired = is_all_before(self.files, segment, self.before_ms, next_ms)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise StorePathInvalid(segment.path, problem.strerror or str(problem)) from problem
        return OldSegment(self.survey.path, segment.path, segment.start, segment.end, changed_ms, expired)

    def first_parked(self) -> int | None:
        """Where in the log the oldest message lies that is parked and was not delivered; None if there is none, or if
        nothing is delivered here."""
        if self.settings.role is BrokerRole.SLAVE or not self.settings.delayed_delivery:
            return None
        progress = load_entries(self.files, self.survey.path, DELAY_OFFSETS)
        places: list[int] = []
        for (topic, queue_id), span in self.survey.queues().items():
            at = max(span.min_offset, min(progress.get(queue_id + 1, 0), span.max_offset))
            if (topic, queue_id) == (TIMER_TOPIC, 0):
                at = max(span.min_offset, min(load_done_bits(self.files, self.survey.path).low, span.max_offset))
            elif topic != SCHEDULE_TOPIC:
                continue
            if at < span.max_offset:
                entries = self.survey.entries(topic, queue_id, at, at + 1)
                places.append(int(entries["physical_offset"][0]) if len(entries) else 0)
        return min(places, default=None)
