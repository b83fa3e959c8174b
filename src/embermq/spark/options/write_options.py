"""Every option of a write, as a table: name, default, what it means, where it counts. And their values, checked.

Options reach us from Spark as text, names in lower case. `parse` answers a WriteOptions or raises OptionInvalid, which
names the option and, for an unknown name, the nearest known one. Nothing is looked up on the disk but the file
that `storeConfig` names. Runs on the driver, in the Python process that plans; documents are made from WRITE_OPTIONS.
"""

import difflib
import glob
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from embermq.columns import is_system_topic
from embermq.errors import OptionInvalid, SettingsError
from embermq.settings.store_settings import NAMES, StoreSettings
from embermq.spark.options.access import ACCESS_OPTIONS, AS_NO_ONE, ClusterAccess, parse_access, refuse_access
from embermq.spark.options.values import (
    parse_addresses,
    parse_count,
    parse_duration_ms,
    parse_flag,
    parse_group,
    parse_text,
)

WriteScope = Literal["write", "batch", "stream"]

STAGING = "embermq.staging"
PRODUCER_GROUP = "embermq-spark"
SETTINGS_PREFIX = "settings."
QUEUES_MAX = 65_536
SYSTEM_TOPIC_REFUSED = "is a system topic: no consumer would see the messages, and a broker would act on them"
_LIKENESS = 0.6  # how much a wrong name must resemble a right one to be worth mentioning


@dataclass(frozen=True, slots=True)
class WriteOption:
    """One option: for `parse`, and for the documents."""

    name: str
    default: str
    meaning: str
    scope: WriteScope = "write"


WRITE_OPTIONS: tuple[WriteOption, ...] = (
    WriteOption("path", "", "Directory of the store, created if it does not exist. Set by `save` or `start`."),
    WriteOption(
        "nameServer",
        "",
        "Instead of a path: name servers of a running cluster, `host:port`, separated by `;`. Rows are sent to its"
        " brokers ([spark-wire.md](spark-wire.md#writing)). Of the options for stores, only `topic`, `uniqueKeys` and"
        " `writeId` apply.",
    ),
    WriteOption("producerGroup", PRODUCER_GROUP, "With nameServer: producer group of the rows."),
    WriteOption(
        "brokerTimeout", "60s", "With nameServer: how long requests to a broker that does not answer are retried."
    ),
    *(WriteOption(name, default, meaning) for name, default, meaning in ACCESS_OPTIONS),
    WriteOption("topic", "", "Topic of every row, not a system topic. Takes precedence over the column `topic`."),
    WriteOption(
        "queues",
        "4",
        "Number of queues over which rows are distributed: by the hash of `shardingKey`, as in Java producers, or"
        " round-robin. Does not apply to rows with a `queueId`.",
    ),
    WriteOption(
        "uniqueKeys",
        "true",
        "Whether every row without the property UNIQ_KEY gets one. It is derived from query, batch, partition and row;"
        " clients show it as message id.",
    ),
    WriteOption(
        "writeId",
        "",
        "Name of this write. A second write with the same name does nothing if the first one is complete, and completes"
        " it if it was interrupted. A job can be repeated without writing twice.",
        "batch",
    ),
    WriteOption(
        "stagingPath",
        f"`{STAGING}` in the store",
        "Directory for the output of tasks until the commit. Driver and workers must see it under the same path.",
    ),
    WriteOption(
        "stagingRetention",
        "7d",
        "Uncommitted files in the staging directory are deleted by the next commit if unchanged for this time.",
    ),
    WriteOption(
        "lockTimeout",
        "30s",
        "How long a commit waits while another process (a broker, another stream) has the store open for writing. The"
        " error names that process.",
    ),
    WriteOption("storeConfig", "", "A broker.conf with the settings of the store."),
    WriteOption(
        "settings.<name>",
        "",
        "One setting by its name in broker.conf, for example `settings.flushDiskType`. Takes precedence over"
        " `storeConfig`. Existing files keep their sizes.",
    ),
)
_BY_LOWER = {option.name.lower(): option for option in WRITE_OPTIONS if not option.name.startswith(SETTINGS_PREFIX)}
_SETTING_NAMES = {name.lower(): name for name in NAMES.attributes}

