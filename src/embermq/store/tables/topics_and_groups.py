"""topics.json and subscriptionGroup.json: what a broker knows of each topic and of each consumer group. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from embermq.store.tables.config_table import TableFormat
from embermq.store.tables.entry_codec import decode_objects, encode_objects

PERM_INHERIT, PERM_WRITE, PERM_READ, PERM_PRIORITY = 1, 2, 4, 8
SINGLE_TAG, MULTI_TAG = "SINGLE_TAG", "MULTI_TAG"


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic; the defaults are RocketMQ's."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: str = SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def is_writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)

    @property
    def is_inherited(self) -> bool:
        """Whether topics that are created on first use take their settings from this one."""
        return bool(self.perm & PERM_INHERIT)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One consumer group; the defaults are RocketMQ's."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    others: Mapping[str, Any] = field(default_factory=dict)


TOPICS: TableFormat[str, TopicConfig] = TableFormat(
    "topics.json", "topicConfigTable", decode_objects(TopicConfig, "topicName"), encode_objects, is_versioned=True
)
GROUPS: TableFormat[str, GroupConfig] = TableFormat(
    "subscriptionGroup.json",
    "subscriptionGroupTable",
    decode_objects(GroupConfig, "groupName"),
    encode_objects,
    is_versioned=True,
)
