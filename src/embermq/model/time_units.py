"""Numbers that are times in another unit than milliseconds, recognized by their size. Pure; any thread.

Seconds in the place of milliseconds are the commonest mistake with RocketMQ's times, and look like a moment of
January 1970.
"""

from datetime import UTC, datetime

# As seconds: 1973 to 5138. As milliseconds: the 2nd of January 1970 to 1973, long before the first message.
_SECONDS = range(10**8, 10**11)
_MILLISECONDS_END = 10**14  # The year 5138; what is larger counts micro- or nanoseconds.


def unit_mistaken(number: int) -> str | None:
    """What is probably meant by a time that is not in milliseconds; None if it is."""
    if number in _SECONDS:
        meant = datetime.fromtimestamp(number, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{number} looks like seconds ({meant}); times are in milliseconds: {number}000"
    if number >= _MILLISECONDS_END:
        unit, factor = ("microseconds", 1000) if number < _MILLISECONDS_END * 1000 else ("nanoseconds", 10**6)
        return f"{number} looks like {unit}; times are in milliseconds: {number // factor}"
    return None
