"""One queue as the log shows it: its offsets followed from record to record.

Offsets go up by one. Elsewhere they jump (a hole), come again (a repeat), begin at 0 again (the topic was deleted and
made anew), or lie where the queue cannot be yet (a damaged record). The rules are those of entry_intake.py. One thread.
"""

from dataclasses import dataclass, field

from embermq.columns import QueueName
from embermq.store.compare import OffsetRun, Suspects
from embermq.store.queues import NOT_SEEN, ConsumeQueue, Jump, is_possible, is_too_far

_SUSPECTS_MAX = 10_000
_ANYWHERE = 1 << 62


@dataclass(slots=True)
class SeenQueue:
    """One queue: its files, and what the log has shown of it so far."""

    name: QueueName
    files: ConsumeQueue | None = None
    first: int = -1  # First queue offset met; -1: none.
    next: int = -1
    holes: list[tuple[int, int]] = field(default_factory=list)
    repeats: list[OffsetRun] = field(default_factory=list)  # Offsets that were given before, to older records.
    strays: list[OffsetRun] = field(default_factory=list)  # Offsets that the queue cannot have reached.
    suspects: list[Suspects] = field(default_factory=list)
    kept: int = 0
    jump: Jump | None = None  # The newest one.
    restart: OffsetRun | None = None  # A record of offset 0 after others; what comes next decides.

    def begin_anew(self) -> None:
        """The topic was deleted and made again: its older records have no entries any more."""
        self.restart = None
        self.first, self.next, self.jump = -1, -1, None
        self.holes, self.repeats, self.strays, self.suspects, self.kept = [], [], [], [], 0

    def follow(self, run: OffsetRun) -> None:
        """Records whose queue offsets follow one another."""
        if self.restart is not None:
            self._decide_restart(self.restart, run)
        if self.first >= 0 and run.first == 0 and self.next > 0:
            if run.next == 1:
                self.restart = run
                return
            self.begin_anew()
        place = run.place if run.place >= 0 else _ANYWHERE
        if not is_possible(run.first) or (self.first >= 0 and is_too_far(self.next, run.first, place)):
            self.strays.append(run)
            return
        if self.jump is not None and self._goes_back(self.jump, run):
            return
        if self.first < 0:
            self.first, self.next, self.jump = run.first, run.next, Jump(NOT_SEEN, run.first, 0)
            return
        if run.first > self.next:
            self.holes.append((self.next, run.first))
            self.jump = Jump(self.next, run.first, self.next)
        elif run.first < self.next:
            self.repeats.append(run._replace(next=min(run.next, self.next)))
        self.next = max(self.next, run.next)

    def _decide_restart(self, restart: OffsetRun, run: OffsetRun | None) -> None:
        """A single record of offset 0: the begin of a new incarnation if 1 comes next, or nothing; damaged
        otherwise."""
        self.restart = None
        if run is not None and run.first != 1:
            self.repeats.append(restart)
            return
        suspects = [one.chosen(one.physicals >= restart.place) for one in self.suspects if restart.place >= 0]
        self.begin_anew()
        self.suspect(suspects)
        self.first, self.next = 0, 1

    def finish(self) -> None:
        """No more records come."""
        if self.restart is not None:
            self._decide_restart(self.restart, None)

    def _goes_back(self, jump: Jump, run: OffsetRun) -> bool:
        """Was the newest record, alone after a jump, too far ahead, and do these go on where the queue was? As
        entry_intake.py has it."""
        if self.next != jump.to + 1 or not jump.start <= run.first < jump.to:
            return False
        self.strays.append(OffsetRun(jump.to, jump.to + 1, -1))
        self.jump = None
        if jump.start == NOT_SEEN:
            self.first = self.next = -1
        else:
            self.holes.pop()
            self.next = jump.start
        self.follow(run)
        return True

    def suspect(self, more: list[Suspects]) -> None:
        for one in more:
            if self.kept < _SUSPECTS_MAX:
                self.suspects.append(one)
                self.kept += len(one.offsets)
