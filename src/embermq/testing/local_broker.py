"""A broker for a test: a broker and a name server in this process, on free ports, with a store of their own.

    with broker() as b:
        producer = Producer(name_server=b.name_server, group="shop")
        ...
        assert [message.body for message in b.sent("orders")] == [b"1", b"2"]

Any client reaches it, of this process or of another. Broker and name server have an asyncio loop on a thread each, so
a test may block. The time of day stands still until `b.clock.advance`; faults are switched on by methods.
"""

import dataclasses
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from embermq.clock import Clock
from embermq.errors import EmberError, SettingsError
from embermq.model.message import StoredMessage
from embermq.model.names import is_retry_topic
from embermq.namesrv import NameServer
from embermq.settings import BrokerSettings, KernelUse, NamesrvSettings, StoreSettings
from embermq.store import MessageStore
from embermq.testing.broker_clock import BrokerClock
from embermq.testing.broker_run import BrokerRun
from embermq.testing.held_ports import LOOPBACK, HeldPorts
from embermq.testing.loop_thread import LoopThread

FETCH_MESSAGES = 1000
# Small files, and no kernels: a test sends few messages, and starts often. A message may have 4 MiB.
SMALL: dict[str, Any] = {
    "segment_bytes": 8 << 20,
    "queue_file_bytes": 20 * 1000,
    "index_slots_max": 1000,
    "index_entries_max": 4000,
    "prefault_bytes_max": 0,
    "disk_full_percent": 99,
    "disk_clean_percent": 99,
    "kernels": KernelUse.NEVER,
    "broker_ip": LOOPBACK,
}
_STORE_NAMES = frozenset(field.name for field in dataclasses.fields(StoreSettings))
_BROKER_NAMES = frozenset(field.name for field in dataclasses.fields(BrokerSettings))
_GIVEN_HERE = frozenset(("root", "listen_port", "listen_address", "broker_ip", "name_servers"))


