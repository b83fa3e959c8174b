"""Sender: drives the tries of messages over connections, by callbacks. The loop's thread only.

    sender.submit(outgoing, done)       done gets a SendResult or a ClientError, once

The usual send is one write and one callback, without a task: with hundreds in flight that is what counts. Where the
route or the connection is missing, a task gets it first. What is in flight is bounded in messages and bytes: more wait
in line, and a line that is too long is refused.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from embermq.client.calls import BrokerAddress, stored_of
from embermq.client.calls.sends import STATUSES, SendStatus
from embermq.client.instance import Instance
from embermq.client.message_queue import MessageQueue
from embermq.client.producing.attempts import Attempts, Try
from embermq.client.producing.hooks import SendContext, run_after, run_before
from embermq.client.producing.outgoing import Outgoing
from embermq.client.producing.queue_choice import FAILED_MS, LatencyFaults, QueueBy, QueueChoice, queue_for
from embermq.client.producing.results import SendResult
from embermq.client.producing.settings import ProducerSettings
from embermq.client.producing.traced_sends import TracedSends
from embermq.client.topic_route import TopicRoute
from embermq.errors import (
    BrokerUnreachable,
    ClientError,
    ConnectFailed,
    EmberError,
    RemotingError,
    RouteMissing,
    SendFailed,
)
from embermq.remoting import Command, request_name

log = logging.getLogger(__name__)

Done = Callable[[SendResult | ClientError], None]
WAITING_TIMES = 4  # so many times what may be in flight may wait in line
REFRESH_SECONDS = 1.0


class Job:
    """A message on its way."""

    __slots__ = ("attempts", "by", "code", "context", "done", "outgoing", "seconds")

    def __init__(
        self, outgoing: Outgoing, done: Done, by: QueueBy | MessageQueue | None, seconds: float, code: int | None
    ) -> None:
        self.outgoing, self.done, self.by, self.seconds, self.code = outgoing, done, by, seconds, code
        self.attempts: Attempts | None = None
        self.context: SendContext | None = None


class Sender:
    """The sends of one producer."""

    def __init__(self, instance: Instance, settings: ProducerSettings, tracer: TracedSends | None = None) -> None:
        self._instance, self._settings, self._tracer = instance, settings, tracer
        self._loop = asyncio.get_running_loop()
        self._choice = QueueChoice(LatencyFaults() if settings.latency_faults else None)
        self._queues: dict[str, tuple[TopicRoute, list[MessageQueue]]] = {}
        self._line: deque[Job] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refreshed: dict[str, float] = {}
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._has_hooks = bool(settings.hooks) or tracer is not None
        self._jobs: set[Job] = set()
        self.in_flight_bytes = 0

    @property
    def in_flight(self) -> int:
        return len(self._jobs)

    def submit(
        self,
        outgoing: Outgoing,
        done: Done,
        *,
        by: QueueBy | MessageQueue | None = None,
        seconds: float | None = None,
        code: int | None = None,
    ) -> None:
        """Send a message; `done` gets the outcome, now or later. `by` fixes its queue, `code` is another request."""
        job = Job(outgoing, done, by, self._settings.send_timeout if seconds is None else seconds, code)
        if self._has_room(job) and not self._line:
            self._begin(job)
        elif len(self._line) < self._settings.in_flight_max * WAITING_TIMES:
            self._line.append(job)
        else:
            reason = f"{len(self._line):,} messages wait already; await some of them first"
            done(SendFailed(outgoing.message.topic, (), reason))

    async def tell(self, outgoing: Outgoing, by: QueueBy | MessageQueue | None = None) -> None:
        """Send a message one-way: once, without asking what became of it."""
        queues = await self.queues(outgoing.wire.topic)
        now = self._loop.time()
        queue = self._fixed(by, queues, outgoing) or self._choice.choose(outgoing.wire.topic, queues, None, now)
        to = self._address(queue)
        outgoing.wire.queue_id = queue.queue_id
        context = self._context(outgoing, queue, to)
        await self._instance.caller.tell(to, outgoing.wire.command(), topic=outgoing.message.topic)
        if context is not None:
            run_after(self._settings.hooks, context)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues to which messages of a topic (with its namespace) may be sent; RouteMissing."""
        route = await self._instance.routes.route_to_send(topic, self._settings.new_topic_queues)
        queues = self._queues_of(route)
        if not queues:
            raise RouteMissing(
                topic, route_servers(self._instance), "no broker of it may be written to: check permissions and masters"
            )
        return queues

    async def drain(self, seconds: float) -> None:
        """Wait until nothing is in flight or in line any more, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._is_idle.wait()
        except TimeoutError:
            log.warning("event=producer_closed_early in_flight=%d waiting=%d", self.in_flight, len(self._line))

    def close(self) -> None:
        """What is in line is not sent, what is in flight not waited for."""
        for task in self._tasks:
            task.cancel()
        line, self._line = self._line, deque()
        for job in line:
            job.done(SendFailed(job.outgoing.message.topic, (), "the producer was closed"))
        for job in list(self._jobs):
            self._end(job, SendFailed(job.outgoing.message.topic, (), "the producer was closed before its answer came"))

    # -- the way of a message ----------------------------------------------------------------------------------

    def _has_room(self, job: Job) -> bool:
        return not self._jobs or (
            len(self._jobs) < self._settings.in_flight_max
            and self.in_flight_bytes + job.outgoing.size <= self._settings.in_flight_bytes_max
        )

    def _begin(self, job: Job) -> None:
        self._jobs.add(job)
        self.in_flight_bytes += job.outgoing.size
        self._is_idle.clear()
        route = self._instance.routes.find(job.outgoing.wire.topic)
        queues = self._queues_of(route) if route is not None else None
        if queues:
            self._start(job, queues)
        else:
            self._spawn(self._find_route(job))

    async def _find_route(self, job: Job) -> None:
        try:
            async with asyncio.timeout(job.seconds):
                queues = await self.queues(job.outgoing.wire.topic)
        except ClientError as problem:
            self._end(job, problem)
        except TimeoutError:
            self._end(job, SendFailed(job.outgoing.message.topic, (), f"no route within {job.seconds:g} s"))
        else:
            self._start(job, queues)

    def _start(self, job: Job, queues: list[MessageQueue]) -> None:
        topic, now = job.outgoing.wire.topic, self._loop.time()
        try:
            fixed = None if job.by is None else self._fixed(job.by, queues, job.outgoing)
        except EmberError as problem:
            self._end(job, problem if isinstance(problem, ClientError) else _as_client_error(problem))
            return
        job.attempts = attempts = Attempts(
            job.outgoing.message.topic,
            queues,
            lambda avoided, at: self._choice.choose(topic, queues, avoided, at),
            fixed=fixed,
            retries=self._settings.retries,
            now=now,
            seconds=job.seconds,
        )
        self._go(job, attempts.first(now))

    def _go(self, job: Job, step: Try) -> None:
        if step.pause:
            self._loop.call_later(step.pause, self._send, job, step)
        else:
            self._send(job, step)

    def _send(self, job: Job, step: Try) -> None:
        try:
            to = self._address(step.queue)
        except BrokerUnreachable as problem:
            self._failed(job, problem, None)
            return
        if self._instance.connector.find(to.address) is None:
            self._spawn(self._connect(job, step, to))
        else:
            self._write(job, step, to)

    async def _connect(self, job: Job, step: Try, to: BrokerAddress) -> None:
        try:
            async with asyncio.timeout(step.seconds):
                await self._instance.connector.link(to.address)
        except TimeoutError:
            self._failed(job, self._unreachable(job, to, "no connection in time", is_sent=False), None)
        except RemotingError as problem:
            self._failed(job, self._unreachable(job, to, str(problem), is_sent=False), None)
        else:
            self._write(job, step, to)

    def _write(self, job: Job, step: Try, to: BrokerAddress) -> None:
        wire = job.outgoing.wire
        wire.queue_id = step.queue.queue_id
        if self._has_hooks:
            self._before(job, step.queue, to)
        request = wire.command()
        if job.code is not None:
            request.code = job.code
        self._instance.caller.sign(request)
        began = self._loop.time()
        link = self._instance.connector.find(to.address)
        try:
            if link is None:
                raise ConnectFailed(to.address, "the connection was closed")
            link.call(request, step.seconds, lambda outcome: self._answered(job, step, to, began, outcome))
        except RemotingError as problem:
            self._failed(job, self._unreachable(job, to, str(problem), is_sent=False), None)

    def _answered(self, job: Job, step: Try, to: BrokerAddress, began: float, outcome: Command | RemotingError) -> None:
        if not isinstance(outcome, Command):
            self._failed(job, self._unreachable(job, to, str(outcome), is_sent=True), began)
            return
        topic = job.outgoing.message.topic
        try:
            stored = stored_of(to, job.code or job.outgoing.wire.command_code, outcome, topic)
        except ClientError as problem:
            self._failed(job, problem, began)
            return
        if self._choice.faults is not None:
            now = self._loop.time()
            self._choice.faults.sent(to.name, (now - began) * 1000, now)
        if stored.status is not SendStatus.SEND_OK and self._settings.retry_unless_ok and job.attempts is not None:
            reserved = _reserved(to, outcome, topic)
            if isinstance(next_step := job.attempts.failed(reserved, self._loop.time()), Try):
                self._go(job, next_step)
                return
        queue = step.queue
        if stored.queue_id != queue.queue_id or self._settings.namespace:
            queue = MessageQueue(self._instance.plain(queue.topic), to.name, stored.queue_id)
        result = SendResult(
            stored.status,
            job.outgoing.message_id,
            stored.offset_message_id,
            queue,
            stored.queue_offset,
            stored.transaction_id,
            stored.region,
        )
        if self._tracer is not None and job.context is not None:
            self._tracer.sent(job.context, result, stored.is_traced, self._loop.time() - began)
        self._end(job, result)

    def _failed(self, job: Job, error: ClientError, began: float | None) -> None:
        """A try failed: the next one, or the end."""
        attempts = job.attempts
        assert attempts is not None
        if job not in self._jobs:
            return
        now = self._loop.time()
        if isinstance(error, BrokerUnreachable):
            self._refresh_soon(job.outgoing.wire.topic, now)
        if self._choice.faults is not None and attempts.last is not None:
            self._choice.faults.sent(attempts.last.broker, FAILED_MS, now)
        step = attempts.failed(error, now)
        if isinstance(step, Try):
            self._go(job, step)
            return
        if self._tracer is not None and job.context is not None:
            self._tracer.sent(job.context, None, True, 0.0 if began is None else now - began)
        self._end(job, step)

    def _end(self, job: Job, outcome: SendResult | ClientError) -> None:
        if job not in self._jobs:
            return  # The producer was closed before.
        self._jobs.discard(job)
        self.in_flight_bytes -= job.outgoing.size
        if job.context is not None:
            if isinstance(outcome, SendResult):
                job.context.result = outcome
            else:
                job.context.error = outcome
            run_after(self._settings.hooks, job.context)
        while self._line and self._has_room(self._line[0]):
            self._begin(self._line.popleft())
        if not self._jobs and not self._line:
            self._is_idle.set()
        job.done(outcome)

    # -- parts -------------------------------------------------------------------------------------------------

    def _queues_of(self, route: TopicRoute) -> list[MessageQueue]:
        """Made once for each route that a name server gave."""
        known = self._queues.get(route.topic)
        if known is not None and known[0] is route:
            return known[1]
        queues = route.write_queues()
        self._queues[route.topic] = (route, queues)
        return queues

    def _fixed(
        self, by: QueueBy | MessageQueue | None, queues: list[MessageQueue], outgoing: Outgoing
    ) -> MessageQueue | None:
        if by is None or isinstance(by, MessageQueue):
            return by
        return queue_for(by, queues, outgoing.message)

    def _address(self, queue: MessageQueue) -> BrokerAddress:
        route = self._instance.routes.find(queue.topic)
        data = None if route is None else route.brokers.get(queue.broker)
        if data is None or data.master is None:
            reason = "it is in no route: it is gone, or has no master"
            raise BrokerUnreachable(queue.broker, "?", "SEND_MESSAGE_V2", reason, topic=queue.topic, is_sent=False)
        return BrokerAddress(queue.broker, data.master)

    def _unreachable(self, job: Job, to: BrokerAddress, reason: str, *, is_sent: bool) -> BrokerUnreachable:
        what = request_name(job.code or job.outgoing.wire.command_code)
        return BrokerUnreachable(to.name, to.address, what, reason, topic=job.outgoing.message.topic, is_sent=is_sent)

    def _before(self, job: Job, queue: MessageQueue, to: BrokerAddress) -> None:
        if job.context is None:
            job.context = self._context(job.outgoing, queue, to)
        elif job.attempts is not None:
            job.context.queue, job.context.address, job.context.tries = queue, to.address, job.attempts.count

    def _context(self, outgoing: Outgoing, queue: MessageQueue, to: BrokerAddress) -> SendContext | None:
        if not self._has_hooks:
            return None
        group = self._settings.group
        context = SendContext(group, outgoing.message, outgoing.message_id, queue, to.address, 1)
        run_before(self._settings.hooks, context)
        return context

    def _refresh_soon(self, topic: str, now: float) -> None:
        """Ask for the route again: brokers may have moved. Not more often than once a second."""
        if now - self._refreshed.get(topic, -REFRESH_SECONDS) >= REFRESH_SECONDS:
            self._refreshed[topic] = now
            self._spawn(self._instance.routes.refresh([topic]))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def route_servers(instance: Instance) -> tuple[str, ...]:
    return instance.routes.name_servers.addresses


def _as_client_error(problem: EmberError) -> ClientError:
    made = ClientError(str(problem))
    made.__cause__ = problem
    return made


def _reserved(to: BrokerAddress, answer: Command, topic: str) -> BrokerUnreachable:
    """Stored with a reservation, which the settings do not accept."""
    reason = f"it answered {STATUSES[answer.code]}"
    return BrokerUnreachable(to.name, to.address, "SEND_MESSAGE_V2", reason, topic=topic, is_sent=True)


__all__ = ["Done", "Sender"]
