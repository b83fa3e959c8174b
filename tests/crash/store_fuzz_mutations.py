"""Random damage to the files of a store, as disks, people and other programs do it.

A `Mutator` changes a round's directory (store_fuzz_truth.STORE and OUTSIDE in it) and says what it did. Links are
relative, so that a copy of the directory has its own.

    bytes       zeros, random bytes or flipped bits over a byte, a few, a page or a whole file; cut; extended; emptied
    names       removed, swapped with another file, copied under another name, strays
    kinds       a directory, pipe, link, or link to a device in the place of a file; a file, pipe or link in the place
                of a directory

What the format cannot notice is undone: a record whose body, lengths and place still agree, but not its time, host,
flags, properties or queue, is no damage to anybody (tests/crash/test_bit_flips.py has these).
"""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from embermq.format.frame import Frame, Padding, decode
from tests.crash.store_fuzz_truth import OUTSIDE, STORE, Truth

CANARY = "canary"
LOG = "commitlog"
_RANGES = (1, 1, 8, 64, 512, 4096, 4096, 1 << 20)
_DIRECTORIES = ("consumequeue", "index", "config", "commitlog", "quarantine", "consumequeue_ext")


class Mutator:
    """Changes one round's directory."""

    def __init__(self, world: Path, truth: Truth, source: random.Random) -> None:
        self.world, self.root, self.truth, self.source = world, world / STORE, truth, source
        self.outside = world / OUTSIDE
        self.done: list[str] = []
        self._make_canaries()

    def run(self, count: int) -> list[str]:
        """Do so many; what was done."""
        for _ in range(count):
            try:
                self.done.append(self._one())
            except (OSError, shutil.SameFileError) as problem:  # What an earlier one left is in the way.
                self.done.append(f"(not done: {problem})")
        self.undone = self._undo_unnoticeable()
        return self.done

    def _make_canaries(self) -> None:
        directory = self.outside / CANARY
        directory.mkdir(parents=True)
        for name in ("notes.txt", "data.bin"):
            (directory / name).write_bytes(f"unrelated: {name}\n".encode() * 300)
        (directory / "sub").mkdir()
        (directory / "sub" / "inner.txt").write_bytes(b"also unrelated")

    def _one(self) -> str:
        if self.source.random() < 0.08:
            return self._change_directory()
        if self.source.random() < 0.08:
            return self._stray()
        path = self._pick()
        way = self.source.choices(*zip(*self._ways(), strict=True))[0]
        return f"{path.relative_to(self.root)}: {way(path)}"

    def _ways(self) -> list[tuple[Callable[[Path], str], float]]:
        return [
            (self._overwrite, 8),
            (self._cut, 3),
            (self._extend, 2),
            (self._remove, 3),
            (self._empty, 2),
            (self._swap, 2),
            (self._duplicate, 2),
            (self._replace_by_directory, 1),
            (self._replace_by_pipe, 1),
            (self._replace_by_link, 1.5),
        ]

    # -- which file ------------------------------------------------------------------------------------------

    def _files(self) -> list[Path]:
        found = []
        for parent, directories, names in os.walk(self.root):
            directories.sort()
            found += [Path(parent, name) for name in sorted(names)]
        return [path for path in found if path.is_file() and not path.is_symlink()]

    def _pick(self) -> Path:
        """A file: of the log, of the queues, of the index, or a small one, about as often."""
        kinds: dict[str, list[Path]] = {}
        for path in self._files():
            first = path.relative_to(self.root).parts[0]
            kinds.setdefault(first if first in (LOG, "consumequeue", "index") else "small", []).append(path)
        weights = {LOG: 4, "consumequeue": 2, "index": 2, "small": 2}
        kind = self.source.choices(list(kinds), [weights[kind] for kind in kinds])[0]
        return self.source.choice(kinds[kind])

    # -- bytes -------------------------------------------------------------------------------------------------

    def _overwrite(self, path: Path) -> str:
        data = bytearray(path.read_bytes())
        if not data:
            return self._extend(path)
        used = len(data.rstrip(b"\0")) or len(data)
        length = self.source.choice(_RANGES)
        start = self.source.randrange(used) if self.source.random() < 0.9 else self.source.randrange(len(data))
        if length >= 512 and self.source.random() < 0.7:
            start -= start % length
        end = min(start + length, len(data))
        kind = self.source.choice(("zeros", "random bytes", "a flipped bit in each"))
        if kind == "zeros":
            data[start:end] = bytes(end - start)
        elif kind == "random bytes":
            data[start:end] = self.source.randbytes(end - start)
        else:
            for at in range(start, end):
                data[at] ^= 1 << self.source.randrange(8)
        self._write(path, bytes(data))
        return f"{kind} at {start}..{end} of {len(data)}"

    def _cut(self, path: Path) -> str:
        size = path.stat().st_size
        to = self.source.choice((size // 2, max(size - 1, 0), max(size - 20, 0), self.source.randrange(size + 1)))
        os.truncate(path, to)
        return f"cut from {size} to {to}"

    def _extend(self, path: Path) -> str:
        count = self.source.choice((1, 20, 100, 4096))
        data = self.source.choice((bytes(count), self.source.randbytes(count)))
        with path.open("ab") as file:
            file.write(data)
        return f"{count} {'zero' if not any(data) else 'random'} bytes more"

    def _empty(self, path: Path) -> str:
        os.truncate(path, 0)
        return "emptied"

    def _write(self, path: Path, data: bytes) -> None:
        """In place: a file that is overwritten keeps its inode."""
        with path.open("r+b") as file:
            file.write(data)
            file.truncate()

    # -- names -------------------------------------------------------------------------------------------------

    def _remove(self, path: Path) -> str:
        path.unlink()
        return "removed"

    def _swap(self, path: Path) -> str:
        near = [other for other in self._files() if other != path and other.parent == path.parent]
        other = self.source.choice(near) if near and self.source.random() < 0.7 else self._pick()
        if other == path:
            return self._remove(path)
        aside = path.with_name("swap.tmp")
        path.rename(aside)
        other.rename(path)
        aside.rename(other)
        return f"swapped with {other.relative_to(self.root)}"

    def _duplicate(self, path: Path) -> str:
        names = [path.name + ".bak", f"{self.source.randrange(10**6):020d}"]
        if path.name.isdigit():
            size = max(path.stat().st_size, 1)
            width, at = len(path.name), int(path.name)
            names += [f"{at + steps * size:0{width}d}" for steps in (1, -1, 2, 40) if at + steps * size >= 0]
        near = [other.name for other in self._files() if other.parent == path.parent and other != path]
        target = path.with_name(self.source.choice(names + near[:3]))
        shutil.copy(path, target)
        return f"copied to {target.name}"

    def _stray(self) -> str:
        places = [Path(parent) for parent, _, _ in os.walk(self.root)]
        parent = self.source.choice(sorted(places))
        name = self.source.choice(("notes.txt", "00000000000000000007", "999", ".hidden", "core", "x" * 200, "ü"))
        path = parent / name
        if path.exists() or path.is_symlink():
            return "(nothing)"
        kind = self.source.choice(("file", "empty file", "directory", "full directory", "pipe", "link"))
        if kind.endswith("directory"):
            path.mkdir()
            if kind.startswith("full"):
                (path / "inner").write_bytes(b"inner")
                (path / "0").mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "link":
            self._link(path, self.outside / CANARY)
        else:
            path.write_bytes(self.source.randbytes(0 if kind.startswith("empty") else 777))
        return f"stray {kind}: {path.relative_to(self.root)}"

    # -- kinds -------------------------------------------------------------------------------------------------

    def _replace_by_directory(self, path: Path) -> str:
        path.unlink()
        path.mkdir()
        if self.source.random() < 0.5:
            (path / "inner").write_bytes(b"inner")
        return "a directory in its place"

    def _replace_by_pipe(self, path: Path) -> str:
        path.unlink()
        os.mkfifo(path)
        return "a pipe in its place"

    def _replace_by_link(self, path: Path) -> str:
        kind = self.source.choice(("canary", "moved", "dangling", "loop", "device", "directory"))
        moved = self.outside / f"moved{len(self.done)}"
        if kind == "moved":
            path.rename(moved)
        else:
            path.unlink()
        match kind:
            case "canary":
                self._link(path, self.outside / CANARY / "notes.txt")
            case "moved":
                self._link(path, moved)
            case "dangling":
                self._link(path, self.outside / "nothing")
            case "loop":
                path.symlink_to(path.name)
            case "directory":
                self._link(path, self.outside / CANARY)
            case _:
                path.symlink_to("/dev/zero")
        return f"a link in its place ({kind})"

    def _link(self, path: Path, target: Path) -> None:
        path.symlink_to(os.path.relpath(target, path.parent))

    def _change_directory(self) -> str:
        names = [name for name in _DIRECTORIES if (self.root / name).is_dir() and not (self.root / name).is_symlink()]
        path = self.root / self.source.choice(names)
        if path.name in ("consumequeue", "consumequeue_ext") and self.source.random() < 0.6:
            below = [Path(parent) for parent, _, _ in os.walk(path) if Path(parent) != path]
            path = self.source.choice(sorted(below)) if below else path
        kind = self.source.choice(("removed", "file", "pipe", "moved", "canary", "emptied"))
        moved = self.outside / f"moved{len(self.done)}"
        if kind in ("moved", "removed", "file", "pipe", "canary"):
            path.rename(moved)
        match kind:
            case "removed":
                shutil.rmtree(moved)
            case "emptied":
                shutil.rmtree(path)
                path.mkdir()
            case "file":
                path.write_bytes(b"a file")
            case "pipe":
                os.mkfifo(path)
            case "moved":
                (moved / "unrelated.txt").write_bytes(b"unrelated")
                self._link(path, moved)
            case _:
                self._link(path, self.outside / CANARY)
        what = {"moved": "a link to where it was moved", "canary": "a link to unrelated files"}.get(kind, kind)
        return f"directory {path.relative_to(self.root)}: {what}"

    # -- what the format cannot notice ---------------------------------------------------------------------------

    def _undo_unnoticeable(self) -> int:
        """Give records back their bytes that are changed and still look whole; how many there were."""
        size, undone = self.truth.settings.segment_bytes, 0
        for start in sorted({one.start - one.start % size for one in self.truth.records}):
            path = self.root / LOG / f"{start:020d}"
            if path.is_symlink() or not path.is_file():
                continue
            data = bytearray(path.read_bytes())
            count = self._restore_records(data, start, start + size)
            if count:
                self._write(path, bytes(data))
                undone += count
        return undone

    def _restore_records(self, data: bytearray, start: int, end: int) -> int:
        restored = 0
        for one in self.truth.records:
            at = one.start - start
            if not start <= one.start < end or data[at : at + len(one.raw)] == one.raw or at >= len(data):
                continue
            as_read = bytes(data).ljust(end - start, b"\0")  # A file that was cut gets its length back.
            found = decode(memoryview(as_read), at, len(as_read), physical_offset=one.start, check_crc=True)
            if isinstance(found, Frame | Padding):
                data[at : at + len(one.raw)] = one.raw
                restored += 1
        return restored
