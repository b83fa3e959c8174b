"""What a pull consumer has read and not handed out, by queue. The loop's thread only.

arrived     into the buffer of its queue
hand_out    taken from the buffers, queue by queue in turn; still counted as cached
confirm     finished: it counts for the next commit
put_back    handed out and not used: the next to be handed out again
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from embermq.client.consume.handle.retries import as_handled
from embermq.client.consume.queues.reader import PulledQueue
from embermq.client.consume.queues.readers import Readers
from embermq.client.message_queue import MessageQueue
from embermq.client.received import ReceivedMessage


class PullBuffers:
    """Messages between the readers and the caller."""

    commits_on_pull = False

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._namespace = readers.instance.settings.namespace
        self._buffers: dict[MessageQueue, tuple[PulledQueue, deque[ReceivedMessage]]] = {}
        self._turn: deque[MessageQueue] = deque()  # queues whose buffer is not empty
        self._has_some = asyncio.Event()

    # -- what the readers bring ----------------------------------------------------------------------------------

    def arrived(self, reader: PulledQueue, messages: list[ReceivedMessage]) -> None:
        known = self._buffers.get(reader.queue)
        if known is None or known[0] is not reader:
            self._forget(reader.queue)
            known = self._buffers[reader.queue] = (reader, deque())
        if not known[1]:
            self._turn.append(reader.queue)
        known[1].extend(as_handled(messages, self._namespace))
        self._has_some.set()

    def passed(self, reader: PulledQueue) -> None:
        if not len(reader.process):
            self._note_position(reader)

    def woken(self, reader: PulledQueue) -> None:
        pass

    async def ended(self, reader: PulledQueue) -> None:
        known = self._buffers.get(reader.queue)
        if known is not None and known[0] is reader:
            self._forget(reader.queue)

    # -- what the caller does ------------------------------------------------------------------------------------

    async def wait(self, seconds: float | None) -> bool:
        """Until there is a message; False if there is none after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._has_some.wait()
        except TimeoutError:
            return False
        return True

    def hand_out(self, most: int, topic: str | None = None) -> list[ReceivedMessage]:
        """Up to so many messages, of one topic if it is given (as the user knows it)."""
        found: list[ReceivedMessage] = []
        for _ in range(len(self._turn)):
            queue = self._turn[0]
            _reader, buffer = self._buffers[queue]
            if topic is not None and buffer[0].topic != topic:
                self._turn.rotate(-1)
                continue
            found += [buffer.popleft() for _ in range(min(most - len(found), len(buffer)))]
            if buffer:
                self._turn.rotate(-1)
            else:
                self._turn.popleft()
            if len(found) == most:
                break
        if not self._turn or (topic is not None and not found):
            self._has_some.clear()  # The next arrival sets it again.
        return found

    def confirm(self, messages: Sequence[ReceivedMessage]) -> None:
        """These were used."""
        touched: dict[MessageQueue, list[int]] = {}
        for message in messages:
            touched.setdefault(message.queue, []).append(message.queue_offset)
        for queue, offsets in touched.items():
            known = self._buffers.get(queue)
            if known is not None and not known[0].is_dropped:
                known[0].process.finish(offsets)
                self._note_position(known[0])
                known[0].has_room_again()

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """These were not used: they come first the next time."""
        for message in reversed(messages):
            known = self._buffers.get(message.queue)
            if known is None or known[0].is_dropped:
                continue
            if not known[1]:
                self._turn.appendleft(message.queue)
            known[1].appendleft(message)
            self._has_some.set()

    def seek(self, reader: PulledQueue, offset: int) -> None:
        self._forget(reader.queue)
        reader.seek(offset)
        self._note_position(reader)

    def _note_position(self, reader: PulledQueue) -> None:
        offset = reader.process.committable
        if offset is not None and not reader.is_dropped:
            self._readers.positions[reader.queue] = offset

    def _forget(self, queue: MessageQueue) -> None:
        if self._buffers.pop(queue, None) is not None and queue in self._turn:
            self._turn.remove(queue)
