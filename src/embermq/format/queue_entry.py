"""Consume-queue entry: where one message of a queue lies in the commit log.

    at  size  field
     0     8  physical offset        signed, big-endian
     8     4  record size in bytes
    12     8  tag code               Java hash of the tag, due time of a delayed message, or extension address

Entry n of a queue starts at byte 20 * n of the concatenation of its files.
"""

import struct

import numpy as np

ENTRY = struct.Struct(">qiq")
ENTRY_BYTES = 20
ENTRY_DTYPE = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tag_code", ">i8")])
assert ENTRY.size == ENTRY_DTYPE.itemsize == ENTRY_BYTES

# Fills a queue's first file before its first real entry, when the queue does not begin at 0.
BLANK_SIZE = 0x7FFF_FFFF
