"""An embedded store for a test, in a few words.

    builder = StoreBuilder(tmp_path / "store", clock=ManualClock(), segment_bytes=65536)
    with builder.open() as store:
        ...
    with builder.open(read_only=True) as again:
        ...

Files are small unless the test says otherwise: a test that needs a second log file should not have to
write a gigabyte. Names are those of StoreSettings.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from embermq.clock import Clock, SystemClock
from embermq.files import Files, RealFiles
from embermq.settings import StoreSettings

if TYPE_CHECKING:
    from embermq.store import MessageStore

SMALL: dict[str, Any] = {
    "segment_bytes": 1 << 20,
    "queue_file_bytes": 20 * 1000,
    "index_slots_max": 1000,
    "index_entries_max": 4000,
}


class StoreBuilder:
    """Opens the same store again and again, with the same clock, files and settings."""

    def __init__(self, root: Path, *, clock: Clock | None = None, files: Files | None = None, **settings: Any) -> None:
        self.root = root
        self.clock: Clock = clock or SystemClock()
        self.files: Files = files or RealFiles()
        self.settings = StoreSettings(**(SMALL | settings))

    def changed(self, **settings: Any) -> "StoreBuilder":
        """The same store with other settings."""
        builder = StoreBuilder(self.root, clock=self.clock, files=self.files)
        builder.settings = self.settings.replace(**settings)
        return builder

    def on(self, files: Files) -> "StoreBuilder":
        """The same store on another file system: what a crash left, for example."""
        builder = StoreBuilder(self.root, clock=self.clock, files=files)
        builder.settings = self.settings
        return builder

    def open(self, *, read_only: bool = False) -> "MessageStore":
        # Here and not above: the doubles are of use where no store is.
        from embermq.store import MessageStore

        return MessageStore.open(self.root, self.settings, read_only=read_only, clock=self.clock, files=self.files)
