"""Packs the folders of golden stores into this directory: `python tests/golden/pack.py SOURCE`.

SOURCE holds one folder per store: `manifest.json`, and `store/` (and `after/`) or a ready `store.tar.xz`.
The same input gives the same bytes: names sorted, owners and modes fixed, times left to the manifest.
Run by hand when a store is added; tests only read what lies here (tests/support/golden.py).
"""

import io
import lzma
import shutil
import sys
import tarfile
from pathlib import Path

TREES = ("store", "after")


def archive(folder: Path) -> bytes:
    """One tar of the folder's trees, compressed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        present = [folder / tree for tree in TREES if (folder / tree).is_dir()]
        for path in [path for tree in present for path in sorted([tree, *tree.rglob("*")])]:
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.mtime = 0
            if path.is_dir():
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            else:
                data = path.read_bytes()
                entry.size, entry.mode = len(data), 0o644
                tar.addfile(entry, io.BytesIO(data))
    return compress(buffer.getvalue())


def compress(data: bytes) -> bytes:
    return lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)


def pack(source: Path, target: Path) -> None:
    for manifest in sorted(source.glob("*/manifest.json")):
        folder = target / manifest.parent.name
        folder.mkdir(exist_ok=True)
        (folder / "manifest.json.xz").write_bytes(compress(manifest.read_bytes()))
        ready = manifest.parent / "store.tar.xz"
        if ready.exists():
            shutil.copyfile(ready, folder / ready.name)
        elif (manifest.parent / "store").is_dir():
            (folder / ready.name).write_bytes(archive(manifest.parent))


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(__file__).parent)
