"""Topics of a broker: those there are from the start, those made on first use, those an administrator makes.

Reads may come from any thread. Changes are made on the loop's thread or on a request's thread; the table itself is
safe for both. A change is saved soon after (`changed`), or at once by an administrator's request, before its answer.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from embermq.model.names import (
    BENCHMARK_TOPIC,
    DEFAULT_TOPIC,
    OFFSET_MOVED_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_PREFIX,
    SYSTEM_TOPICS,
    is_retry_topic,
    reply_topic,
)
from embermq.model.properties import OP_TOPIC, SCHEDULE_TOPIC
from embermq.settings import BrokerSettings
from embermq.store.tables import PERM_INHERIT, PERM_READ, PERM_WRITE, ConfigTable, DataVersion, TopicConfig

READ_WRITE = PERM_READ | PERM_WRITE
UNIT_FLAG, UNIT_SUBSCRIPTION_FLAG = 1, 2
SCHEDULE_QUEUES = 18
# A registration names all topics in one frame of 16 MiB at most: a broker with more could not register any more.
REGISTERED_BYTES_MAX = 15 << 20
# Queues that have no topic of the table: SCHEDULE_TOPIC_XXXX is made at the start, RocketMQ lists no op topic.
_UNLISTED = frozenset((SCHEDULE_TOPIC, OP_TOPIC))


class TopicTable:
    """The topic table, and the rules by which it grows."""

    def __init__(
        self, table: ConfigTable[str, TopicConfig], settings: Callable[[], BrokerSettings], changed: Callable[[], None]
    ) -> None:
        self._table, self._settings, self._changed = table, settings, changed
        self._built_in = self._made_at_start()
        # The file's entries win over the built-in ones, as in RocketMQ.
        self._table.put_all({name: config for name, config in self._built_in.items() if name not in table})
        self._registered_bytes = sum(map(_registered_bytes, table.entries()))
        self._unannounced: set[str] = set()
        self.refused = 0

    def _made_at_start(self) -> dict[str, TopicConfig]:
        settings = self._settings()
        cluster_perm = READ_WRITE | PERM_INHERIT if settings.cluster_topic else PERM_INHERIT
        broker_perm = READ_WRITE | PERM_INHERIT if settings.broker_topic else PERM_INHERIT
        made = [
            _topic(SELF_TEST_TOPIC, 1),
            _topic(BENCHMARK_TOPIC, 1024),
            _topic(settings.cluster_name, 16, cluster_perm),
            _topic(settings.broker_name, 1, broker_perm),
            _topic(OFFSET_MOVED_TOPIC, 1),
            _topic(SCHEDULE_TOPIC, SCHEDULE_QUEUES),
            _topic(reply_topic(settings.cluster_name), 1),
        ]
        if settings.auto_create_topics:
            made.append(_topic(DEFAULT_TOPIC, settings.default_topic_queues, READ_WRITE | PERM_INHERIT))
        if settings.trace_topic:
            made.append(_topic(settings.trace_topic_name, 1))
        return {config.topic_name: config for config in made}

    # -- reading ---------------------------------------------------------------------------------------------

    @property
    def version(self) -> DataVersion:
        return self._table.version

    def find(self, topic: str) -> TopicConfig | None:
        return self._table.get(topic)

    @property
    def has_room(self) -> bool:
        """Whether one more may be made. It counts as refused if not."""
        if len(self._table) < self._settings().names_max and self._registered_bytes < REGISTERED_BYTES_MAX:
            return True
        self.refused += 1
        return False

    def all(self) -> dict[str, TopicConfig]:
        return self._table.entries()

    def document(self) -> str:
        """The table as its file holds it."""
        return self._table.text()

    def is_system(self, topic: str) -> bool:
        """Whether an administrator may neither make nor delete it."""
        return topic in SYSTEM_TOPICS or topic in self._built_in or topic.startswith(SYSTEM_PREFIX)

    def system_topics(self) -> list[str]:
        return sorted(SYSTEM_TOPICS | self._built_in.keys())

    # -- growing ---------------------------------------------------------------------------------------------

    def make_on_send(self, topic: str, after: str, queues: int, *, unit_mode: bool) -> TopicConfig | None:
        """A topic for its first message, made after the topic `after`; None if that is not allowed."""
        if not self.has_room:
            return None
        model = self._table.get(after)
        if model is not None and after == DEFAULT_TOPIC and not self._settings().auto_create_topics:
            model = replace(model, perm=READ_WRITE)
        sys_flag = (UNIT_SUBSCRIPTION_FLAG if is_retry_topic(topic) else UNIT_FLAG) if unit_mode else 0
        if model is None or not model.is_inherited:
            if not is_retry_topic(topic):
                return None
            return self.ensure(topic, 1, sys_flag=sys_flag)
        number = max(0, min(queues, model.write_queue_nums))
        made = TopicConfig(
            topic,
            number,
            number,
            model.perm & ~PERM_INHERIT,
            model.topic_filter_type,
            sys_flag,
        )
        return self._keep(made)

    def ensure(self, topic: str, queues: int, perm: int = READ_WRITE, *, sys_flag: int = 0) -> TopicConfig | None:
        """The topic, made if there is none; None if there are too many already."""
        found = self._table.get(topic)
        if found is not None:
            return found
        if not self.has_room:
            return None
        return self._keep(TopicConfig(topic, queues, queues, perm, topic_sys_flag=sys_flag))

    def put(self, config: TopicConfig) -> None:
        """Set a topic's whole configuration."""
        self._keep(config)

    def remove(self, topic: str) -> bool:
        removed = self._table.remove(topic) is not None
        if removed:
            self._registered_bytes -= _registered_bytes(topic)
            self._changed()
        return removed

    def take_unannounced(self) -> list[TopicConfig]:
        """The topics that were made or changed since the last time."""
        names = []
        while self._unannounced:  # Other threads may add to it.
            names.append(self._unannounced.pop())
        return [config for name in names if (config := self._table.get(name)) is not None]

    def take_order_config(self, ordered: Mapping[str, str]) -> None:
        """What name servers say of ordered topics: those they name are, the others are not."""
        for topic, config in self._table.entries().items():
            if config.order != (topic in ordered):
                self._table.put(topic, replace(config, order=topic in ordered))
                self._changed()

    def adopt(self, queues: Mapping[str, list[int]]) -> list[str]:
        """Make the topics that have queues in the store and are not in the table; which ones.

        The table is derived: losing its file never hides messages.
        """
        lost = [name for name in queues if name not in self._table and name not in _UNLISTED and queues[name]]
        for name in lost:
            number = max(queues[name]) + 1
            self._keep(TopicConfig(name, number, number, READ_WRITE))
        return lost

    def take_all(self, configs: Mapping[str, TopicConfig], version: DataVersion) -> None:
        """On a slave: make the table that of its master, under its version."""
        before = self._table.entries()
        self._table.assign(configs, version)
        self._registered_bytes = sum(map(_registered_bytes, configs))
        self._unannounced |= {name for name, config in configs.items() if before.get(name) != config}
        self._changed()

    def save(self) -> bool:
        """Write the table if it changed. Any thread; OSError."""
        return self._table.save()

    def _keep(self, config: TopicConfig) -> TopicConfig:
        if config.topic_name not in self._table:
            self._registered_bytes += _registered_bytes(config.topic_name)
        self._table.put(config.topic_name, config)
        self._unannounced.add(config.topic_name)
        self._changed()
        return config


def _registered_bytes(name: str) -> int:
    """What a topic takes in a registration: its name twice, and numbers."""
    return 2 * len(name.encode()) + 150


def _topic(name: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
    return TopicConfig(name, queues, queues, perm)
