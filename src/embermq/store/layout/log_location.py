"""Where the log of a store lies, for those who look from outside: `broker.conf` in its directory may say elsewhere.

Opening a store comes with its settings. With a directory alone there is only what lies there: `commitlog` in it,
or the directories that storePathCommitLog and readOnlyCommitLogStorePaths of a `broker.conf` in it name. A file that
cannot be read or parsed says nothing. A caller that knows of a broker.conf elsewhere uses ConfiguredFiles, and all code
that gets these files follows it. Reads only. Any thread.
"""

from pathlib import Path

from embermq.files import WHOLE_BYTES_MAX, Files, RealFiles
from embermq.settings.java_properties import PropertiesSyntaxError, parse_properties
from embermq.store.layout import directory

BROKER_CONF = "broker.conf"
_WRITTEN, _READ = "storePathCommitLog", "readOnlyCommitLogStorePaths"


class ConfiguredFiles(RealFiles):
    """The disk, with a broker.conf in the directory of one store that is not really there. Can be pickled."""

    __slots__ = ("_conf", "_root")

    def __init__(self, root: Path, conf: bytes) -> None:
        """`root` with its links resolved."""
        self._root, self._conf = root, conf

    def exists(self, path: Path) -> bool:
        return self._is_conf(path) or super().exists(path)

    def read_all(self, path: Path, limit: int = WHOLE_BYTES_MAX) -> bytes:
        return self._conf if self._is_conf(path) else super().read_all(path, limit)

    def _is_conf(self, path: Path) -> bool:
        return path.name == BROKER_CONF and path.parent.resolve() == self._root


def log_places(files: Files, root: Path) -> tuple[Path, ...]:
    """Every directory that may hold files of the log, the one in use among them."""
    written, read = places_said(files, root)
    return (*(written or (root / directory.COMMIT_LOG,)), *read)


def places_said(files: Files, root: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Log directories that are written to and those that are only read, as broker.conf says; none if it does not."""
    path = root / BROKER_CONF
    try:
        text = files.read_all(path).decode("utf-8") if files.exists(path) else ""
        said = {entry.key: entry.value for entry in parse_properties(text)}
    except (OSError, UnicodeDecodeError, PropertiesSyntaxError):
        return (), ()
    return _paths(said.get(_WRITTEN, "")), _paths(said.get(_READ, ""))


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(Path(part.strip()) for part in text.split(",") if part.strip())
