"""One run of a broker in a test: from the opening of its store to an orderly stop, or to a kill.

A kill is what SIGKILL does to a process, inside of one that goes on: at one moment every connection is cut, no answer
leaves any more, and no thread of the store touches the disk again (FaultyFiles.kill). What was stored is left as it is,
in the page cache: nothing acknowledged is lost, the store was not closed, tables are as they were last saved.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from embermq.broker import Broker, open_store
from embermq.clock import Clock
from embermq.files import RealFiles
from embermq.settings import BrokerSettings, StoreSettings
from embermq.testing.faulty_files import FaultyFiles, Killed
from embermq.testing.loop_thread import LoopThread

log = logging.getLogger(__name__)

_hook_lock = threading.Lock()


class BrokerRun:
    """A broker that answers when the object is made. One thread at a time."""

    def __init__(
        self,
        root: Path,
        store: StoreSettings,
        settings: BrokerSettings,
        clock: Clock,
        hooks: Sequence[object] = (),
        *,
        is_disk_full: bool = False,
    ) -> None:
        self.files = FaultyFiles(RealFiles())
        self.loop = LoopThread("embermq-test-broker")
        try:
            self.store, filters = open_store(root, store, clock=clock, files=self.files)
            try:
                self.broker: Broker = self.loop.call(
                    lambda: Broker(settings, self.store, clock=clock, files=self.files, hooks=hooks, filters=filters)
                )
                self.loop.run(self.broker.start())
            except BaseException:
                self.store.close()
                raise
        except BaseException:
            self.loop.stop()
            raise
        if is_disk_full:
            self.fill_disk(True)

    @property
    def address(self) -> str:
        return self.broker.address

    def fill_disk(self, full: bool) -> None:
        self.files.fill(full)
        self.store.check_disk()

    def time_passed(self) -> None:
        """The clock was moved: deliver what is due, and check the transactions that are."""
        self.store.deliver_due()
        if not self.loop.is_paused:
            self.loop.run(self.broker.transactions.check())

    def drop_connections(self) -> None:
        self.loop.call(lambda: self.broker.server.drop_connections("dropped by a test"))

    # -- the end -----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """In good order: what waits is answered, tables are saved, the store is closed. Faults end first."""
        self.files.heal()
        self.loop.resume()
        try:
            self.loop.run(self.broker.stop())
        finally:
            try:
                self.store.close()
            finally:
                self.loop.stop()

    def kill(self) -> None:
        """At once. The store can be opened again afterwards, in this process too."""
        if not self.loop.is_paused:
            self.loop.pause()
        with _killed_threads_end_quietly():
            self.loop.resume(self._die)
            # The name servers see the connection of their broker closed, as the system does it for a dead process.
            self.loop.run(self.broker.abort())
            self.loop.stop()
            with suppress(Killed):
                self.store.close()

    def _die(self) -> None:
        """On the loop's thread, before anything else happens there."""
        self.files.kill()
        self.loop.loop.set_exception_handler(lambda _loop, context: log.debug("event=killed_in context=%r", context))
        self.broker.server.abort("the broker was killed by a test")


@contextmanager
def _killed_threads_end_quietly() -> Iterator[None]:
    """Threads of a killed broker end by Killed; that is nothing to report."""

    def hook(problem: threading.ExceptHookArgs) -> None:
        if not issubclass(problem.exc_type, Killed):
            before(problem)

    with _hook_lock:
        before, threading.excepthook = threading.excepthook, hook
        try:
            yield
        finally:
            threading.excepthook = before
