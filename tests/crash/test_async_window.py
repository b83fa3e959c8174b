"""How much a power cut can take under ASYNC_FLUSH: what was acknowledged and is not synced yet, by age and by size.

Two loads: a trickle, which never makes up the four dirty pages that flushIntervalCommitLog asks for, so that only
flushCommitLogThoroughInterval counts; and a stream, as fast as one thread can. Real files and real time; looked at
every few milliseconds from beside the store.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.settings import FlushDisk

SLACK_SECONDS = 30.0  # A slow disk under other loads.


class Window:
    """The oldest acknowledged message that a power cut would take, seen again and again."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._sent: deque[tuple[int, float]] = deque()  # end in the log, when acknowledged
        self.seconds_max = 0.0
        self.bytes_max = 0
        self.messages = 0

    def append(self, body: bytes) -> None:
        receipt = self._store.append(Message("T", body))
        assert receipt.ok
        self._sent.append((receipt.physical_offset + receipt.size, time.monotonic()))
        self.messages += 1

    def look(self) -> None:
        now, flushed = time.monotonic(), self._store.flushed_offset
        while self._sent and self._sent[0][0] <= flushed:
            self._sent.popleft()
        if self._sent:
            self.seconds_max = max(self.seconds_max, now - self._sent[0][1])
            self.bytes_max = max(self.bytes_max, self._sent[-1][0] - flushed)

    def __str__(self) -> str:
        return f"{self.messages:,} messages, at most {self.seconds_max:.2f} s and {self.bytes_max:,} bytes at stake"


def measure(directory: Path, seconds: float, pause_s: float, body: bytes, settings: StoreSettings) -> Window:
    with MessageStore.open(directory, settings) as store:
        window, over = Window(store), threading.Event()

        def watch() -> None:
            while not over.wait(0.005):
                window.look()

        watcher = threading.Thread(target=watch)
        watcher.start()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            window.append(body)
            if pause_s:
                time.sleep(pause_s)
        over.set()
        watcher.join()
        return window


def settings(**more: int) -> StoreSettings:
    return StoreSettings(flush=FlushDisk.ASYNC, segment_bytes=64 << 20, disk_full_percent=100, **more)  # type: ignore[arg-type]


def test_no_more_is_at_stake_than_the_intervals_say(tmp_path: Path) -> None:
    short = settings(flush_interval_ms=20, flush_thorough_interval_ms=200)
    window = measure(tmp_path / "store", 1.0, 0.01, b"x", short)
    assert 0 < window.seconds_max < 0.2 + SLACK_SECONDS


@pytest.mark.long
@pytest.mark.parametrize("load", ["trickle", "stream"])
def test_what_is_at_stake_by_default(tmp_path: Path, load: str, figures: Callable[[str, str], None]) -> None:
    plain = settings()
    if load == "trickle":
        window = measure(tmp_path / "store", 25.0, 0.2, b"x", plain)
        assert window.seconds_max < plain.flush_thorough_interval_ms / 1000 + SLACK_SECONDS
    else:
        window = measure(tmp_path / "store", 15.0, 0.0, bytes(1000), plain)
        assert window.seconds_max < plain.flush_interval_ms / 1000 + SLACK_SECONDS
    figures(f"ASYNC_FLUSH, {load}", str(window))
