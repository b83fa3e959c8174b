"""Load: lines of JSON into a store, the inverse of a dump."""

from embermq.repair.load.load import LoadReport, Source, Times, load_messages, open_source
from embermq.repair.load.time_units import unit_mistaken

__all__ = ["LoadReport", "Source", "Times", "load_messages", "open_source", "unit_mistaken"]
