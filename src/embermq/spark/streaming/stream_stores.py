"""A store as a stream follows it: is it still the one that was read, from where to read on, how many rows are there.

What must not happen unnoticed: another store at the same path, an end that was lost in a crash and written again,
records that retention took before they were read. Each is an error with failOnDataLoss, and one warning without.
Driver side, in the Python process that a stream keeps for itself; one thread.
"""

import logging
import time
from collections.abc import Iterator

from embermq.columns import C_PHYSICAL, C_SIZE, Selection, is_system_topic
from embermq.errors import DataLost, StoreReplaced
from embermq.inspect import LogMatch, QueueSpan
from embermq.spark.options.read_options import ReadOptions
from embermq.spark.planning.stores import StorePlace
from embermq.spark.streaming.stream_offsets import StoreOffset
from embermq.store.log import DamagedRange

_PATIENCE_SECONDS = 30.0
_POLL_SECONDS = 0.1
_GO_ON = "set failOnDataLoss=false to go on with what is left"

_log = logging.getLogger(__name__)


class FollowedStore:
    """One store of a stream."""

    def __init__(self, place: StorePlace, options: ReadOptions) -> None:
        self.place = place
        self.survey = place.survey()
        self._options = options
        self._counted = _Counted()
        self._told: set[str] = set()
        self._matches: dict[str, LogMatch] = {}  # By identity, until the store is looked at again.
        self._identity = (-1, "")

    @property
    def name(self) -> str:
        return self.place.broker_name

    def refresh(self) -> None:
        """Look at the store again."""
        self.survey.refresh()
        self._matches.clear()
        self._identity = (-1, "")

    def identity_at(self, position: int) -> str:
        if self._identity[0] != position:
            self._identity = position, self.survey.identity_at(position)
        return self._identity[1]

    # -- is all there that was ---------------------------------------------------------------------------------

    def match(self, known: StoreOffset) -> LogMatch:
        """Is this the store that was read up to `known`? StoreReplaced or DataLost if it is not and must be."""
        match = self._matches.get(known.identity)
        if match is None:
            match = self._matches[known.identity] = self.survey.compare(known.identity)
        if match is LogMatch.OTHER:
            reason = "the records it began with are others; use a new checkpoint, or " + _GO_ON
            if self._options.fail_on_data_loss:
                raise StoreReplaced(self.place.path if self.place.shipped is None else self.place.shown, reason)
            self._tell(f"another store than was read before: read from its beginning identity={known.identity}")
        elif match is LogMatch.CUT:
            self.lose("records that were read are not in the log any more: its end was lost in a crash")
        return match

    def lose(self, what: str) -> None:
        """Something that should be there is gone: DataLost, or a warning."""
        if self._options.fail_on_data_loss:
            raise DataLost(f"{self.place.shown}: {what}; {_GO_ON}")
        self._tell(what)

    def _tell(self, what: str) -> None:
        if what not in self._told:
            _log.warning("stream continues store=%s: %s", self.place.shown, what)
            self._told.add(what)

    def wait_for(self, known: StoreOffset | None) -> None:
        """Wait while the store does not show what it did before, and still has it: it is being recovered."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while known is not None and self.match(known) is LogMatch.SAME and self.survey.is_behind(known.identity):
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL_SECONDS)
            self.refresh()

    def position_after(self, known: StoreOffset | None) -> int:
        """Where to read on in the log; the beginning of a store that was never read."""
        survey = self.survey
        if known is None:
            return survey.log_min
        match self.match(known):
            case LogMatch.OTHER:
                return survey.log_min
            case LogMatch.CUT:
                return survey.record_start(known.position)  # Other records lie there: one may reach over this place.
        if known.position < survey.log_min:
            self.lose(f"bytes {known.position} to {survey.log_min} of the log were deleted before they were read")
        return max(known.position, survey.log_min)

    # -- what is there -----------------------------------------------------------------------------------------

    def wanted_queues(self) -> Iterator[QueueSpan]:
        """Queues that the stream is about."""
        options = self._options
        for (topic, queue_id), span in self.survey.queues().items():
            if is_system_topic(topic) and not options.include_system_topics:
                continue
            if options.wants_topic(topic) and options.queues.has(topic, queue_id):
                yield span

    def selection(self) -> Selection:
        """What of a record does not depend on its queue."""
        options = self._options
        return Selection(
            tags=None if options.tags is None else frozenset(options.tags),
            keys=None if options.keys is None else frozenset(options.keys),
            include_system=options.include_system_topics,
        )

    # -- counting ----------------------------------------------------------------------------------------------

    def end_of_rows(self, start: int, end: int, row_count: int) -> int:
        """Where the first `row_count` records from `start` on end; `end` if there are fewer."""
        left = row_count
        for scanned in self.survey.scan(start, end, check_crc=False, rows_max=min(row_count, 4096)):
            if isinstance(scanned, DamagedRange):
                continue
            if len(scanned) >= left:
                return int(scanned.rows[left - 1, C_PHYSICAL] + scanned.rows[left - 1, C_SIZE])
            left -= len(scanned)
        return end

    def count_rows(self, start: int, end: int, enough: int) -> int:
        """How many records there are from `start` to `end`; counting ends when there are `enough`.

        Asked again with the same start it goes on from where it was: a stream that waits asks often.
        """
        counted = self._counted
        if counted.start != start or counted.end > end:
            counted = self._counted = _Counted(start, start)
        while counted.rows < enough and counted.end < end:
            for scanned in self.survey.scan(counted.end, end, check_crc=False):
                if isinstance(scanned, DamagedRange):
                    counted.end = scanned.end
                else:
                    counted.rows += len(scanned)
                    counted.end = int(scanned.rows[-1, C_PHYSICAL] + scanned.rows[-1, C_SIZE])
                if counted.rows >= enough:
                    return counted.rows
            counted.end = end
        return counted.rows


class _Counted:
    """Records counted so far, from one place to another."""

    def __init__(self, start: int = -1, end: int = -1) -> None:
        self.start, self.end, self.rows = start, end, 0
