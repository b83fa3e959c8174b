"""How far the scrub is: `embermq.scrub.json`. A round may take longer than a process runs, so it goes on.

    position         records below this physical offset were compared in the round that is under way
    round_began_ms   when that round began; 0: none is under way
    finished_ms      when the last whole round was finished; 0: never
    findings         how many things were wrong in the round under way, or in the last one if none is
    healed           how many of them were repaired
    rounds           whole rounds ever
    damages          [start, end] of damaged ranges of the log that were reported, so that each is reported once
    bytes_per_second how fast the scrub reads the log
    crc              CRC-32 of this object's JSON with crc 0

A file that cannot be read begins a new round and is no reason to refuse to start. The scrub writes; opening, `info` and
`top` read.
"""

import zlib
from pathlib import Path

import msgspec

from embermq.files import Files
from embermq.store.layout.directory import SCRUB_STATE_FILE


class ScrubState(msgspec.Struct, frozen=True):
    """Where the scrub is, and what it found."""

    position: int = 0
    round_began_ms: int = 0
    finished_ms: int = 0
    findings: int = 0
    healed: int = 0
    rounds: int = 0
    damages: list[tuple[int, int]] = []
    bytes_per_second: int = 0
    version: int = 1
    crc: int = 0


def load_scrub_state(files: Files, root: Path) -> ScrubState:
    """The state of the scrub of the store at `root`; that of a store that was never compared if there is none."""
    path = root / SCRUB_STATE_FILE
    try:
        if not files.exists(path):
            return ScrubState()
        found = msgspec.json.decode(files.read_all(path), type=ScrubState)
    except (msgspec.DecodeError, UnicodeDecodeError, OSError):
        return ScrubState()
    return found if found.version == 1 and found.crc == _crc_of(found) else ScrubState()


def save_scrub_state(files: Files, root: Path, state: ScrubState) -> None:
    """Write it down, durably."""
    files.replace_file(root / SCRUB_STATE_FILE, msgspec.json.encode(msgspec.structs.replace(state, crc=_crc_of(state))))


def _crc_of(state: ScrubState) -> int:
    return zlib.crc32(msgspec.json.encode(msgspec.structs.replace(state, crc=0)))
