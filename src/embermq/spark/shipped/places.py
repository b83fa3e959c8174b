"""A place on any file system: a local directory, or what pyarrow (s3, gs, hdfs, abfs) or fsspec knows by its address.

An address may hold credentials; `shown` never does, and only that is put into errors. What a file system refuses is a
StorePathInvalid that names the object, a PlaceUnavailable if the same may work in a while (no answer, an answer of the
5xx kind); that something is not there is FileNotFoundError. Picklable: the receiver opens the file system again.
Driver and workers, any thread.
"""

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

import pyarrow as pa
from pyarrow import fs

from embermq.errors import OptionInvalid, PlaceUnavailable, StorePathInvalid

# These show an object under its name only when it is whole. Elsewhere it is written aside and renamed.
_PUTS_ARE_ATOMIC = {"s3", "gcs", "abfs"}
HALF = ".half"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_UNKNOWN = "Unrecognized filesystem type"  # as pyarrow says it
_SECRET = re.compile(r"key|secret|token|pass|cred|sig", re.IGNORECASE)
_NOISE = re.compile(r"\s*(\(Request ID: [^)]*\)|Detail: .*|\[errno \d+\].*)", re.DOTALL)


def is_address(text: str) -> bool:
    """Is this a URI, and not a path? `file:` is a path."""
    return _SCHEME.match(text) is not None and not text.lower().startswith("file:")


def shown(address: str) -> str:
    """An address without what may be secret: user and password, and all options."""
    if not is_address(address):
        return address
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


def without_secrets(text: str, address: str) -> str:
    """What a file system says about an address, without secrets."""
    text = text.replace(address, shown(address))
    parts = urlsplit(address)
    secrets = [parts.username, parts.password]
    secrets += [value for name, value in parse_qsl(parts.query) if _SECRET.search(name)]
    for secret in secrets:
        text = text.replace(secret, "***") if secret else text
    return text


