"""The master as a slave sees it: a state machine without socket, store or clock. One thread.

A slave asks for its log to be continued. Nothing on the wire says whether the master's log has the same past, and
RocketMQ's slave does not ask: it would append another log's bytes behind its own. So this one reports a place a little
before its end first, gets bytes it has already, and compares them:

    log here         .......................|-- known --|
    first report                            ^
    master sends                            |-- known --|-- new --...
                                             compared     stored

Records hold their place, their queue offset and their store time, so equal ends mean an equal past. A master that
has less than the slave sends a heartbeat where bytes should come. Each of these is LogsDiffer, and nothing is stored.
"""

from collections.abc import Iterator

from embermq.errors import LogsDiffer, ReplicaMisbehaved
from embermq.replication.wire import TransferReader, encode_report

KNOWN_BYTES = 64 << 10  # how much of the own end is compared, at most


def known_start(log_begin: int, log_end: int, segment_bytes: int) -> int:
    """Where the bytes begin that are to be compared: in the file of the last byte, and never at 0, which a master
    takes for an empty slave."""
    if log_end <= log_begin:
        return log_end
    file_start = (log_end - 1) // segment_bytes * segment_bytes
    return max(log_end - KNOWN_BYTES, file_start, log_begin, 1)


class SlaveSession:
    """What a slave knows of one connection."""

    def __init__(
        self,
        log_end: int,
        known: bytes,
        heartbeat_seconds: float,
        silence_seconds: float,
        *,
        begin: int | None = None,
        acknowledges: bool = True,
    ) -> None:
        """`known`: the last bytes of the log, which ends at `log_end`; the log is empty if there are none. `begin`: an
        empty log is asked for from there on, None: as the master likes. Without `acknowledges`, each report says where
        this began, which keeps the connection alive."""
        self._end, self._known = log_end, known
        self._at = log_end - len(known)  # Where the next bytes must begin; of an empty log, anywhere.
        self._is_empty = not known
        self._begin, self._acknowledges = begin, acknowledges
        self.is_idle = False  # The master has nothing more to send now.
        self._reader = TransferReader()
        self._heartbeat_seconds, self._silence_seconds = heartbeat_seconds, silence_seconds
        self._reported, self._reported_at, self._heard = 0, 0.0, 0.0
        self.master_end = 0  # The log of the master goes at least so far.

    def first_report(self, now: float) -> bytes:
        """What is sent right after connecting."""
        report = self._at
        if self._is_empty and self._begin is not None:
            report = max(1, self._begin)  # 0 would ask for the last file.
        self._reported, self._reported_at, self._heard = report, now, now
        return encode_report(report)

    # -- from the master ---------------------------------------------------------------------------------------

    def receive(self, data: bytes | memoryview, now: float) -> Iterator[tuple[int, bytes]]:
        """New log bytes by their offset; what was known already is compared. LogsDiffer, ReplicaMisbehaved."""
        self._heard = now
        for offset, body in self._reader.receive(data):
            self.master_end = max(self.master_end, offset + len(body))
            self.is_idle = not body
            if not body:
                self._check_heartbeat(offset)
            elif (new := self._new_part(offset, body)) is not None:
                yield new

    def _check_heartbeat(self, offset: int) -> None:
        if self._at < self._end:
            raise LogsDiffer(offset, f"the log here ends at {self._end}, the master sends nothing from {self._at} on")
        if not self._is_empty and offset != self._at:
            raise ReplicaMisbehaved(f"the master is at {offset}, and has sent the log up to {self._at}")

    def _new_part(self, offset: int, body: bytes) -> tuple[int, bytes] | None:
        if self._is_empty:
            if self._begin == 0 and offset == 1:
                # The byte that could not be asked for: the first of a record's size, which is below 16 MiB. Were it
                # another, the record would not be sound, and would not be stored.
                offset, body = 0, b"\0" + body
            self._is_empty, self._at, self._end = False, offset, offset
        if offset != self._at:
            raise ReplicaMisbehaved(f"the master sends the log from {offset} on, and {self._at} is next")
        old = self._end - offset
        if old > 0:
            self._compare(offset, body, old)
        self._at += len(body)
        if old <= 0:
            return offset, body
        return (self._end, body[old:]) if len(body) > old else None

    def _compare(self, offset: int, body: bytes, old: int) -> None:
        """The first `old` bytes are here already."""
        begin = len(self._known) - old
        if body[:old] != self._known[begin : begin + len(body)]:
            pairs = zip(self._known[begin:], body, strict=False)
            at = next(n for n, (ours, theirs) in enumerate(pairs) if ours != theirs)
            raise LogsDiffer(offset + at, f"the bytes at {offset + at} are others; it ends at {self._end} here")

    # -- to the master -----------------------------------------------------------------------------------------

    @property
    def is_compared(self) -> bool:
        """Whether the master has shown that it has the end of this log."""
        return self._at >= self._end

    def report(self, safe_end: int, now: float) -> bytes | None:
        """The acknowledgement of everything below `safe_end`, if that is news or a sign of life is due."""
        end = safe_end if self.is_compared and self._acknowledges else self._reported
        if end <= self._reported and now - self._reported_at < self._heartbeat_seconds:
            return None
        self._reported, self._reported_at = max(end, self._reported), now
        return encode_report(self._reported)

    def is_silent(self, now: float) -> bool:
        return now - self._heard > self._silence_seconds

    def seconds_to_wait(self, now: float) -> float:
        """Until a report is due or the master's silence is too long."""
        times = (self._reported_at + self._heartbeat_seconds, self._heard + self._silence_seconds)
        return max(0.0, min(times) - now)