# Given by Spark, or meant for other readers of the options.
_IGNORED = frozenset({"checkpointlocation"})
# Options of other writers, and what to do instead.
_ELSEWHERE = {
    "kafka.bootstrap.servers": "give the path of a store, .save('/data/broker-a/store'), or nameServer for a cluster",
    "paths": "one store at a time is written",
}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What was asked for. Goes to workers with the writer, so it holds plain values only."""

    store: Path
    staging: Path
    topic: str | None = None
    queues: int = 4
    unique_keys: bool = True
    write_id: str | None = None
    staging_retention_ms: int = 7 * 86_400_000
    lock_timeout_ms: int = 30_000
    settings: StoreSettings = field(default_factory=StoreSettings)
    settings_said: frozenset[str] = frozenset()  # attributes of `settings` that the user set


@dataclass(frozen=True, slots=True)
class ClusterWriteOptions:
    """A write into a running cluster. Goes to workers with the writer, so it holds plain values only."""

    name_servers: tuple[str, ...]
    topic: str | None = None
    unique_keys: bool = True
    write_id: str | None = None
    producer_group: str = PRODUCER_GROUP
    broker_timeout_ms: int = 60_000
    access: ClusterAccess = AS_NO_ONE


def names_cluster(options: Mapping[str, str]) -> bool:
    """Whether a write goes to a cluster, not into a directory."""
    return any(name.lower() == "nameserver" for name in options)


# Options that mean something over the wire.
_OF_CLUSTER = {
    *("nameServer", "topic", "uniqueKeys", "writeId", "producerGroup", "brokerTimeout"),
    *(name for name, _, _ in ACCESS_OPTIONS),
}


def parse_for_cluster(options: Mapping[str, str], *, streaming: bool) -> ClusterWriteOptions:
    """The options of a write with nameServer; OptionInvalid if any of them cannot be used."""
    given, said = _known(options, streaming)
    for name in (*given, *(f"{SETTINGS_PREFIX}{one}" for one in said)):
        if name not in _OF_CLUSTER:
            raise OptionInvalid(name, "has no meaning with nameServer: a broker has the store, its queues and settings")
    values: dict[str, object] = {
        "name_servers": parse_addresses("nameServer", given["nameServer"]),
        "access": parse_access(given),
    }
    if "topic" in given:
        values["topic"] = _topic(given["topic"])
    if "uniqueKeys" in given:
        values["unique_keys"] = parse_flag("uniqueKeys", given["uniqueKeys"])
    if "writeId" in given:
        values["write_id"] = parse_text("writeId", given["writeId"])
    if "producerGroup" in given:
        values["producer_group"] = parse_group("producerGroup", given["producerGroup"])
    if "brokerTimeout" in given:
        values["broker_timeout_ms"] = parse_duration_ms("brokerTimeout", given["brokerTimeout"])
    return ClusterWriteOptions(**values)  # type: ignore[arg-type]


def parse(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """The options of one write into a directory; OptionInvalid if any of them cannot be used."""
    given, said = _known(options, streaming)
    for name in ("producerGroup", "brokerTimeout"):
        if name in given:
            raise OptionInvalid(name, "has no meaning without nameServer; leave it out")
    refuse_access(given)
    if not given.get("path"):
        raise OptionInvalid(
            "path", "is missing: the directory of the store, for example .save('/data/broker-a/store'), or nameServer"
        )
    store = local_path("path", given["path"])
    settings, decided = _settings(given.get("storeConfig"), said)
    values: dict[str, object] = {}
    if "topic" in given:
        values["topic"] = _topic(given["topic"])
    if "queues" in given:
        values["queues"] = _queues(given["queues"])
    if "uniqueKeys" in given:
        values["unique_keys"] = parse_flag("uniqueKeys", given["uniqueKeys"])
    if "writeId" in given:
        values["write_id"] = parse_text("writeId", given["writeId"])
    if "stagingRetention" in given:
        values["staging_retention_ms"] = parse_duration_ms("stagingRetention", given["stagingRetention"])
    if "lockTimeout" in given:
        values["lock_timeout_ms"] = parse_duration_ms("lockTimeout", given["lockTimeout"])
    staging = local_path("stagingPath", given["stagingPath"]) if "stagingPath" in given else store / STAGING
    return WriteOptions(store, staging, settings=settings, settings_said=decided, **values)  # type: ignore[arg-type]


def _known(options: Mapping[str, str], streaming: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Options by their documented names, and settings by their names in broker.conf."""
    given: dict[str, str] = {}
    settings: dict[str, str] = {}
    for key, text in options.items():
        lower = key.lower()
        if lower in _IGNORED or key.startswith("__"):
            continue
        if lower.startswith(SETTINGS_PREFIX):
            settings[_setting_name(key)] = str(text)
            continue
        option = _BY_LOWER.get(lower)
        if option is None:
            raise OptionInvalid(key, _unknown(key))
        if option.scope == ("batch" if streaming else "stream"):
            raise OptionInvalid(option.name, f"only {'a batch (df.write)' if streaming else 'a stream'} has this")
        given[option.name] = str(text)
    return given, settings