class Place:
    """Objects below one address, by names with `/` in them."""

    def __init__(self, address: str) -> None:
        """OptionInvalid if no file system knows the address."""
        self.address, self.shown = address, shown(address)
        try:
            self._files, path = _resolve(address)
        except (ValueError, pa.ArrowException, OSError) as problem:
            reason = without_secrets(_reason(problem), address)
            raise OptionInvalid("path", f"this is no place for files: {reason}", value=self.shown) from None
        self._path = path.rstrip("/")

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Place, (self.address,)

    @property
    def is_local(self) -> bool:
        return str(self._files.type_name) == "local"

    def child(self, folder: str) -> "Place":
        """The place of a folder in here."""
        if not is_address(self.address):
            return Place(f"{self.address.rstrip('/')}/{folder}")
        address, question, options = self.address.partition("?")
        return Place(f"{address.rstrip('/')}/{quote(folder)}{question}{options}")

    def named(self, name: str) -> str:
        """For people: where an object is."""
        return f"{self.shown.rstrip('/')}/{name}"

    # -- reading -----------------------------------------------------------------------------------------------

    def size(self, name: str) -> int | None:
        """Bytes of an object; None if it is not there."""
        with self._naming(name):
            info = self._files.get_file_info(self._full(name))
        return int(info.size) if info.type == fs.FileType.File else None

    def open(self, name: str) -> pa.NativeFile:
        """An object to read from, by `read_at`. FileNotFoundError if it is not there."""
        with self._naming(name):
            return self._files.open_input_file(self._full(name))

    def read(self, name: str) -> bytes:
        with self._naming(name), self._files.open_input_file(self._full(name)) as file:
            return bytes(file.read())

    def read_at(self, file: pa.NativeFile, name: str, count: int, at: int) -> bytes:
        """Some bytes of an object that was opened."""
        with self._naming(name):
            return bytes(file.read_at(count, at))

    def objects(self, folder: str = "", *, recursive: bool = True) -> dict[str, int]:
        """Objects below a folder, by name from here on, with their sizes; none if there is no such folder."""
        return {name: size for name, size in self._entries(folder, recursive=recursive) if size is not None}

    def folders(self) -> list[str]:
        """Names of the folders in here."""
        return sorted(name for name, size in self._entries("", recursive=False) if size is None)

    def _entries(self, folder: str, *, recursive: bool) -> list[tuple[str, int | None]]:
        start = self._full(folder) if folder else self._path
        with self._naming(folder):
            found = self._files.get_file_info(fs.FileSelector(start, recursive=recursive, allow_not_found=True))
        cut = len(self._path.lstrip("/")) + 1 if self._path.strip("/") else 0
        return [
            (one.path.lstrip("/")[cut:].rstrip("/"), int(one.size) if one.type == fs.FileType.File else None)
            for one in found
        ]

    # -- writing -----------------------------------------------------------------------------------------------

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """An object of these bytes, which appears under its name when it is whole; durable on a local disk."""
        place = self._full(name)
        with self._naming(name):
            if self._files.type_name in _PUTS_ARE_ATOMIC:
                self._put(place, chunks)
                return
            folder = place.rpartition("/")[0]
            self._files.create_dir(folder, recursive=True)
            self._put(place + HALF, chunks)
            if self.is_local:
                _sync(place + HALF)
            self._files.move(place + HALF, place)
            if self.is_local:
                _sync(folder)

    def _put(self, place: str, chunks: Iterable[bytes]) -> None:
        with self._files.open_output_stream(place) as file:
            for chunk in chunks:
                file.write(chunk)

    def remove(self, name: str) -> None:
        """Fine if it is not there."""
        try:
            with self._naming(name):
                self._files.delete_file(self._full(name))
        except FileNotFoundError:
            pass

    # -- parts -------------------------------------------------------------------------------------------------

    def _full(self, name: str) -> str:
        return f"{self._path}/{name}"

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """What the file system refuses, with the name of the object and no more than a line."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as problem:
            kind = PlaceUnavailable if is_passing(problem) else StorePathInvalid
            raise kind(self.named(name), without_secrets(_reason(problem), self.address)) from None


@lru_cache(maxsize=16)
def _resolve(address: str) -> tuple[fs.FileSystem, str]:
    """The file system of an address, and the path on it; one for all who ask in this process."""
    if not is_address(address):
        path = urlsplit(address).path if address.lower().startswith("file:") else address
        return fs.LocalFileSystem(), str(Path(path).expanduser().absolute())
    try:
        files, path = fs.FileSystem.from_uri(address)
        return files, str(path)
    except pa.ArrowInvalid as problem:
        found = _by_fsspec(address) if _UNKNOWN in str(problem) else None
        if found is None:
            raise problem from None
        return found


def _by_fsspec(address: str) -> tuple[fs.FileSystem, str] | None:
    """The same through fsspec, if it is installed and knows the scheme."""
    try:
        import fsspec
    except ImportError:
        return None
    scheme = address.partition("://")[0]
    if scheme not in fsspec.available_protocols():
        return None
    try:
        inner, path = fsspec.core.url_to_fs(address)
    except ImportError as missing:
        raise ValueError(f"{scheme} needs a package that is not installed: {missing}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(inner)), str(path)


# As the clients of S3, GCS, ABFS and HDFS call what passes: no way there, no answer, too much to do, broken inside.
_PASSING = re.compile(
    r"NETWORK_CONNECTION|REQUEST_TIMEOUT|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|INTERNAL_ERROR|THROTTLING"
    r"|SlowDown|ServiceUnavailable|InternalError|RequestTimeout|ServerBusy|OperationTimedOut"
    r"|HTTP (status|response code)[: ]*(5\d\d|429|408)|timed? ?out|connection (was )?(reset|refused|closed|aborted)"
    r"|couldn't connect|temporar(y|ily)|try again|StandbyException|SafeMode",
    re.IGNORECASE,
)
_PASSING_NUMBERS = {
    errno.ETIMEDOUT,
    errno.ECONNRESET,
    errno.ECONNREFUSED,
    errno.ECONNABORTED,
    errno.EPIPE,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ENETDOWN,
    errno.EAGAIN,
    errno.EBUSY,
    errno.ESTALE,
}


def is_passing(problem: BaseException) -> bool:
    """May the same work in a while?"""
    if isinstance(problem, TimeoutError | ConnectionError):
        return True
    if isinstance(problem, OSError) and problem.errno is not None and problem.errno in _PASSING_NUMBERS:
        return True
    return _PASSING.search(str(problem)) is not None


def _reason(problem: BaseException) -> str:
    """The first line of what a file system says, without numbers that do not help."""
    strerror = getattr(problem, "strerror", None)
    text = _NOISE.sub("", str(problem).strip() or type(problem).__name__)
    return str(strerror or text.splitlines()[0]).strip(" .;:")


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
