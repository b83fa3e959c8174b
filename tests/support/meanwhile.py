"""A file system on which something happens between two calls: what a tool meets beside a store that goes on.

`Meanwhile` counts every call of a tool, to the file system and to its open files, and runs an action just before the
n-th one: retention takes files, a topic is deleted, the log grows. The action works on the disk itself and is not
counted. Only the first call that comes to n runs it, whatever thread that is on.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from embermq.files import Files, OpenFile, RealFiles

_COUNTED = frozenset(("list_directory", "exists", "stat", "open", "read_all", "usage", "identity"))
_COUNTED_OF_FILES = frozenset(("pread", "map"))


class Meanwhile:
    """`RealFiles`, with `action` just before call number `at` (from 1)."""

    def __init__(self, at: int, action: Callable[[], None]) -> None:
        self._inner, self._at, self._action = RealFiles(), at, action
        self._lock = threading.Lock()
        self.calls = 0
        self.what = ""  # The call that came after the action.

    @property
    def as_files(self) -> Files:
        return cast(Files, self)

    def count(self, name: str, path: Path) -> None:
        with self._lock:
            self.calls += 1
            if self.calls == self._at:
                self.what = f"{name} {path}"
                self._action()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in _COUNTED:
            return method

        def counted(path: Path, *args: Any) -> Any:
            self.count(name, path)
            found = method(path, *args)
            return _File(self, found) if name == "open" else found

        return counted


class _File:
    """An open file whose reads are counted."""

    def __init__(self, files: Meanwhile, inner: OpenFile) -> None:
        self._files, self._inner = files, inner

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in _COUNTED_OF_FILES:
            return method

        def counted(*args: Any, **options: Any) -> Any:
            self._files.count(name, self._inner.path)
            return method(*args, **options)

        return counted
