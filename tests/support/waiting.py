"""Waiting for what another thread or process does, where it offers no event to wait for."""

import time
from collections.abc import Callable

# Nothing takes this long unless something is wrong: a machine may have ten times more work than cores.
PATIENCE_SECONDS = 120.0
LOOK_SECONDS = 0.005


def wait_until(
    holds: Callable[[], bool],
    what: str = "what is waited for",
    *,
    seconds: float = PATIENCE_SECONDS,
    look_seconds: float = LOOK_SECONDS,
    check: Callable[[], object] | None = None,
) -> None:
    """Returns as soon as `holds` is true. `check` runs before each look and raises where waiting is in vain."""
    deadline = time.monotonic() + seconds
    while True:
        if check is not None:
            check()
        if holds():
            return
        assert time.monotonic() < deadline, f"after {seconds:g} s still not: {what}"
        time.sleep(look_seconds)
