"""A file system through which a reader looks, with something done before one of its calls: whatever another process can
do between any two looks of a reader."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from embermq.files import Files, OpenFile

_FILE_CALLS = {"pread", "map", "data_end"}


class InterruptedFiles:
    """Passes every call on to `inner`; before call number `at` (from 1 on) it calls `action`; with
    `again`, before every multiple of it."""

    def __init__(self, inner: Files, at: int, action: Callable[[], object], again: bool) -> None:
        self._inner, self._at, self._action, self._again = inner, at, action, again
        self.calls: list[str] = []
        self._is_acting = False

    @classmethod
    def around(
        cls, inner: Files, at: int = 0, action: Callable[[], object] = lambda: None, *, again: bool = False
    ) -> "tuple[Files, InterruptedFiles]":
        """One, as `Files` and as itself."""
        one = cls(inner, at, action, again)
        return cast(Files, one), one

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.count(name, args[0] if args else None)
            answer = call(*args, **kwargs)
            return _InterruptedFile(self, answer) if name == "open" else answer

        return counted

    def count(self, name: str, path: object) -> None:
        if self._is_acting:
            return
        self.calls.append(f"{name} {Path(str(path)).name}")
        number = len(self.calls)
        if number == self._at or (self._again and number % self._at == 0):
            self._is_acting = True
            try:
                self._action()
            finally:
                self._is_acting = False


class _InterruptedFile:
    def __init__(self, files: InterruptedFiles, file: OpenFile) -> None:
        self._files, self._file = files, file

    def __getattr__(self, name: str) -> Any:
        if name in _FILE_CALLS:
            self._files.count(name, self._file.path)
        return getattr(self._file, name)
