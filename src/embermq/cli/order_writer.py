"""The process the demo kills: appends orders and reports each one the store has acknowledged.

    python -m embermq.cli.order_writer DIRECTORY COUNT

One line of standard output per acknowledged message: its number, its message id, its queue offset. It
never closes the store: after the last message it waits to be killed, or for its parent to go away.
"""

import sys
from pathlib import Path

from embermq import StoreSettings
from embermq.cli.orders import order_events
from embermq.errors import EmberError
from embermq.settings import FlushDisk, KernelUse
from embermq.store import MessageStore

# Messages that share one wait for the disk, as those of a few producers sending at once would.
MESSAGES_PER_APPEND = 8


def demo_settings() -> StoreSettings:
    """Each acknowledgement waits for the disk; files are small, so that there are several.

    A few megabytes fit on a disk that is nearly full as well.
    """
    return StoreSettings(
        flush=FlushDisk.SYNC,
        segment_bytes=4 << 20,
        queue_file_bytes=200_000,
        index_slots_max=20_000,
        index_entries_max=100_000,
        disk_full_percent=100,
        disk_clean_percent=100,
    )


def write_orders(directory: Path, count: int) -> None:
    events = order_events(count)
    # Compiling kernels here would only take the processor from the writing that is being watched.
    store = MessageStore.open(directory, demo_settings().replace(kernels=KernelUse.NEVER))
    for start in range(0, count, MESSAGES_PER_APPEND):
        run = events[start : start + MESSAGES_PER_APPEND]
        receipts = store.append_many([event.message() for event in run])
        acknowledged = [
            f"{event.number} {receipt.message_id} {receipt.queue_offset}\n"
            for event, receipt in zip(run, receipts, strict=True)
            if receipt.ok
        ]
        sys.stdout.write("".join(acknowledged))
        sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    try:
        write_orders(Path(sys.argv[1]), int(sys.argv[2]))
    except EmberError as problem:
        sys.exit(f"embermq: {problem}")
