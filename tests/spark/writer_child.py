"""A process that appends numbered messages to a log-only store, slowly and for ever; made to be killed.

    python -m tests.spark.writer_child STORE

It goes on after the last number that the log has. Lines of its output: `begun`, then the next number after each append.
"""

import sys
import time
from pathlib import Path

from embermq import MessageStore
from tests.crash import numbered
from tests.spark.pipeline_child import SETTINGS

PAUSE_SECONDS = 0.05


def main() -> None:
    with MessageStore.open(Path(sys.argv[1]), SETTINGS, dispatch="none") as store:
        n = max(numbered.numbers_in(store), default=-1) + 1
        print("begun", flush=True)
        while True:
            n += len(numbered.append(store, n))
            print(n, flush=True)
            time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main()
