"""The index proof: `embermq.index.json`, what of the index is known to be durable.

Index entries are stored into a mapped file in the order of the log, slots all over it; after a crash any
page of it may be old. The proof says how far each file was when it was last synced. Recovery cuts the
newest file back to that, computes its slots again from its entries, and indexes the rest from the log.

    position   keys of records below this physical offset are in the files
    state      IndexFiles.state() then
    crc        CRC-32 of this object's JSON with crc 0 and without what follows
    checksums  by file name: the first block, the end in bytes, the CRC-32 of each block (checksums.py), in base64
    checksums_crc  CRC-32 of the JSON of these; an earlier version of EmberMQ ignores both

Checksums are of entries that do not change any more, and of all bytes of full files. At a clean close the newest file
has them of all its bytes too; they hold until the store is opened for writing.
"""

import zlib
from pathlib import Path
from typing import Any

import msgspec

from embermq.clock import SystemClock
from embermq.files import Checksums, Files
from embermq.store.index.index_files import IndexFiles
from embermq.store.layout.directory import INDEX, INDEX_PROOF_FILE


class IndexProof(msgspec.Struct, frozen=True):
    position: int
    state: dict[str, Any]
    crc: int = 0
    checksums: dict[str, Checksums] = {}
    checksums_crc: int = 0

    @property
    def file_count(self) -> int:
        return len(self.state.get("files", ()))

    def is_behind(self, state: dict[str, Any]) -> bool:
        """Does `state` have every file of this proof, with at least as many entries?"""
        counts = {row[0]: row[1] for row in state.get("files", ())}
        return all(counts.get(row[0], 0) >= row[1] for row in self.state.get("files", ()))

    def state_of_full_files(self) -> dict[str, Any]:
        """The state without the newest file: the others have not changed since, and were synced."""
        return {**self.state, "files": list(self.state.get("files", ()))[:-1]}

    @property
    def full_until_ms(self) -> int:
        """Store time of the newest record in a file that is full, and so will not change any more."""
        rows = self.state.get("files", ())
        return int(rows[-2][3]) if len(rows) > 1 else 0


def load_index_proof(files: Files, root: Path) -> IndexProof | None:
    """The proof, or None if there is none that can be read."""
    path = root / INDEX_PROOF_FILE
    if not files.exists(path):
        return None
    try:
        proof = msgspec.json.decode(files.read_all(path), type=IndexProof)
    except (msgspec.DecodeError, UnicodeDecodeError, OSError):
        return None
    if proof.crc != _crc_of(proof):
        return None
    is_sound = proof.checksums_crc == _checksums_crc(proof)
    return proof if is_sound else msgspec.structs.replace(proof, checksums={}, checksums_crc=0)


def _crc_of(proof: IndexProof) -> int:
    return zlib.crc32(msgspec.json.encode({"position": proof.position, "state": proof.state, "crc": 0}))


def _checksums_crc(proof: IndexProof) -> int:
    return zlib.crc32(msgspec.json.encode(proof.checksums)) if proof.checksums else 0


def prove_index(files: Files, root: Path, index: IndexFiles, *, closing: bool = False) -> IndexProof:
    """Sync the index and write down what that made durable: what was there before the sync began."""
    position = index.position
    state = index.state()
    index.flush()
    proof = IndexProof(position, state, checksums=index.checksums(state, closing=closing))
    save_index_proof(files, root, proof)
    return proof


def save_index_proof(files: Files, root: Path, proof: IndexProof) -> None:
    """Write down what is known to be durable."""
    proof = msgspec.structs.replace(proof, crc=_crc_of(proof), checksums_crc=_checksums_crc(proof))
    files.replace_file(root / INDEX_PROOF_FILE, msgspec.json.encode(proof))


def prove_rebuilt_index(files: Files, root: Path, position: int, state: dict[str, Any]) -> None:
    """Write down what is known of an index that was made again and compared with the log, and is durable."""
    shape = state.get("slots_max", 0), state.get("entries_max", 0)
    checksums: dict[str, Checksums] = {}
    if min(shape) > 0:
        index = IndexFiles(root / INDEX, files, *shape, SystemClock(), read_only=True)
        index.load()
        index.trust()
        checksums = index.checksums(state, closing=True)
        index.close()
    save_index_proof(files, root, IndexProof(position, state, checksums=checksums))


def drop_index_proof(files: Files, root: Path) -> None:
    """The index is about to be made again: there is no proof of it until then."""
    if files.exists(root / INDEX_PROOF_FILE):
        files.remove(root / INDEX_PROOF_FILE)
        files.sync_directory(root)
