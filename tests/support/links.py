"""Directories with links in them: what lies where, and files that must stay as they are."""

import os
from pathlib import Path

CANARY = b"not made by a store; never to be touched\n"


def listing(*roots: Path) -> dict[str, tuple[str, bytes]]:
    """Every path below, what it is, and its bytes or where it leads; links are not followed."""
    found: dict[str, tuple[str, bytes]] = {}
    for root in roots:
        for folder, folders, files in os.walk(root):
            for name in [*folders, *files]:
                path = Path(folder) / name
                if path.is_symlink():
                    found[str(path)] = "link", os.readlink(path).encode()
                elif path.is_dir():
                    found[str(path)] = "directory", b""
                else:
                    found[str(path)] = "file", path.read_bytes()
    return found


def put_canary(path: Path) -> Path:
    """A file of somebody else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(CANARY)
    return path


def move_behind_link(path: Path, target: Path) -> None:
    """Make `path` a link to `target`, where all that was there goes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.rename(target)
    else:
        target.mkdir()
    path.symlink_to(target)
