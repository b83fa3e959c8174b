"""The inventory: `embermq.inventory.json`, what a clean close left behind.

A clean start compares it with the directory. If everything is still there and as long as it was, only the
tail of the log needs to be read; if anything is missing or changed (a queue file was deleted, or
RocketMQ had the store open meanwhile), what is derived is derived again.
"""

import zlib
from pathlib import Path
from typing import Any

import msgspec

from embermq.files import Files

INVENTORY_FILE = "embermq.inventory.json"


class Inventory(msgspec.Struct, frozen=True):
    """What was there at the last clean close."""

    log_min: int
    log_max: int
    tail_mark: int  # A record begins here, a little before the end: a clean start reads from here on.
    segment_bytes: int
    checkpoint: str  # The three times as hexadecimal digits: RocketMQ changes them when it runs.
    dispatch: str
    queues: dict[str, Any]
    index: dict[str, Any]
    next_offsets: list[tuple[str, int, int]]
    version: int = 1
    crc: int = 0  # CRC-32 of this object's JSON with crc 0.


def load_inventory(files: Files, root: Path) -> Inventory | None:
    """The inventory of the store at `root`, or None if there is none that can be read."""
    path = root / INVENTORY_FILE
    if not files.exists(path):
        return None
    try:
        found = msgspec.json.decode(files.read_all(path), type=Inventory)
    except (msgspec.DecodeError, UnicodeDecodeError, OSError):
        return None
    return found if found.version == 1 and found.crc == _crc_of(found) else None


def _crc_of(inventory: Inventory) -> int:
    return zlib.crc32(msgspec.json.encode(msgspec.structs.replace(inventory, crc=0)))


def save_inventory(files: Files, root: Path, inventory: Inventory) -> None:
    inventory = msgspec.structs.replace(inventory, crc=_crc_of(inventory))
    files.replace_file(root / INVENTORY_FILE, msgspec.json.format(msgspec.json.encode(inventory), indent=1))
