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
from functools import partial
from typing import Any

from embermq.client.calls import BrokerAddress, stored_of
from embermq.client.calls.send_frames import encode_send
from embermq.client.calls.sends import STATUSES, SendStatus
from embermq.client.instance import Instance
from embermq.client.message_queue import MessageQueue
from embermq.client.produce.attempts import Attempts, Try
from embermq.client.produce.hooks import SendContext, run_after, run_before
from embermq.client.produce.outgoing import Outgoing
from embermq.client.produce.queue_choice import FAILED_MS, LatencyFaults, QueueBy, QueueChoice, queue_for
from embermq.client.produce.results import SendResult
from embermq.client.produce.settings import ProducerSettings
from embermq.client.produce.traced_sends import TracedSends
from embermq.client.topic_route import TopicRoute
from embermq.errors import (
    BrokerUnreachable,
    ClientError,
    EmberError,
    RemotingError,
    RouteMissing,
    SendFailed,
)
from embermq.remoting import Command, Link, request_name

log = logging.getLogger(__name__)

Done = Callable[[SendResult | ClientError], None]
WAITING_TIMES = 4  # so many times what may be in flight may wait in line
REFRESH_SECONDS = 1.0


class Job:
    """A message on its way: where the current try goes, and when it began."""

    __slots__ = (
        *("attempts", "began", "by", "code", "context", "deadline", "done", "outgoing", "queue", "seconds", "to"),
    )

    queue: MessageQueue
    to: BrokerAddress

    def __init__(
        self, outgoing: Outgoing, done: Done, by: QueueBy | MessageQueue | None, seconds: float, code: int | None
    ) -> None:
        self.outgoing, self.done, self.by, self.seconds, self.code = outgoing, done, by, seconds, code
        self.attempts: Attempts | None = None  # made when the first try fails
        self.context: SendContext | None = None
        self.began = self.deadline = 0.0


class _Targets:
    """What a route means to a sender."""

    __slots__ = ("addresses", "queues", "route")

    def __init__(self, route: TopicRoute) -> None:
        self.route = route
        self.queues = route.write_queues()
        masters = {name: data.master for name, data in route.brokers.items()}
        self.addresses = {name: BrokerAddress(name, master) for name, master in masters.items() if master is not None}


