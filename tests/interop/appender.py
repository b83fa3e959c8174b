"""Our side at work: opening a store, appending anything, and a process that appends until it is killed.

    python -m tests.interop.appender DIRECTORY SETTINGS_JSON SEED COUNT

prints one JSON line per acknowledged put, its number and its physical offset, and never closes the store.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from embermq import MessageStore, StoreSettings
from embermq.clock import Clock, SystemClock
from embermq.model.message import MessageBatch, Receipt
from tests.interop.reference import ROOT
from tests.interop.workload import Put, mixed


def opened(
    directory: Path, settings: Mapping[str, str], *, read_only: bool = False, clock: Clock | None = None
) -> MessageStore:
    """Our store over `directory`, with settings spelled as RocketMQ spells them."""
    return MessageStore.open(
        directory, StoreSettings.from_properties(settings), read_only=read_only, clock=clock or SystemClock()
    )


def append(store: MessageStore, put: Put) -> Receipt:
    return store.append_batch(put) if isinstance(put, MessageBatch) else store.append(put)


def append_until_killed(
    directory: Path, settings: Mapping[str, str], *, seed: int, acknowledged: int
) -> dict[int, int]:
    """Number and place of every put acknowledged by a process that is killed while it goes on appending."""
    command = [sys.executable, "-m", "tests.interop.appender", str(directory), json.dumps(dict(settings))]
    child = subprocess.Popen([*command, str(seed), "20000"], cwd=ROOT, stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout as acknowledgements:
        lines = [acknowledgements.readline() for _ in range(acknowledged)]
        child.kill()
        lines += acknowledgements.readlines()
    child.wait()
    placed = dict(json.loads(line) for line in lines if line.endswith(b"\n"))
    assert len(placed) >= acknowledged, "the appending process ended by itself"
    return placed


def main() -> None:
    directory, settings, seed, count = sys.argv[1:]
    store = opened(Path(directory), json.loads(settings))
    for number, put in enumerate(mixed(int(count), int(seed))):
        print(json.dumps([number, append(store, put).physical_offset]), flush=True)
    time.sleep(60)  # Killed by now, or about to be.


if __name__ == "__main__":
    main()
