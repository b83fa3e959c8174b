"""Which mounted file system a path lies on, for people: a full disk is known by its mount. Any thread."""

import os
from pathlib import Path


def mount_of(path: Path) -> Path:
    """The nearest directory at or above `path` where a file system is mounted."""
    place = Path(os.path.realpath(path))
    while not os.path.ismount(place) and place != place.parent:
        place = place.parent
    return place
