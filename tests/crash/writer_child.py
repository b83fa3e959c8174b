"""A process that appends numbered messages and says after each append what was acknowledged; made to be killed.

    python -m tests.crash.writer_child DIRECTORY FIRST_NUMBER SETTINGS-AS-JSON

Each line of its output is the number of the next message: everything below is acknowledged. With a transient
pool an acknowledged message is in private memory until it is committed, so there `flush` comes first.
"""

import json
import sys
from pathlib import Path

from embermq import MessageStore, StoreSettings
from tests.crash import numbered

MESSAGES_MAX = 1_000_000


def main() -> None:
    directory, first, given = sys.argv[1:]
    settings = StoreSettings(**json.loads(given))
    with MessageStore.open(Path(directory), settings) as store:
        n = int(first)
        print(n, flush=True)
        while n < MESSAGES_MAX:
            n += len(numbered.append(store, n))
            if settings.transient_pool_active:
                store.flush()
            print(n, flush=True)


if __name__ == "__main__":
    main()
