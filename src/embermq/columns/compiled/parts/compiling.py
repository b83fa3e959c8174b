"""How kernels are compiled and where the compiled code is kept.

numba caches by the source file of the decorated function alone: a changed constant or inlined function of
another module would go unnoticed. So the cache directory is named after a digest of all sources that matter.
NUMBA_CACHE_DIR, when set, is respected (the digest is still appended). numba's own settings stay as they are
for everybody else in the process.
"""

import hashlib
import os
import platform
import stat
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numba.core.cgutils
import numba.core.config
import numba.core.types
import numba.extending

F = TypeVar("F", bound=Callable[..., Any])

# numba is typed here and there, and differently in each version: to us it is Any, in this one place.
intrinsic: Any = numba.extending.intrinsic
types: Any = numba.core.types
cgutils: Any = numba.core.cgutils
_njit: Any = numba.njit
_config: Any = numba.core.config

# Without numba's runtime (_nrt) arrays inside a kernel are not counted: counting is an atomic operation for each part
# an array is handed to, and keeps LLVM from seeing that nothing else changes. A kernel that allocates (an array, a
# list) does not compile then, and none may give an array back: it is the caller who brings the memory.
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "boundscheck": False,
    "fastmath": False,
    "_nrt": False,
}


def _sources_digest() -> str:
    kernels = Path(__file__).parent.parent
    digest = hashlib.sha256()
    columns, package = kernels.parent, kernels.parent.parent
    plain = (*sorted((columns / "plain").glob("*.py")), columns / "rows.py", *sorted((package / "format").glob("*.py")))
    model = (package / "model" / name for name in ("flags.py", "hosts.py", "message.py", "properties.py"))
    for path in (*sorted(kernels.rglob("*.py")), *plain, *model):
        digest.update(str(path.relative_to(package)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _is_usable(directory: Path) -> bool:
    """Compiled code is loaded from here and run: no other user may be able to put any."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.stat()
    except OSError:
        return False
    own = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return own and not found.st_mode & stat.S_IWOTH and os.access(directory, os.W_OK | os.X_OK)


def _choose_cache_directory() -> str:
    name = f"kernels-{_sources_digest()}-py{platform.python_version()}-numba{numba.__version__}"
    if _config.CACHE_DIR:
        return str(Path(_config.CACHE_DIR) / name)
    roots = []
    if os.environ.get("XDG_CACHE_HOME"):
        roots.append(Path(os.environ["XDG_CACHE_HOME"]) / "embermq")
    try:
        roots.append(Path.home() / ".cache" / "embermq")
    except RuntimeError:  # No home: a bare container user.
        pass
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    roots.append(Path(tempfile.gettempdir()) / f"embermq-{user}")
    for root in roots:
        if root.is_absolute() and _is_usable(root) and _is_usable(root / name):
            return str(root / name)
    return tempfile.mkdtemp(prefix="embermq-kernels-")


_setting_borrowed = threading.Lock()
CACHE_DIRECTORY = _choose_cache_directory()


def kernel(signature: str, *, nogil: bool = True) -> Callable[[F], F]:
    """Compile now, for exactly these types, and keep the result in the cache.

    Short kernels keep the GIL: giving it away and asking for it again can cost far more than they take.
    """
    assert signature.startswith(("void(", "int64(", "UniTuple(int64,")), f"a kernel gives numbers back: {signature}"

    def compile_now(function: F) -> F:
        # Two threads may import two kernels at once, and the setting belongs to the whole process.
        with _setting_borrowed:
            before, _config.CACHE_DIR = _config.CACHE_DIR, CACHE_DIRECTORY
            try:
                compiled: F = _njit(signature, cache=True, **{**_OPTIONS, "nogil": nogil})(function)
            finally:
                _config.CACHE_DIR = before
        return compiled

    return compile_now


def inlined(function: F) -> F:
    """A part of a kernel: compiled with each kernel that uses it."""
    compiled: F = _njit(**_OPTIONS)(function)
    return compiled


# Types of arguments, for signatures. Where a read-only array is expected, a writable one is accepted.
READ_BYTES = "Array(uint8, 1, 'C', readonly=True)"
BYTES = "uint8[::1]"
READ_I64 = "Array(int64, 1, 'C', readonly=True)"
I64 = "int64[::1]"
READ_ROWS = "Array(int64, 2, 'C', readonly=True)"
ROWS = "int64[:, ::1]"
