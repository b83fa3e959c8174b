"""Salvage: every whole record of a damaged log, in a new store.

    salvaging.py   find, copy, recover, report
    log_files.py   log files known by their content
    report.py      what was saved and what was not

Other packages import from this face.
"""

from embermq.repair.salvage.report import LostRange, Salvaged
from embermq.repair.salvage.salvaging import salvage

__all__ = ["LostRange", "Salvaged", "salvage"]
