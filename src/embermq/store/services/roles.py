"""What a store is in a replicated group, and how it becomes something else while it is open.

    master -> slave   appends are refused, after the one under way; delayed delivery stops; raw bytes are taken
    slave -> master   raw bytes are refused; the log is flushed and queues and index catch up with it; the next
                      offset of each queue is what the queue says; appends are taken and delayed delivery starts

A change that cannot be completed (queues that do not catch up) leaves the store a slave. The role is not written down:
the settings say what a store is when it is opened. Any thread; changes take turns.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from embermq.errors import AppendRefused, ReplicaMissing, StoreError
from embermq.files import Files
from embermq.settings import BrokerRole, StoreSettings
from embermq.store.append.put_lock import Refusal
from embermq.store.append.raw import RawAppends
from embermq.store.append.writer import Writer
from embermq.store.layout.kept_offsets import load_kept_offsets, raised_offsets
from embermq.store.log.commit_log import CommitLog
from embermq.store.queues.consume_queues import ConsumeQueues
from embermq.store.services.delayed import DelayedMessages
from embermq.store.services.dispatch import Dispatcher
from embermq.store.services.timers import Timers

log = logging.getLogger(__name__)

CATCH_UP_SECONDS = 60.0


class Roles:
    """The role of one running store."""

    def __init__(
        self,
        root: Path,
        files: Files,
        settings: StoreSettings,
        commit_log: CommitLog,
        writer: Writer,
        raw: RawAppends,
        dispatcher: Dispatcher,
        queues: ConsumeQueues | None,
        flush_log: Callable[[], int],
        delivering: Sequence[DelayedMessages | Timers],
        *,
        replicated: bool,
    ) -> None:
        self._root, self._files, self._log = root, files, commit_log
        self._writer, self._raw, self._dispatcher, self._queues = writer, raw, dispatcher, queues
        self._flush_log, self._delivering = flush_log, delivering
        self._may_promise_replica = replicated or settings.allow_unreplicated
        self._one_at_a_time = threading.Lock()
        self.role = settings.role
        if self.role is BrokerRole.SLAVE:
            self._refuse_appends()
            if queues is not None:
                raw.open()

    def change(self, role: BrokerRole) -> None:
        """Become `role`. StoreError if that cannot be done now; the store then is what it was."""
        with self._one_at_a_time:
            if role is self.role:
                return
            if role is BrokerRole.SYNC_MASTER and not self._may_promise_replica:
                raise ReplicaMissing(self._root)
            if role is BrokerRole.SLAVE:
                self._become_slave()
            elif self.role is BrokerRole.SLAVE:
                self._become_master()
            log.info("role changed from=%s to=%s physical_offset=%d", self.role, role, self._log.wrote_offset)
            self.role = role

    def next_offsets(self) -> dict[tuple[str, int], int]:
        """Where each queue goes on: of a slave, what its queues say."""
        known = self._writer.next_offsets()
        if self.role is BrokerRole.SLAVE:
            known |= {(topic, queue_id): offset for topic, queue_id, offset in self._derived_offsets()}
        return known

    def _refuse_appends(self) -> None:
        self._writer.refuse_while(Refusal.ROLE, AppendRefused("this store is a SLAVE; append to its master"))

    def _become_slave(self) -> None:
        if self._queues is None:
            raise StoreError("a store opened with dispatch=none cannot become a SLAVE; open it with dispatch=live")
        self._refuse_appends()
        for one in self._delivering:
            one.stop()
        self._raw.open()

    def _become_master(self) -> None:
        self._raw.close()
        try:
            self._catch_up()
        except BaseException:
            if self._queues is not None:
                self._raw.open()
            raise
        self._writer.adopt_derived_offsets(self._derived_offsets())
        self._writer.refuse_while(Refusal.ROLE, None)
        for one in self._delivering:
            one.load()
            one.start()

    def _catch_up(self) -> None:
        """Nothing comes any more: let queues and index have all of the log."""
        if self._queues is None:
            raise StoreError("a store opened with dispatch=none cannot change its role; open it with dispatch=live")
        self._flush_log()
        end = self._log.wrote_offset
        if not self._dispatcher.wait_for(end, CATCH_UP_SECONDS):
            reached = self._dispatcher.position
            raise StoreError(f"queues have reached {reached} of {end}; the store stays a SLAVE until they have all")

    def _derived_offsets(self) -> list[tuple[str, int, int]]:
        if self._queues is None:
            return []
        known = [(queue.topic, queue.queue_id, queue.max_offset) for queue in self._queues.all()]
        return raised_offsets(known, load_kept_offsets(self._files, self._root))