class LocalBroker:
    """A running broker, made by `broker`. One thread at a time."""

    def __init__(
        self,
        root: Path,
        store: StoreSettings,
        settings: BrokerSettings,
        clock: Clock | None,
        hooks: Sequence[object],
    ) -> None:
        self._root, self._store_settings, self._settings, self._hooks = root, store, settings, hooks
        self._is_disk_full = False
        self._run: BrokerRun | None = None
        self.name_server = settings.name_servers[0]
        self._manual = BrokerClock() if clock is None else None
        self._clock: Clock = clock or self._manual or BrokerClock()
        if self._manual is not None:
            self._manual.moved = self._time_passed
        self.address = f"{LOOPBACK}:{store.listen_port}"
        self.restart()

    @property
    def _running(self) -> BrokerRun:
        if self._run is None:
            raise EmberError(f"the broker at {self.address} was killed; restart() it first")
        return self._run

    @property
    def store(self) -> MessageStore:
        """The store behind the broker; another object after a restart."""
        return self._running.store

    @property
    def clock(self) -> BrokerClock:
        """The time of day, which stands still: `clock.advance(s=10)`."""
        if self._manual is None:
            raise EmberError("this broker was made with a clock of its own; move that one")
        return self._manual

    def _time_passed(self) -> None:
        if self._run is not None:
            self._run.time_passed()

    # -- what there is -----------------------------------------------------------------------------------------

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Make a topic, known to the name server when this returns. Topics are also made by the first message."""
        run = self._running

        async def create() -> None:
            config = run.broker.topics.ensure(topic, queues)
            if config is None:
                raise EmberError(f"there is no room for the topic {topic}: emberMaxNames, or what a registration holds")
            await run.broker.topics_announced()

        run.loop.run(create())

    def sent(self, topic: str) -> list[StoredMessage]:
        """Every message of a topic, in the order they were stored; those that wait for their time not yet."""
        store = self.store
        store.wait_for_dispatch()
        queue_ids = store.topics().get(topic, [])
        return _in_log_order(queue for queue_id in queue_ids for queue in _messages(store, topic, queue_id))

    def offsets(self, group: str) -> dict[tuple[str, int], int]:
        """What a group has committed: by topic and queue, the offset of the message it wants next."""
        committed = self._running.broker.offsets
        return {
            (topic, queue_id): offset
            for topic in committed.topics_of(group)
            for queue_id, offset in committed.of_group(group, topic).items()
        }

    def committed(self, group: str, topic: str | None = None) -> list[StoredMessage]:
        """The messages a group is done with: those before its committed offsets, in the order they were stored.

        Of all its topics but its retry topic, unless one is named.
        """
        store = self.store
        store.wait_for_dispatch()
        return _in_log_order(
            message
            for (name, queue_id), offset in self.offsets(group).items()
            if (name == topic if topic is not None else not is_retry_topic(name))
            for message in _messages(store, name, queue_id)
            if message.queue_offset < offset
        )

    # -- faults --------------------------------------------------------------------------------------------------

    def fail_next_fsync(self) -> None:
        """Let the next sync of the log fail. The store then refuses appends until `kill_and_restart`, because the
        state of the disk is unknown."""
        self._running.files.fail("sync", path_contains="commitlog")

    def disk_full(self, full: bool = True) -> None:
        """Let the disk be full: sends are refused. With False there is room again, and they are taken."""
        self._is_disk_full = full
        self._running.fill_disk(full)

    def drop_connections(self) -> None:
        """Cut every connection to the broker, without an answer to what is under way; new ones are accepted."""
        self._running.drop_connections()

    def pause(self) -> None:
        """Stand still: connections are made and stay open, and nothing is answered until `resume`."""
        self._running.loop.pause()

    def resume(self) -> None:
        """Go on after `pause`, with everything that came in meanwhile."""
        self._running.loop.resume()

    def kill(self) -> None:
        """As kill -9 does: connections are cut, nothing is answered or saved. The name server goes on."""
        run, self._run = self._running, None
        run.kill()

    def restart(self) -> None:
        """After `kill`: the store is recovered, and the same ports are listened on."""
        if self._run is None:
            self._run = BrokerRun(
                self._root,
                self._store_settings,
                self._settings,
                self._clock,
                self._hooks,
                is_disk_full=self._is_disk_full,
            )

    def kill_and_restart(self) -> None:
        """Both. Every acknowledged message is there; offsets that were committed in the last seconds may not be, and
        the messages come again, as after a kill of a real broker."""
        self.kill()
        self.restart()

    def stop(self) -> None:
        """In good order; also after a kill."""
        run, self._run = self._run, None
        if run is not None:
            run.stop()


@contextmanager
def broker(
    *,
    topics: Mapping[str, int] | None = None,
    name_server: str | None = None,
    clock: Clock | None = None,
    hooks: Sequence[object] = (),
    path: Path | None = None,
    **settings: Any,
) -> Iterator[LocalBroker]:
    """A broker that takes requests; gone at the end of the block, with its store.

    `topics`: made before anything else, with their number of queues. `name_server`: register there instead of starting
    one. `clock`: instead of one that stands still. `path`: keep the store there instead of removing it. The rest are
    settings of the broker and of its store, by their Python names: `broker(flush="SYNC_FLUSH")`.
    """
    in_store, in_broker = _split(settings)
    with ExitStack() as stack:
        if path is None:
            path = Path(tempfile.mkdtemp(prefix="embermq-broker-"))
            stack.callback(shutil.rmtree, path, ignore_errors=True)
        if name_server is None:
            name_server = _start_name_server(path / "namesrv", stack)
        with_broker = BrokerSettings(
            **({"fast_port": False} | in_broker), listen_address=LOOPBACK, name_servers=(name_server,)
        )
        ports = HeldPorts(*([-2] if with_broker.fast_port else []))
        stack.callback(ports.release)
        with_store = StoreSettings(**(SMALL | in_store), listen_port=ports.port)
        running = LocalBroker(path / "store", with_store, with_broker, clock, hooks)
        stack.callback(running.stop)
        for topic, queues in (topics or {}).items():
            running.create_topic(topic, queues)
        yield running


def _split(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of the store, and of the broker; SettingsError for a name that is neither's, or not for a test."""
    for name in settings:
        if name not in _STORE_NAMES | _BROKER_NAMES or name in _GIVEN_HERE:
            reason = "is set by the test's broker itself" if name in _GIVEN_HERE else "is no setting"
            raise SettingsError(f"{name} {reason}; docs/settings.md lists the settings and their Python names")
    in_store = {name: value for name, value in settings.items() if name in _STORE_NAMES}
    return in_store, {name: value for name, value in settings.items() if name in _BROKER_NAMES}


def _start_name_server(place: Path, stack: ExitStack) -> str:
    """A name server on a loop of its own: it goes on while the broker stands still or is dead."""
    settings = NamesrvSettings(kv_config_path=place / "kvConfig.json", config_store_path=place / "namesrv.properties")
    loop = LoopThread("embermq-test-namesrv")
    stack.callback(loop.stop)
    server = loop.call(lambda: NameServer(settings))
    address = loop.run(server.start(LOOPBACK, 0))
    stack.callback(lambda: loop.run(server.stop()))
    return str(address)


def _messages(store: MessageStore, topic: str, queue_id: int) -> Iterator[StoredMessage]:
    at, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    while at < end:
        outcome = store.fetch(topic, queue_id, at, FETCH_MESSAGES)
        yield from outcome.messages
        if outcome.next_offset <= at:
            return
        at = outcome.next_offset


def _in_log_order(messages: Iterator[StoredMessage]) -> list[StoredMessage]:
    return sorted(messages, key=lambda message: message.physical_offset)
