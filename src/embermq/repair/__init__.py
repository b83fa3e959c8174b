"""Checking and mending a store directory; each room is used through its own face.

    verify/    is a store sound: log, queues, index and small files against each other
    rebuild/   queues and index made again from the log
    salvage/   every whole record of a damaged log, in a new store
    load/      lines of JSON into a store, the inverse of a dump

All of them work on a directory; verify also beside a running store.
"""
