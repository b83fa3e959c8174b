"""Rebuild: queues and index made again from the log, aside, compared with it, and swapped in.

    rebuilding.py     the steps; build.py one process, bulk*.py many tasks; follower.py behind a log that grows
    journal.py, places.py   how far it is, and where it builds; writer_lock.py which process may write

Other packages import from this face, not from the modules behind it.
"""

from embermq.repair.rebuild.bulk_build import BulkBuild
from embermq.repair.rebuild.follower import DerivedFollower, check_not_deriving
from embermq.repair.rebuild.rebuilding import Rebuilt, rebuild, settings_as_found

__all__ = ["BulkBuild", "DerivedFollower", "Rebuilt", "check_not_deriving", "rebuild", "settings_as_found"]
