"""Requests whose answer has to wait for something: a disk, a name server, a client. The loop's thread.

A handler of such a request is a coroutine function. It runs as a task, and what it returns is the answer; what goes
wrong in it is an answer as well, as for every other handler. The number of tasks is bounded.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from embermq.errors import EmberError
from embermq.remoting import BODY_BYTES_MAX, Call, Reply, ResponseCode, Row, request_name
from embermq.settings import BrokerSettings

log = logging.getLogger(__name__)

LateHandler = Callable[[Call[Any]], Awaitable[Reply]]


class Later:
    """The requests that are being answered."""

    def __init__(self, loop: asyncio.AbstractEventLoop, settings: Callable[[], BrokerSettings]) -> None:
        self._loop, self._settings = loop, settings
        self.refused = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def row(
        self,
        code: int,
        header: type[msgspec.Struct],
        handler: LateHandler,
        note: str = "",
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> Row:
        """The row of a request with a coroutine function for a handler."""

        def begin(call: Call[Any]) -> Reply | None:
            if len(self._tasks) >= self._settings().late_requests_max:
                self.refused += 1
                return Reply(ResponseCode.SYSTEM_BUSY, f"{request_name(code)}: too many requests wait for their answer")
            task = self._loop.create_task(_answer(call, handler))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return None

        return Row(code, header, begin, note=note, body_bytes_max=body_bytes_max)

    async def end(self) -> None:
        """Give up what is still under way: the connections are closed."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _answer(call: Call[Any], handler: LateHandler) -> None:
    name = request_name(call.request.code)
    try:
        reply = await handler(call)
    except EmberError as problem:
        reply = Reply(ResponseCode.SYSTEM_ERROR, str(problem))
    except OSError as problem:
        log.error("event=request_failed request=%s reason=%r", name, str(problem))
        reply = Reply(ResponseCode.SYSTEM_ERROR, f"{name}: {problem}")
    except Exception:
        log.exception("event=handler_failed request=%s peer=%s", name, call.peer.host)
        reply = Reply(ResponseCode.SYSTEM_ERROR, f"{name} failed in the server; its log says why")
    call.answer(reply)
