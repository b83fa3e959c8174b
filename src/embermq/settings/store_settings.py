"""StoreSettings: every setting of a store, declared in one place.

A setting is a field declared with `prop`: RocketMQ's name, the default, what it is for. Everything
else comes from that line: parsing, ranges, messages, docs/settings.md. Where a value may come from, later
wins:

    defaults  <  broker.conf  <  environment (EMBERMQ_<property>)  <  arguments

A value that cannot be used is a SettingsError naming file, line, key and value. Unknown keys are one
SettingsWarning. What a setting *does* does not live here. Values are immutable: usable from any thread.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from embermq.errors import SettingsError
from embermq.settings.java_properties import PropertiesSyntaxError, parse_properties
from embermq.settings.names import Given, Names
from embermq.settings.values import (
    INT_MAX,
    BrokerRole,
    FlushDisk,
    KernelUse,
    SettingFacts,
    Unusable,
    accept,
    check_address,
    parse_delay_levels,
    parse_delete_hours,
    parse_text,
    prop,
    to_text,
)

QUEUE_ENTRY_BYTES = 20

_ONE_WRITER = "there is one kind of put lock, and how long it is held is always measured"
_NO_DLEDGER = "DLedger keeps another kind of commit log"
_NO_CONFIRMING = "queues follow the log as far as a crash cannot take it back"
NO_BROKER = "used by a broker in front of the store"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Every setting of a store. Make one with keywords, or with one of the from_ methods."""

    # Paths
    root: Path = prop("storePathRootDir", Path("~/store"), "directory of the store")
    commit_log_paths: tuple[Path, ...] = prop(
        "storePathCommitLog",
        (),
        "directories of the log, separated by commas; none: `commitlog` in the root",
    )
    commit_log_read_only_paths: tuple[Path, ...] = prop(
        "readOnlyCommitLogStorePaths", (), "directories whose log files are read and never written"
    )

    # Files
    segment_bytes: int = prop(
        "mappedFileSizeCommitLog", 1 << 30, "size of one commit-log file", unit="bytes", least=1024
    )
    queue_file_bytes: int = prop(
        "mappedFileSizeConsumeQueue",
        6_000_000,
        "size of one consume-queue file, rounded up to a multiple of 20",
        unit="bytes",
        least=1,
        multiple_of=QUEUE_ENTRY_BYTES,
    )
    queue_extension: bool = prop("enableConsumeQueueExt", False, "keep the extension files with filter bits")
    queue_extension_file_bytes: int = prop(
        "mappedFileSizeConsumeQueueExt", 48 << 20, "size of one extension file", unit="bytes", least=1
    )
    queue_extension_bits: int = prop(
        "bitMapLengthConsumeQueueExt",
        64,
        "length of the filter bits in an extension entry",
        unit="bits",
        least=1,
        no_effect=NO_BROKER,
    )
    message_bytes_max: int = prop("maxMessageSize", 4 << 20, "largest message body", unit="bytes", least=1)

    # Flushing
    flush: FlushDisk = prop("flushDiskType", FlushDisk.ASYNC, "when an append counts as done")
    sync_flush_timeout_ms: int = prop(
        "syncFlushTimeout", 5000, "how long an append waits for the disk under SYNC_FLUSH", unit="ms"
    )
    flush_interval_ms: int = prop(
        "flushIntervalCommitLog",
        500,
        "pause between flushes of the log under ASYNC_FLUSH",
        unit="ms",
        least=1,
    )
    flush_timed: bool = prop(
        "flushCommitLogTimed",
        True,
        "ASYNC_FLUSH: true: flush after each pause; false: also as soon as flushCommitLogLeastPages are dirty",
    )
    flush_pages_min: int = prop(
        "flushCommitLogLeastPages", 4, "flush the log only when this much is dirty", unit="pages of 4 KiB"
    )
    flush_thorough_interval_ms: int = prop(
        "flushCommitLogThoroughInterval",
        10_000,
        "flush the log this often however little is dirty",
        unit="ms",
    )
    queue_flush_interval_ms: int = prop(
        "flushIntervalConsumeQueue", 1000, "pause between flushes of the consume queues", unit="ms", least=1
    )
    queue_flush_pages_min: int = prop(
        "flushConsumeQueueLeastPages",
        2,
        "least dirty pages of a consume queue that are flushed between two thorough flushes",
        unit="pages of 4 KiB",
        no_effect="queues are synced after flushConsumeQueueThoroughInterval or 256 MiB of log, and no sooner",
    )
    queue_flush_thorough_interval_ms: int = prop(
        "flushConsumeQueueThoroughInterval",
        60_000,
        "flush the consume queues this often however little is dirty, then the checkpoint",
        unit="ms",
    )

    # Memory in front of the log
    transient_pool: bool = prop(
        "transientStorePoolEnable", False, "append into buffers first (ASYNC_FLUSH masters only)"
    )
    transient_pool_buffers: int = prop(
        "transientStorePoolSize", 5, "number of buffers, each as large as a log file", least=1
    )
    transient_pool_fail_fast: bool = prop(
        "fastFailIfNoBufferInStorePool", False, "refuse a new log file when every buffer is taken"
    )
    commit_interval_ms: int = prop(
        "commitIntervalCommitLog",
        200,
        "pause between moves from the buffers into the files",
        unit="ms",
        least=1,
    )
    commit_pages_min: int = prop(
        "commitCommitLogLeastPages", 4, "move only when this much waits", unit="pages of 4 KiB"
    )
    commit_thorough_interval_ms: int = prop(
        "commitCommitLogThoroughInterval", 200, "move this often however little waits", unit="ms"
    )
    warm_segments: bool = prop(
        "warmMapedFileEnable",
        False,
        "bring every page of a new log file into memory and lock it there, before its first use",
    )
    warm_flush_pages: int = prop(
        "flushLeastPagesWhenWarmMapedFile",
        4096,
        "warmMapedFileEnable under SYNC_FLUSH: sync a new log file after each such portion, and at its end, before its"
        " first use",
        unit="pages of 4 KiB",
        least=1,
    )
    page_cache_busy_ms: int = prop(
        "osPageCacheBusyTimeOutMills",
        1000,
        "appends are refused while one has been running longer",
        unit="ms",
    )

    # Index
    index: bool = prop("messageIndexEnable", True, "keep the index of message keys")
    index_slots_max: int = prop("maxHashSlotNum", 5_000_000, "hash slots of one index file", least=1)
    index_entries_max: int = prop(
        "maxIndexNum", 20_000_000, "entries of one index file; entry 0 is never used", least=2
    )
    index_safe: bool = prop(
        "messageIndexSafe",
        False,
        "the index, too, decides from which log file recovery reads",
        no_effect="the index has a proof of its own, and recovery never forgets a key",
    )
    query_messages_max: int = prop("maxMsgsNumBatch", 64, "most messages one query by key answers", least=1)
    query_messages_default: int = prop(
        "defaultQueryMaxNum",
        32,
        "messages a query by unique key answers when it does not say",
        least=1,
        no_effect=NO_BROKER,
    )

    # Reading
    fetch_bytes_max_memory: int = prop(
        "maxTransferBytesOnMessageInMemory",
        256 << 10,
        "most bytes of one fetch of recent messages",
        unit="bytes",
        least=1,
    )
    fetch_messages_max_memory: int = prop(
        "maxTransferCountOnMessageInMemory", 32, "most messages of one fetch of recent messages", least=1
    )
    fetch_bytes_max_disk: int = prop(
        "maxTransferBytesOnMessageInDisk",
        64 << 10,
        "most bytes of one fetch of old messages",
        unit="bytes",
        least=1,
    )
    fetch_messages_max_disk: int = prop(
        "maxTransferCountOnMessageInDisk", 8, "most messages of one fetch of old messages", least=1
    )
    memory_percent_max: int = prop(
        "accessMessageInMemoryMaxRatio",
        40,
        "messages count as recent within this share of the machine's memory",
        unit="percent",
        most=100,
    )
    fall_behind_recorded: bool = prop(
        "diskFallRecorded",
        True,
        "record how far each group is behind",
        no_effect=NO_BROKER,
    )

    # Recovery
    check_crc_on_recovery: bool = prop("checkCRCOnRecover", True, "check each body's checksum while recovering")

    # Retention
    retention_hours: int = prop(
        "fileReservedTime", 72, "how long a log file is kept after its last message", unit="hours"
    )
    delete_when: str = prop(
        "deleteWhen",
        "04",
        "hours of the day (local time) for deleting, separated by `;`",
        check=parse_delete_hours,
    )
    disk_used_percent_max: int = prop(
        "diskMaxUsedSpaceRatio",
        75,
        "fuller than this, expired files go at any hour; less than 10 counts as 10, more than 95 as 95",
        unit="percent",
        least=10,
        most=95,
        clamped=True,
    )
    delete_when_full: bool = prop(
        "cleanFileForciblyEnable",
        True,
        "on a disk fuller than emberDiskCleanPercent delete the oldest log files before their time",
    )
    clean_interval_ms: int = prop(
        "cleanResourceInterval",
        10_000,
        "pause between looks at what may be deleted",
        unit="ms",
        least=1,
    )
    delete_segment_pause_ms: int = prop(
        "deleteCommitLogFilesInterval",
        100,
        "pause after deleting a log file",
        unit="ms",
    )
    delete_queue_pause_ms: int = prop(
        "deleteConsumeQueueFilesInterval",
        100,
        "pause after deleting files of a consume queue",
        unit="ms",
    )
    destroy_interval_ms: int = prop(
        "destroyMapedFileIntervalForcibly",
        120_000,
        "how long a deleted log file that is still being read, and so keeps its space, holds up deletion by force",
        unit="ms",
    )
    redelete_interval_ms: int = prop(
        "redeleteHangedFileInterval",
        120_000,
        "pause between warnings about deleted log files still being read",
        unit="ms",
    )

    # Delayed messages
    delay_levels: str = prop(
        "messageDelayLevel",
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "delay of level 1, 2, 3 … with entries s, m, h, d",
        check=parse_delay_levels,
    )
    delay_offset_interval_ms: int = prop(
        "flushDelayOffsetInterval", 10_000, "pause between writes of delayOffset.json", unit="ms", least=1
    )
    timers: bool = prop(
        "timerWheelEnable",
        True,
        "park messages that have a delivery time (TIMER_DELIVER_MS and the like); off: these properties mean nothing",
    )
    timer_delay_seconds_max: int = prop(
        "timerMaxDelaySec",
        40 * 24 * 3600,
        "a message with a delivery time further away is refused",
        unit="s",
        least=1,
        most=10 * 366 * 24 * 3600,
    )
    timer_persist_interval_ms: int = prop(
        "timerFlushIntervalMs", 1000, "pause between writes of timerOffset.json", unit="ms", least=1
    )
    delay_stats: bool = prop(
        "enableScheduleMessageStats",
        True,
        "count delayed messages when they are delivered",
        no_effect=NO_BROKER,
    )
    delay_deliver_async: bool = prop(
        "enableScheduleAsyncDeliver",
        False,
        "deliver without waiting for each put",
        no_effect="parked messages are delivered one after another",
    )
    delay_pending_max: int = prop(
        "scheduleAsyncDeliverMaxPendingLimit",
        2000,
        "most deliveries of one level under way",
        least=1,
        no_effect="parked messages are delivered one after another",
    )
    delay_resends_max: int = prop(
        "scheduleAsyncDeliverMaxResendNum2Blocked",
        3,
        "failed tries after which a level waits",
        no_effect="parked messages are delivered one after another",
    )

    # Light queues
    light_queues: bool = prop("enableLmq", False, "accept `%LMQ%` queues")
    multi_dispatch: bool = prop("enableMultiDispatch", False, "dispatch one message to several named queues")
    light_queues_max: int = prop("maxLmqConsumeQueueNum", 20_000, "most light queues")

    # Role and replication
    role: BrokerRole = prop(
        "brokerRole",
        BrokerRole.ASYNC_MASTER,
        "what this store is in a replicated group; a SYNC_MASTER is opened for appends by a broker, which waits for"
        " slaves, or where emberAllowUnreplicated says so; a SLAVE refuses appends",
    )
    check_offset_in_slave: bool = prop("offsetCheckInSlave", False, "a slave corrects offsets out of range, too")
    slave_timeout_ms: int = prop(
        "slaveTimeout", 3000, "how long an append waits for a replica", unit="ms", no_effect=NO_BROKER
    )
    ha_listen_port: int = prop(
        "haListenPort",
        10912,
        "port slaves connect to; not given: one above listenPort",
        most=65535,
        no_effect=NO_BROKER,
    )
    ha_master_address: str = prop(
        "haMasterAddress",
        "",
        "replication address of the master, HOST:PORT; empty: a slave asks the name servers",
        no_effect=NO_BROKER,
    )
    ha_heartbeat_interval_ms: int = prop(
        "haSendHeartbeatInterval", 5000, "pause between heartbeats", unit="ms", no_effect=NO_BROKER
    )
    ha_housekeeping_interval_ms: int = prop(
        "haHousekeepingInterval",
        20_000,
        "silence after which a connection is closed",
        unit="ms",
        no_effect=NO_BROKER,
    )
    ha_transfer_bytes: int = prop(
        "haTransferBatchSize",
        32 << 10,
        "most bytes of one transfer",
        unit="bytes",
        least=1,
        no_effect=NO_BROKER,
    )
    ha_behind_bytes_max: int = prop(
        "haSlaveFallbehindMax",
        256 << 20,
        "a replica further behind does not count",
        unit="bytes",
        no_effect=NO_BROKER,
    )
    duplication: bool = prop(
        "duplicationEnable", False, "dispatch only up to a confirmed offset", no_effect=_NO_CONFIRMING
    )

    # DLedger
    dledger: bool = prop("enableDLegerCommitLog", False, "keep the log in DLedger", no_effect=_NO_DLEDGER)
    dledger_path: str = prop("storePathDLedgerCommitLog", "", "directory of DLedger", no_effect=_NO_DLEDGER)
    dledger_group: str = prop("dLegerGroup", "", "name of the group", no_effect=_NO_DLEDGER)
    dledger_peers: str = prop("dLegerPeers", "", "members of the group", no_effect=_NO_DLEDGER)
    dledger_self_id: str = prop("dLegerSelfId", "", "which member this is", no_effect=_NO_DLEDGER)
    dledger_leader: str = prop("preferredLeaderId", "", "member that should lead", no_effect=_NO_DLEDGER)
    dledger_batch_push: bool = prop("isEnableBatchPush", False, "send in batches", no_effect=_NO_DLEDGER)

    # Kept for the sake of old files
    reentrant_put_lock: bool = prop("useReentrantLockWhenPutMessage", True, "kind of put lock", no_effect=_ONE_WRITER)
    debug_put_lock: bool = prop("debugLockEnable", False, "watch the put lock", no_effect=_ONE_WRITER)
    index_high_water: int = prop(
        "putMsgIndexHightWater", 600_000, "unused in RocketMQ as well", no_effect="nothing reads it"
    )

    # Broker settings that touch the store
    broker_id: int = prop(
        "brokerId",
        0,
        "0 is the master of its group",
        no_effect=NO_BROKER,
    )
    broker_ip: str = prop(
        "brokerIP1", "127.0.0.1", "address written into each record as the store's host", check=check_address
    )
    listen_port: int = prop("listenPort", 10911, "port written into each record as the store's host", most=65535)
    long_polling: bool = prop("longPollingEnable", True, "notify listeners of arriving messages")
    plugins: tuple[str, ...] = prop(
        "messageStorePlugIn", (), "wrappers around the store, the outermost first, separated by commas"
    )
    filter_bits: bool = prop(
        "enableCalcFilterBitMap",
        False,
        "compute filter bits for SQL filters",
        no_effect=NO_BROKER,
    )
    filter_error_percent_max: int = prop(
        "maxErrorRateOfBloomFilter",
        20,
        "share of false positives the filter bits may have",
        unit="percent",
        least=1,
        most=99,
        no_effect=NO_BROKER,
    )
    filter_consumers: int = prop(
        "expectConsumerNumUseFilter",
        32,
        "number of SQL-filtering groups the filter bits are sized for",
        least=1,
        no_effect=NO_BROKER,
    )
    filter_dead_ms: int = prop(
        "filterDataCleanTimeSpan",
        86_400_000,
        "how long the filter of a vanished group is kept",
        unit="ms",
        most=(1 << 63) - 1,
        no_effect=NO_BROKER,
    )
    filter_properties: bool = prop("enablePropertyFilter", False, "accept SQL filters", no_effect=NO_BROKER)
    filter_retries: bool = prop("filterSupportRetry", False, "apply filters to retried messages", no_effect=NO_BROKER)

    # EmberMQ's own
    prefault_bytes_max: int = prop(
        "emberPrefaultBytesMax",
        64 << 20,
        "most bytes of a log file made ready ahead of the writer; 0: none",
        unit="bytes",
    )
    waiters_share_core: bool = prop(
        "emberWaitersShareCore",
        False,
        "SYNC_FLUSH: keep all threads that wait for syncs, and the store's own, on one processor until it is closed:"
        " twice the messages with many threads",
    )
    memory_lock: bool = prop("emberMemoryLock", False, "lock the part of the log in use into memory")
    kernels: KernelUse = prop("emberKernels", KernelUse.AUTO, "use compiled kernels: where they pay, always, never")
    disk_full_percent: int = prop(
        "emberDiskFullPercent", 90, "fuller than this, appends are refused", unit="percent", least=1, most=100
    )
    disk_clean_percent: int = prop(
        "emberDiskCleanPercent",
        85,
        "fuller than this, the oldest log files go before their time; of several log directories, one fuller than"
        " this gets no new files",
        unit="percent",
        least=1,
        most=100,
    )
    scrub_interval_hours: int = prop(
        "emberScrubIntervalHours",
        168,
        "how often the log is compared with queues and index while the store is open, derived files repaired and damage"
        " in the log reported; 0: never",
        unit="hours",
    )
    scrub_bytes_per_second: int = prop(
        "emberScrubBytesPerSecond",
        32 << 20,
        "the scrub reads the log no faster than this",
        unit="bytes per second",
        least=1,
    )
    allow_unreplicated: bool = prop(
        "emberAllowUnreplicated",
        False,
        "append as SYNC_MASTER although nothing replicates: PUT_OK then promises no replica",
    )
    delayed_delivery: bool = prop(
        "emberDelayedDelivery", True, "deliver parked messages when they are due; off: they stay parked"
    )

    def __post_init__(self) -> None:
        for attribute, about in PROPERTIES.items():
            value = getattr(self, attribute)
            try:
                accepted = accept(KINDS[attribute], about, value)
            except Unusable as error:
                raise SettingsError(str(error), key=attribute, value=value) from None
            object.__setattr__(self, attribute, accepted)
        index_bytes = 40 + 4 * self.index_slots_max + 20 * self.index_entries_max
        if index_bytes > INT_MAX:
            raise SettingsError(
                f"an index file with {self.index_slots_max:,} slots (maxHashSlotNum) would have"
                f" {index_bytes:,} bytes; at most {INT_MAX:,} are possible",
                key="index_entries_max",
                value=self.index_entries_max,
            )

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, environment: Mapping[str, str] | None = None, **arguments: Any
    ) -> Self:
        """From RocketMQ's names and text values; `environment` and python names come on top."""
        given = [Given(key, text) for key, text in properties.items()]
        return cls._load(given, "", environment, arguments)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], *, environment: Mapping[str, str] | None = None, **arguments: Any
    ) -> Self:
        """From a broker.conf; `environment` (for example os.environ) and python names come on top."""
        name = os.fspath(path)
        try:
            entries = parse_properties(decode(Path(name).read_bytes()))
        except OSError as error:
            raise SettingsError(f"cannot be read: {error.strerror or error}", file=name) from error
        except PropertiesSyntaxError as error:
            raise SettingsError(error.reason, file=name, line=error.line) from error
        given = [Given(entry.key, entry.value, name, entry.line) for entry in entries]
        return cls._load(given, name, environment, arguments)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **arguments: Any) -> Self:
        """From variables named EMBERMQ_<property>, in any case, underscores allowed."""
        return cls._load([], "", os.environ if environment is None else environment, arguments)

    @classmethod
    def _load(
        cls,
        given: list[Given],
        source: str,
        environment: Mapping[str, str] | None,
        arguments: dict[str, Any],
    ) -> Self:
        variables = NAMES.variables(environment or {})
        known = {attribute: entry for entry in given if (attribute := NAMES.attributes.get(entry.key))}
        known |= variables.known
        values = {attribute: _value(attribute, entry) for attribute, entry in known.items()}
        settings = cls(**(values | arguments))
        idle = _without_effect(settings, known)
        # The caller of the from_ method is the place the warning points to.
        NAMES.warn(source, [*given, *variables.near_misses], idle, stacklevel=4)
        return settings

    def replace(self, **changes: Any) -> Self:
        """The same settings with some changed, by python name."""
        return dataclasses.replace(self, **changes)

    def to_properties(self, *, changed_only: bool = False) -> dict[str, str]:
        """RocketMQ's names and text values, as from_properties takes them."""
        return {
            about.name: to_text(getattr(self, attribute))
            for attribute, about in PROPERTIES.items()
            if not changed_only or getattr(self, attribute) != getattr(_DEFAULTS, attribute)
        }

    @property
    def delay_ms(self) -> tuple[int, ...]:
        """Delay of each level; level 1 comes first."""
        return parse_delay_levels(self.delay_levels)

    @property
    def delete_hours(self) -> frozenset[int]:
        """Hours of the day (local time) in which expired files are deleted."""
        return parse_delete_hours(self.delete_when)

    @property
    def store_host(self) -> tuple[str, int]:
        """Address and port written into each record."""
        return self.broker_ip, self.listen_port

    @property
    def promises_replica(self) -> bool:
        """An acknowledgement under these settings promises a second copy of the message."""
        return self.role is BrokerRole.SYNC_MASTER and not self.allow_unreplicated

    @property
    def transient_pool_active(self) -> bool:
        """The pool works only behind asynchronous flushing, and never on a slave."""
        return self.transient_pool and self.flush is FlushDisk.ASYNC and self.role is not BrokerRole.SLAVE


