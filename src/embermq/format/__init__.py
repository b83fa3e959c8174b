"""Bytes to values and back: the files of a store, field by field. Pure: no files, no clock, no threads."""
