"""Config tables: what a broker keeps beside the log, in RocketMQ's JSON files below config/.

    config_table.py        ConfigTable: a map in memory with a version, loaded and saved; TableFormat: how it lies there
    entry_codec.py         entries that are JSON objects, as dataclasses
    topics_and_groups.py   topics.json, subscriptionGroup.json
    offsets.py             consumerOffset.json, delayOffset.json, timerOffset.json
    filters.py             consumerFilter.json
    overview.py            all of them as a reader sees them

    topics = ConfigTable(files, root, TOPICS, clock)
    topics.load()
    topics.put("orders", TopicConfig("orders", read_queue_nums=8, write_queue_nums=8))
    topics.save()

A room of its own below layout: the tables know files and JSON, and nothing of a log. Other packages import from this
face, not from the modules behind it.
"""

from embermq.model.data_version import DataVersion
from embermq.store.tables.config_table import CONFIG, ConfigTable, TableFormat, load_entries
from embermq.store.tables.entry_codec import decode_entry, encode_entry
from embermq.store.tables.filters import FILTERS, ConsumerFilter, bloom_filter_data
from embermq.store.tables.offsets import CONSUMER_OFFSETS, DELAY_OFFSETS, TIMER_OFFSETS, TopicGroup, commit_offsets
from embermq.store.tables.overview import ConfigFile, ConsumerProgress, config_files, consumer_progress
from embermq.store.tables.topics_and_groups import (
    GROUPS,
    MULTI_TAG,
    PERM_INHERIT,
    PERM_PRIORITY,
    PERM_READ,
    PERM_WRITE,
    SINGLE_TAG,
    TOPICS,
    GroupConfig,
    TopicConfig,
)

__all__ = [
    "CONFIG",
    "CONSUMER_OFFSETS",
    "ConfigFile",
    "ConfigTable",
    "ConsumerFilter",
    "ConsumerProgress",
    "DELAY_OFFSETS",
    "DataVersion",
    "FILTERS",
    "GROUPS",
    "GroupConfig",
    "MULTI_TAG",
    "PERM_INHERIT",
    "PERM_PRIORITY",
    "PERM_READ",
    "PERM_WRITE",
    "SINGLE_TAG",
    "TIMER_OFFSETS",
    "TOPICS",
    "TableFormat",
    "TopicConfig",
    "TopicGroup",
    "bloom_filter_data",
    "commit_offsets",
    "config_files",
    "consumer_progress",
    "decode_entry",
    "encode_entry",
    "load_entries",
]
