"""A process that appends numbered messages while old log files go; made to be killed.

    python -m tests.crash.retention_child DIRECTORY FIRST_NUMBER SETTINGS-AS-JSON

As writer_child.py, with retention that looks every few milliseconds. It appends no faster than files go, so that
few messages are left to be checked.
"""

import json
import sys
import time
from pathlib import Path

from embermq import MessageStore, StoreSettings
from embermq.store.services import retention
from tests.crash import numbered

SEGMENTS_MAX = 8


def main() -> None:
    directory, first, given = sys.argv[1:]
    settings = StoreSettings(**json.loads(given))
    retention.FIRST_LOOK_SECONDS = 0.005
    with MessageStore.open(Path(directory), settings) as store:
        n = int(first)
        print(n, flush=True)
        while True:
            n += len(numbered.append(store, n))
            if settings.transient_pool_active:
                store.flush()
            print(n, flush=True)
            while store.stats().segments > SEGMENTS_MAX:
                time.sleep(0.0005)


if __name__ == "__main__":
    main()
