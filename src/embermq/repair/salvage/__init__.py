"""Salvage: every whole record of a damaged log, in a new store."""

from embermq.repair.salvage.salvaging import LostRange, Salvaged, salvage

__all__ = ["LostRange", "Salvaged", "salvage"]
