"""Appends in other forms than one message or a list: batches, columns and bytes, futures; and when they are answered.

Without SYNC_FLUSH a put is over when the writer has stored it. Under SYNC_FLUSH it goes on until the flusher has synced
it, and its time is recorded here, wait included. Any thread.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future

import msgspec

from embermq.errors import AppendRefused, again
from embermq.model.message import Message, MessageBatch, Receipt
from embermq.model.status import PutStatus
from embermq.store.append.flush import Waiter
from embermq.store.append.message_columns import MessageColumns
from embermq.store.append.packed import PackedBatch, PackedReceipts
from embermq.store.engine import Engine
from embermq.store.futures import settle


class Appends:
    """Appends to the store of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._access, self._writer = engine, engine.access, engine.writer
        self._sync, self._monotonic = engine.sync, engine.clock.monotonic

    def append_batch(self, batch: MessageBatch) -> Receipt:
        self._access.check_writable()
        began = self._monotonic()
        receipt, wait = self._writer.append_batch(batch)
        return self._engine.confirm([receipt], wait, began)[0] if self._sync else receipt

    def append_packed(self, batch: PackedBatch) -> PackedReceipts:
        self._access.check_writable()
        if not self._sync:
            return self._writer.append_packed(batch, None)
        flusher, began = self._engine.services.flusher, self._monotonic()
        receipts = self._writer.append_packed(batch, flusher)
        flusher.nudge()  # It begins before anyone waits.
        self._engine.stats.record_put(self._monotonic() - began, len(receipts))
        return receipts

    def append_columns(self, columns: MessageColumns) -> Sequence[Receipt]:
        self._access.check_writable()
        if not self._sync:
            return self._writer.append_columns(columns, None)
        began = self._monotonic()
        receipts = self._writer.append_columns(columns, self._engine.services.flusher)
        self._engine.stats.record_put(self._monotonic() - began, len(receipts))
        return receipts

    def append_unconfirmed(self, message: Message | MessageBatch) -> tuple[Receipt, int]:
        self._access.check_writable()
        began = self._monotonic()
        if isinstance(message, MessageBatch):
            receipt, wait = self._writer.append_batch(message)
        else:
            receipt, wait = self._writer.append(message)
        if self._sync:
            self._engine.services.flusher.nudge()  # It begins before anyone waits.
            self._engine.stats.record_put(self._monotonic() - began, receipt.message_count)
        elif not self._engine.promises_replica:
            return receipt, 0
        return receipt, receipt.physical_offset + receipt.size if wait else 0

    def when_durable(self, end: int, callback: Callable[[AppendRefused | TimeoutError | None], None]) -> None:
        self._access.check_writable()
        self._engine.services.flusher.when_durable(end, lambda waiter: callback(waiter.failure))

    def append_async(self, message: Message) -> "Future[Receipt]":
        self._access.check_writable()
        future: Future[Receipt] = Future()
        future.set_running_or_notify_cancel()  # What is stored cannot be called back.
        began = self._monotonic()
        receipt, wait = self._writer.append(message)
        if not (self._sync and wait):
            future.set_result(self._engine.confirm([receipt], wait, began)[0] if self._sync else receipt)
            return future

        def set_outcome(waiter: Waiter) -> None:
            self._engine.stats.record_put(self._monotonic() - began)
            if isinstance(waiter.failure, AppendRefused):
                future.set_exception(again(waiter.failure))
            elif waiter.failure is not None:
                future.set_result(msgspec.structs.replace(receipt, status=PutStatus.FLUSH_DISK_TIMEOUT))
            else:
                future.set_result(receipt)

        self._engine.services.flusher.when_durable(
            receipt.physical_offset + receipt.size, lambda waiter: settle(future, lambda: set_outcome(waiter))
        )
        return future
