"""sysFlag: the bits a record carries about itself.

bit    mask   meaning
0      0x001  body is compressed
1      0x002  topic is MULTI_TAG
2-3    0x00C  transaction: 0 none, 4 prepared, 8 commit, C rollback
4      0x010  born host is IPv6       (always computed here, never taken from a caller)
5      0x020  store host is IPv6      (likewise)
6-7    0x0C0  inner batch (5.x only)
8-10   0x700  compression: 0 zlib (old clients), 1 LZ4, 2 Zstandard, 3 zlib
"""

COMPRESSED = 0x1
MULTI_TAG = 0x2
TRANSACTION_MASK = 0xC
PREPARED = 0x4
COMMIT = 0x8
ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
HOST_V6_MASK = BORN_HOST_V6 | STORE_HOST_V6
COMPRESSION_MASK = 0x700
COMPRESSION_LZ4 = 0x100
COMPRESSION_ZSTD = 0x200
COMPRESSION_ZLIB = 0x300


def has_index_entry(sys_flag: int) -> bool:
    """Keys of rolled-back messages are in no index."""
    return sys_flag & TRANSACTION_MASK != ROLLBACK


def has_queue_entry(sys_flag: int) -> bool:
    """Only plain and committed messages reach a queue; prepared and rolled-back ones never do."""
    return sys_flag & PREPARED == 0
