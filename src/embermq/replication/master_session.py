"""One slave as its master sees it: a state machine without socket or clock. One thread.

    connected  --first report-->  sending from there  --later reports-->  acknowledged so far

The first report says where to begin and acknowledges nothing: what the slave has up to there may come from another
master. RocketMQ counts it. A later report must lie between what was acknowledged and what was sent on this connection;
anything else is no slave of this log.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from embermq.errors import ReplicaMisbehaved
from embermq.replication.wire import REPORT, encode_heartbeat, encode_transfers


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """Times and sizes of a connection, in the unit of `now`: seconds."""

    heartbeat_seconds: float = 5.0
    silence_seconds: float = 20.0
    transfer_bytes: int = 32 << 10


class MasterSession:
    """What a master knows of one connection."""

    def __init__(self, limits: SessionLimits, segment_bytes: int, now: float) -> None:
        self._limits, self._segment_bytes = limits, segment_bytes
        self._unread = b""
        self._heard = self._sent_at = now
        self.begin: int | None = None  # The first report.
        self.sent = 0  # Everything below was sent, or the slave had it before; with `begin`.
        self.acknowledged = 0  # By reports after the first; 0: nothing.

    # -- from the slave ----------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float, log_begin: int, log_end: int) -> bool:
        """Take bytes of the slave; whether it has acknowledged more. `log_begin` and `log_end`: what can be sent."""
        self._heard = now
        self._unread += data
        whole = len(self._unread) // REPORT.size * REPORT.size
        before = self.acknowledged
        for (report,) in REPORT.iter_unpack(self._unread[:whole]):
            if self.begin is None:
                self._start(report, log_begin, log_end)
            else:
                self._acknowledge(report)
        self._unread = self._unread[whole:]
        return self.acknowledged > before

    def _start(self, report: int, log_begin: int, log_end: int) -> None:
        if report == 0:
            report = max(log_begin, log_end - log_end % self._segment_bytes)
        elif report < 0 or report > log_end:
            raise ReplicaMisbehaved(f"its log goes to {report}, that of this master to {log_end}: it has another past")
        elif report < log_begin:
            raise ReplicaMisbehaved(
                f"it goes on at {report}, and the log here begins at {log_begin}: older files are deleted;"
                " start it from a copy of this store, or empty"
            )
        self.begin = self.sent = report

    def _acknowledge(self, report: int) -> None:
        if not 0 <= report <= self.sent:
            raise ReplicaMisbehaved(f"it acknowledges {report}, and was sent the log up to {self.sent}")
        # Right after the beginning a slave may repeat what it had before: that is a sign of life.
        if self.begin is not None and report > self.begin:
            self.acknowledged = max(self.acknowledged, report)

    # -- to the slave ------------------------------------------------------------------------------------------

    def transfers(self, data: bytes, now: float) -> Iterator[bytes | memoryview]:
        """Buffers to be sent for `data`, the log from `sent` on."""
        assert self.begin is not None
        at, self.sent, self._sent_at = self.sent, self.sent + len(data), now
        return encode_transfers(at, data, self._limits.transfer_bytes)

    def heartbeat(self, now: float) -> bytes | None:
        """A sign of life, if it is time for one."""
        if self.begin is None or now - self._sent_at < self._limits.heartbeat_seconds:
            return None
        self._sent_at = now
        return encode_heartbeat(self.sent)

    # -- time --------------------------------------------------------------------------------------------------

    def is_silent(self, now: float) -> bool:
        """Whether nothing came from the slave for so long that it counts as gone."""
        return now - self._heard > self._limits.silence_seconds

    def seconds_to_wait(self, now: float) -> float:
        """Until a heartbeat is due or the silence is too long."""
        heartbeat = self._sent_at + self._limits.heartbeat_seconds if self.begin is not None else now + 60.0
        return max(0.0, min(heartbeat, self._heard + self._limits.silence_seconds) - now)
