"""The committing process that test_spark_sink_kills.py kills: stages and commits batch after batch, and says so.

    python -m tests.crash.sink_child <directory> <first batch> <attempt> <rows>

One line for each step: `staged 3`, `committed 3`.
"""

import sys
from pathlib import Path

from embermq import StoreSettings
from embermq.files import RealFiles
from tests.crash.sink_batches import Sink

SETTINGS = StoreSettings(
    segment_bytes=1 << 18, queue_file_bytes=20 * 1000, index_slots_max=1000, index_entries_max=4000
)


def main() -> None:
    directory, first, attempt, rows = Path(sys.argv[1]), *map(int, sys.argv[2:])
    sink = Sink(directory, RealFiles(), SETTINGS, partitions=(rows, rows // 2))
    batch = first
    while True:
        staged = sink.stage(batch, attempt)
        print(f"staged {batch}", flush=True)
        sink.commit(batch, staged)
        print(f"committed {batch}", flush=True)
        batch += 1


if __name__ == "__main__":
    main()
