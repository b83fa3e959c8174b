"""Load: lines of JSON into a store, the inverse of a dump."""

from embermq.repair.load.load import LoadReport, Source, Times, load_messages, open_source

__all__ = ["LoadReport", "Source", "Times", "load_messages", "open_source"]