class Sender:
    """The sends of one producer."""

    def __init__(self, instance: Instance, settings: ProducerSettings, tracer: TracedSends | None = None) -> None:
        self._instance, self._settings, self._tracer = instance, settings, tracer
        self._loop = asyncio.get_running_loop()
        self._choice = QueueChoice(LatencyFaults() if settings.latency_faults else None)
        self._known: dict[str, _Targets] = {}
        self._line: deque[Job] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refreshed: dict[str, float] = {}
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._is_signed = settings.credentials is not None
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

    def next_place(self, topic: str) -> tuple[MessageQueue, BrokerAddress] | None:
        """The queue whose turn it is, and its broker; None if the route is not known yet. Any thread."""
        targets = self._targets(topic)
        if targets is None or not targets.queues:
            return None
        queue = self._choice.choose(topic, targets.queues, None, 0.0)
        to = targets.addresses.get(queue.broker)
        return None if to is None else (queue, to)

    def resume(
        self,
        outgoing: Outgoing,
        done: Done,
        queue: MessageQueue,
        to: BrokerAddress,
        deadline: float,
        error: ClientError,
    ) -> None:
        """Go on after a first try that was made elsewhere and failed."""
        job = Job(outgoing, done, None, self._settings.send_timeout, None)
        job.queue, job.to, job.deadline, job.began = queue, to, deadline, self._loop.time()
        self._jobs.add(job)
        self.in_flight_bytes += outgoing.size
        self._is_idle.clear()
        self._failed(job, error)

    async def tell(self, outgoing: Outgoing, by: QueueBy | MessageQueue | None = None) -> None:
        """Send a message one-way: once, without asking what became of it."""
        queues = await self.queues(outgoing.wire.topic)
        now = self._loop.time()
        queue = self._fixed(by, queues, outgoing) or self._choice.choose(outgoing.wire.topic, queues, None, now)
        targets = self._targets(queue.topic)
        to = None if targets is None else targets.addresses.get(queue.broker)
        if to is None:
            raise _not_in_route(queue)
        outgoing.wire.queue_id = queue.queue_id
        context = self._context(outgoing, queue, to)
        await self._instance.caller.tell(to, outgoing.wire.command(), topic=outgoing.message.topic)
        if context is not None:
            run_after(self._settings.hooks, context)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues to which messages of a topic (with its namespace) may be sent; RouteMissing."""
        await self._instance.routes.route_to_send(topic, self._settings.new_topic_queues)
        targets = self._targets(topic)
        if targets is None or not targets.queues:
            raise RouteMissing(
                topic, route_servers(self._instance), "no broker of it may be written to: check permissions and masters"
            )
        return targets.queues

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
        targets = self._targets(job.outgoing.wire.topic)
        if targets is not None and targets.queues:
            self._start(job, targets.queues)
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
        now = self._loop.time()
        job.deadline = now + job.seconds
        try:
            fixed = None if job.by is None else self._fixed(job.by, queues, job.outgoing)
        except EmberError as problem:
            self._end(job, problem if isinstance(problem, ClientError) else _as_client_error(problem))
            return
        job.queue = fixed or self._choice.choose(job.outgoing.wire.topic, queues, None, now)
        self._send(job, job.seconds)

    def _send(self, job: Job, seconds: float) -> None:
        """One try, at the queue of the job."""
        queue = job.queue
        targets = self._targets(queue.topic)
        to = None if targets is None else targets.addresses.get(queue.broker)
        if to is None:
            self._failed(job, _not_in_route(queue))
            return
        job.to = to
        link = self._instance.connector.find(to.address)
        if link is None:
            self._spawn(self._connect(job, seconds))
        else:
            self._write(job, seconds, link)

    async def _connect(self, job: Job, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                link = await self._instance.connector.link(job.to.address)
        except TimeoutError:
            self._failed(job, self._unreachable(job, "no connection in time", is_sent=False))
        except RemotingError as problem:
            self._failed(job, self._unreachable(job, str(problem), is_sent=False))
        else:
            self._write(job, seconds, link)

    def _write(self, job: Job, seconds: float, link: Link) -> None:
        wire = job.outgoing.wire
        wire.queue_id = job.queue.queue_id
        if self._has_hooks:
            self._before(job)
        job.began = self._loop.time()
        answered = partial(self._answered, job)
        try:
            if self._is_signed or job.code is not None:
                request = wire.command()
                request.code = job.code or request.code
                self._instance.caller.sign(request)
                link.call(request, seconds, answered)
            else:
                link.call_encoded(wire.command_code, partial(encode_send, wire), seconds, answered)
        except RemotingError as problem:
            self._failed(job, self._unreachable(job, str(problem), is_sent=False))

    def _answered(self, job: Job, outcome: Command | RemotingError) -> None:
        if not isinstance(outcome, Command):
            self._failed(job, self._unreachable(job, str(outcome), is_sent=True))
            return
        topic = job.outgoing.message.topic
        try:
            stored = stored_of(job.to, job.code or job.outgoing.wire.command_code, outcome, topic)
        except ClientError as problem:
            self._failed(job, problem)
            return
        if self._choice.faults is not None:
            now = self._loop.time()
            self._choice.faults.sent(job.to.name, (now - job.began) * 1000, now)
        if stored.status is not SendStatus.SEND_OK and self._settings.retry_unless_ok:
            step = self._attempts(job).failed(_reserved(job.to, outcome, topic), self._loop.time())
            if isinstance(step, Try):
                self._go(job, step)
                return
        queue = job.queue
        if stored.queue_id != queue.queue_id or self._settings.namespace:
            queue = MessageQueue(self._instance.plain(queue.topic), queue.broker, stored.queue_id)
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
            self._tracer.sent(job.context, result, stored.is_traced, self._loop.time() - job.began)
        self._end(job, result)

    def _failed(self, job: Job, error: ClientError) -> None:
        """A try failed: the next one, or the end."""
        if job not in self._jobs:
            return
        now = self._loop.time()
        if isinstance(error, BrokerUnreachable):
            self._refresh_soon(job.outgoing.wire.topic, now)
        if self._choice.faults is not None:
            self._choice.faults.sent(job.queue.broker, FAILED_MS, now)
        step = self._attempts(job).failed(error, now)
        if isinstance(step, Try):
            self._go(job, step)
            return
        if self._tracer is not None and job.context is not None:
            self._tracer.sent(job.context, None, True, now - job.began)
        self._end(job, step)

    def _attempts(self, job: Job) -> Attempts:
        if job.attempts is None:
            topic = job.outgoing.wire.topic

            def choose(avoided: str | None, now: float) -> MessageQueue:
                targets = self._targets(topic)
                if targets is None or not targets.queues:
                    return job.queue
                return self._choice.choose(topic, targets.queues, avoided, now)

            job.attempts = Attempts(
                job.outgoing.message.topic,
                job.queue,
                choose,
                is_fixed=job.by is not None,
                retries=self._settings.retries,
                deadline=job.deadline,
                seconds=job.seconds,
            )
        return job.attempts

    def _go(self, job: Job, step: Try) -> None:
        job.queue = step.queue
        if step.pause:
            self._loop.call_later(step.pause, self._send, job, step.seconds)
        else:
            self._send(job, step.seconds)

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

    def _targets(self, topic: str) -> _Targets | None:
        """Made once for each route that a name server gave; None if the topic is not known."""
        route = self._instance.routes.find(topic)
        known = self._known.get(topic)
        if known is not None and known.route is route:
            return known
        if route is None:
            return None
        made = self._known[topic] = _Targets(route)
        return made

    def _fixed(
        self, by: QueueBy | MessageQueue | None, queues: list[MessageQueue], outgoing: Outgoing
    ) -> MessageQueue | None:
        if by is None or isinstance(by, MessageQueue):
            return by
        return queue_for(by, queues, outgoing.message)

    def _unreachable(self, job: Job, reason: str, *, is_sent: bool) -> BrokerUnreachable:
        what = request_name(job.code or job.outgoing.wire.command_code)
        topic = job.outgoing.message.topic
        return BrokerUnreachable(job.to.name, job.to.address, what, reason, topic=topic, is_sent=is_sent)

    def _before(self, job: Job) -> None:
        if job.context is None:
            job.context = self._context(job.outgoing, job.queue, job.to)
        elif job.attempts is not None:
            job.context.queue, job.context.address = job.queue, job.to.address
            job.context.tries = job.attempts.count

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


def _not_in_route(queue: MessageQueue) -> BrokerUnreachable:
    reason = "it is in no route: it is gone, or has no master"
    return BrokerUnreachable(queue.broker, "?", "SEND_MESSAGE_V2", reason, topic=queue.topic, is_sent=False)


def _as_client_error(problem: EmberError) -> ClientError:
    made = ClientError(str(problem))
    made.__cause__ = problem
    return made


def _reserved(to: BrokerAddress, answer: Command, topic: str) -> BrokerUnreachable:
    """Stored with a reservation, which the settings do not accept."""
    reason = f"it answered {STATUSES[answer.code]}"
    return BrokerUnreachable(to.name, to.address, "SEND_MESSAGE_V2", reason, topic=topic, is_sent=True)


__all__ = ["Done", "Sender"]