def _unknown(key: str) -> str:
    if advice := _ELSEWHERE.get(key.lower()):
        return advice
    close = difflib.get_close_matches(key.lower(), _BY_LOWER, n=1, cutoff=_LIKENESS)
    if close:
        return f"no such option of a write; did you mean {_BY_LOWER[close[0]].name}?"
    if key.lower() in _SETTING_NAMES:
        return f"no such option of a write; did you mean {SETTINGS_PREFIX}{_SETTING_NAMES[key.lower()]}?"
    return f"no such option of a write; there are {', '.join(option.name for option in WRITE_OPTIONS)}"


def _setting_name(key: str) -> str:
    name = key[len(SETTINGS_PREFIX) :]
    known = _SETTING_NAMES.get(name.lower())
    if known is None:
        nearest = NAMES.nearest(name)
        hint = f"; did you mean {SETTINGS_PREFIX}{nearest}?" if nearest else ""
        raise OptionInvalid(key, f"there is no setting {name!r}{hint}")
    return known


def _settings(config: str | None, said: Mapping[str, str]) -> tuple[StoreSettings, frozenset[str]]:
    """The store's settings: those of the file, with those said one by one on top."""
    try:
        base = StoreSettings.from_file(local_path("storeConfig", config)) if config else StoreSettings()
        spoken = StoreSettings.from_properties(said)
    except SettingsError as problem:
        name = f"{SETTINGS_PREFIX}{problem.key}" if problem.key in said else "storeConfig"
        raise OptionInvalid(name, str(problem)) from None
    changes = {NAMES.attributes[name]: getattr(spoken, NAMES.attributes[name]) for name in said}
    settings = base.replace(**changes)
    changed = {NAMES.attributes[name] for name in base.to_properties(changed_only=True)}
    return settings, frozenset(changed | changes.keys())


def _topic(text: str) -> str:
    topic = parse_text("topic", text)
    if is_system_topic(topic):
        raise OptionInvalid("topic", f"{topic} {SYSTEM_TOPIC_REFUSED}")
    return topic


def _queues(text: str) -> int:
    count = parse_count("queues", text)
    if count > QUEUES_MAX:
        raise OptionInvalid("queues", f"at most {QUEUES_MAX:,} queues make sense", value=text)
    return count


def local_path(name: str, text: str) -> Path:
    """A path of this machine's file system, absolute; `file:` in front is fine."""
    parts = urlsplit(text)
    if parts.scheme == "file":
        text = unquote(parts.path)
    elif "://" in text:
        raise OptionInvalid(name, f"a store lies on a file system, not behind {parts.scheme}://", value=text)
    if not text.strip() or (glob.has_magic(text) and not os.path.exists(text)):
        raise OptionInvalid(name, "one directory is expected, not a pattern", value=text)
    return Path(text).expanduser().absolute()
