"""The kernels of a server: loaded before it answers, or by a thread of their own while it does. Any thread.

Importing numba and the kernels takes half a second of the interpreter on a quiet machine, and some 100 MB. So an idle
server does not load them, and no request waits for the import: a caller for which kernels would pay (choosing.py)
starts the load, and uses the plain form meanwhile.
"""

import logging
import threading
from importlib import import_module

from embermq.columns.choosing import SERVER_KERNELS, enter_server, leave_server, loading_ahead

log = logging.getLogger(__name__)

STOP_SECONDS = 5.0


class ServerKernels:
    """Those of one server, from `enter` to `stop`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def load(self) -> None:
        """Load everything now. Blocks."""
        with loading_ahead():
            for name in SERVER_KERNELS:
                if self._is_stopped:
                    return
                import_module(f"embermq.columns.compiled.{name}")

    def enter(self) -> None:
        """The server begins to answer."""
        enter_server(self.load_soon)

    def load_soon(self) -> None:
        """Begin to load, if that has not begun."""
        with self._lock:
            if self._thread is None and not self._is_stopped:
                self._thread = threading.Thread(target=self._load, name="embermq-kernels", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Load nothing more, and wait a moment for the module that is being loaded. Not longer: where it is compiled
        first, on a busy machine, that may take minutes."""
        with self._lock:
            self._is_stopped = True
        leave_server(self.load_soon)
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def _load(self) -> None:
        try:
            self.load()
        except Exception:
            log.exception("event=kernels_failed meaning='everything is done by the plain forms, more slowly'")
