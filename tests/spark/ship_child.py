"""A process that ships a store, to be killed: `python -m tests.spark.ship_child STORE TARGET`. Its tasks run in it."""

import sys

import pytest

from tests.support.shipping import run_here, ship

if __name__ == "__main__":
    store, target = sys.argv[1:]
    with pytest.MonkeyPatch.context() as patch:
        run_here(patch, parallel=1)
        ship(store, target)  # type: ignore[arg-type]