# Sections of docs/settings.md: a title, and the attribute it begins with.
SECTIONS = (
    ("Paths", "root"),
    ("Files", "segment_bytes"),
    ("Flushing", "flush"),
    ("Memory in front of the log", "transient_pool"),
    ("Index", "index"),
    ("Reading", "fetch_bytes_max_memory"),
    ("Recovery", "check_crc_on_recovery"),
    ("Retention", "retention_hours"),
    ("Delayed messages", "delay_levels"),
    ("Light queues", "light_queues"),
    ("Role and replication", "role"),
    ("DLedger", "dledger"),
    ("Kept for the sake of old files", "reentrant_put_lock"),
    ("Broker settings that touch the store", "broker_id"),
    ("EmberMQ's own", "prefault_bytes_max"),
)

PROPERTIES: dict[str, SettingFacts] = {f.name: f.metadata["property"] for f in dataclasses.fields(StoreSettings)}
NAMES = Names({about.name: attribute for attribute, about in PROPERTIES.items()})
KINDS: dict[str, Any] = {f.name: f.type for f in dataclasses.fields(StoreSettings)}
_DEFAULTS = StoreSettings()


def _value(attribute: str, given: Given) -> Any:
    """The value a text stands for, checked; the error says where the text stands."""
    kind, about = KINDS[attribute], PROPERTIES[attribute]
    try:
        return accept(kind, about, parse_text(kind, about, given.text))
    except Unusable as error:
        raise SettingsError(str(error), key=given.key, value=given.text, file=given.file, line=given.line) from None


def _without_effect(settings: StoreSettings, spoken: Iterable[str]) -> list[str]:
    """Settings that were changed without effect, each with the reason; a value equal to the default is no change."""
    return [
        f"{PROPERTIES[attribute].name} ({PROPERTIES[attribute].no_effect})"
        for attribute in spoken
        if PROPERTIES[attribute].no_effect and getattr(settings, attribute) != getattr(_DEFAULTS, attribute)
    ]


def decode(data: bytes) -> str:
    """UTF-8, or else what Java takes every .properties file for: Latin-1."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")
