"""When old log files go, by RocketMQ's rules. Pure.

    used <= diskMaxUsedSpaceRatio (75 %)     expired files, in the hours deleteWhen names
    used >  75 %                             expired files, at any hour
    used >  emberDiskCleanPercent (85 %)     the oldest files, expired or not, if cleanFileForciblyEnable
    used >  emberDiskFullPercent (90 %)      as above, and appends are refused
    asked for                                expired files, at any hour

The disk of the log counts first, and of several log directories the emptiest: new files go there. The disk
of the consume queues counts when that of the log gives no reason. Force needs a reason of its own: with
diskMaxUsedSpaceRatio above 85 it waits for its hour, as in RocketMQ. A disk that cannot be looked at is no
reason: nothing is deleted because something is not known.
"""

from dataclasses import dataclass

from embermq.settings import StoreSettings


@dataclass(frozen=True, slots=True)
class DiskSeen:
    """What a look found. Used space is a fraction; None if it could not be found out."""

    hour: int  # of the day, local time
    log_used: float | None
    queues_used: float | None
    asked: bool = False  # expired files are to go now


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may be deleted, and whether appends are refused."""

    reason: str | None  # why expired files go; None: nothing goes
    forced: bool  # the oldest files go even if they are not expired
    full: bool


def judge(seen: DiskSeen, settings: StoreSettings) -> Verdict:
    """The table at the head of this file."""
    full = any(_above(used, settings.disk_full_percent) for used in (seen.log_used, seen.queues_used))
    log_pressed = _above(seen.log_used, settings.disk_used_percent_max)
    looked_at = (seen.log_used,) if log_pressed else (seen.log_used, seen.queues_used)
    pressed = [used for used in looked_at if used is not None and _above(used, settings.disk_used_percent_max)]
    if pressed:
        reason: str | None = f"the disk is {pressed[0]:.0%} full"
    elif seen.asked:
        reason = "asked for"
    elif seen.hour in settings.delete_hours:
        reason = f"it is {seen.hour:02d} o'clock"
    else:
        reason = None
    forced = settings.delete_when_full and any(_above(used, settings.disk_clean_percent) for used in looked_at)
    return Verdict(reason, forced and reason is not None, full)


def _above(used: float | None, percent: int) -> bool:
    return used is not None and used > percent / 100


def last_change_ms(mtime_ms: int, newest_ms: int | None, now_ms: int) -> int:
    """When a log file was last written to: by the file system, and not before its newest message, because not every
    file system notes stores into a map. A message from the future does not count: it would keep the file for ever."""
    return mtime_ms if newest_ms is None or newest_ms > now_ms else max(mtime_ms, newest_ms)


def is_expired(last_change_ms: int, now_ms: int, settings: StoreSettings) -> bool:
    """Has a file been left alone for as long as files are kept?"""
    return now_ms >= last_change_ms + settings.retention_hours * 3_600_000
