"""The loops that `verify` needs, compiled or plain: chosen once, before the log is read.

A small log is read sooner than the kernels are loaded. The scan itself chooses on its own (survey_scan.py).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from embermq.columns import compiled as kernels
from embermq.columns.plain import check
from embermq.columns.rows import RecordColumns
from embermq.format import frame
from embermq.format.index import key_rows


@dataclass(frozen=True, slots=True)
class Tools:
    """Functions with a plain and a compiled form."""

    resync: Callable[..., int]
    check_units: Callable[..., tuple[int, int, int]]
    check_keys: Callable[..., tuple[int, int, int, int]]
    keys_of: Callable[[RecordColumns], NDArray[np.int64]]  # hash, physical offset, store time of every key, in order
    is_compiled: bool

    @staticmethod
    def are_loaded() -> bool:
        return all(kernels.is_loaded(name) for name in ("scan", "check", "check_log", "derive"))

    @staticmethod
    def kernels() -> "Tools":
        loaded = kernels.load("check")
        kernels.load("check_log")
        return Tools(
            kernels.load("scan").resync, loaded.check_units, loaded.check_keys, kernels.load("derive").index_keys, True
        )

    @staticmethod
    def twins() -> "Tools":
        return Tools(frame.resync, check.check_units, check.check_keys, _keys_of, False)


def _keys_of(batch: RecordColumns) -> NDArray[np.int64]:
    found = key_rows(batch)
    return np.array(found, np.int64) if found else np.empty((0, 3), np.int64)
