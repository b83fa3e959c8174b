"""The golden stores as tests see them: typed manifests, and copies restored into a directory.

A golden store was written by RocketMQ; tests/golden/README.md tells how. This file unpacks and
decodes them. It must not judge: what has to hold is said in tests/compat. Nothing here opens a store.
"""

import base64
import hashlib
import ipaddress
import lzma
import os
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from embermq.model.hosts import Host
from embermq.model.message import BatchItem, Message, MessageBatch

GOLDEN = Path(__file__).parents[1] / "golden"
FOREVER = 2**63 - 1

# Stores made by calling the store directly hold every put; those of a broker hold what its client sent.
PUT_STORES = (
    "basic",
    "batch",
    "compressed-raw",
    "default-size",
    "delay-parked",
    "deleted-segments",
    "index",
    "ipv6",
    "lmq",
    "odd",
    "transaction-raw",
)
BROKER_STORES = ("compressed", "cqext", "delay", "retry-dlq", "transaction")
UNCLEAN_STORES = ("unclean", "unclean-behind", "unclean-lost-pages")
CLEAN_STORES = (*PUT_STORES, *BROKER_STORES)
ALL_STORES = (*CLEAN_STORES, *UNCLEAN_STORES)

HostPair = tuple[str, int]


def host(pair: HostPair) -> Host:
    """Java writes IPv6 addresses out in full; ours are in the usual short form."""
    return Host(str(ipaddress.ip_address(pair[0])), pair[1])


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """A body by its bytes, or by the rule that gives them."""

    len: int
    crc32: int
    hex: str | None = None
    b64: str | None = None
    pattern: str | None = None
    k: int = 0

    def content(self) -> bytes:
        if self.hex is not None:
            data = bytes.fromhex(self.hex)
        elif self.b64 is not None:
            data = base64.b64decode(self.b64)
        else:
            assert self.pattern == "(i*31+k)&255", self.pattern
            period = bytes((i * 31 + self.k) & 255 for i in range(256))
            data = (period * (self.len // 256 + 1))[: self.len]
        assert (len(data), zlib.crc32(data)) == (self.len, self.crc32), "the manifest describes another body"
        return data


class AppendResult(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    status: str
    wrote_offset: int
    wrote_bytes: int
    msg_id: str
    store_timestamp: int
    logics_offset: int
    msg_num: int


class PutResult(msgspec.Struct, forbid_unknown_fields=True):
    status: str
    ok: bool
    append: AppendResult | None


class PutItem(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    flag: int
    body: Body
    properties: list[tuple[str, str]]
    properties_string: str


class Put(msgspec.Struct, rename="camel", kw_only=True):
    """One call of RocketMQ's put, with its answer."""

    kind: str
    topic: str
    queue_id: int
    tags: str | None = None
    keys: str | None = None
    properties: list[tuple[str, str]]
    properties_string: str
    body: Body | None = None
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: HostPair
    store_host: HostPair
    reconsume_times: int
    prepared_transaction_offset: int = 0
    clock: int
    items: list[PutItem] = []
    encoded_body: Body | None = None
    result: PutResult

    def message(self) -> Message:
        """What RocketMQ was handed; the property string goes in as it is, as a broker has it."""
        return Message(
            self.topic,
            self.body.content() if self.body else b"",
            queue_id=self.queue_id,
            flag=self.flag,
            sys_flag=self.sys_flag,
            born_timestamp=self.born_timestamp,
            born_host=host(self.born_host),
            store_host=host(self.store_host),
            reconsume_times=self.reconsume_times,
            prepared_transaction_offset=self.prepared_transaction_offset,
            encoded_properties=self.properties_string.encode(),
        )

    def batch(self) -> MessageBatch:
        assert self.kind == "batch"
        items = [
            BatchItem(item.body.content(), flag=item.flag, encoded_properties=item.properties_string.encode())
            for item in self.items
        ]
        return MessageBatch(self.message(), items)


class Record(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A record as RocketMQ decodes it. A blank has a place and nothing else."""

    phy: int
    blank: bool = False
    size: int = 0
    topic: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    flag: int = 0
    sys_flag: int = 0
    body_crc: int = msgspec.field(default=0, name="bodyCRC")
    body_len: int = 0
    body_hex: str | None = None
    born_timestamp: int = 0
    born_host: HostPair = ("", 0)
    store_timestamp: int = 0
    store_host: HostPair = ("", 0)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    tags_code: int = 0
    properties_string: str | None = None
    properties_len: int = 0
    properties_crc32: int = 0
    offset_msg_id: str = ""


class Fetched(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A getMessage call and its answer."""

    offset: int
    max_msg_nums: int
    status: str
    next_begin_offset: int
    min_offset: int
    max_offset: int
    count: int
    bytes: int
    billing: int
    suggest_slave: bool
    phys: list[int]


class QueueFetch(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    topic: str
    queue_id: int
    get: Fetched
    sub: str = "*"
    codes: list[int] = []


class QueueBounds(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    topic: str
    queue_id: int
    min: int
    max: int
    total: int
    min_logic_offset: int
    max_physic_offset: int
    last_offset: int | str
    earliest_message_time: int


class QueueTimes(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    queue_id: int = msgspec.field(name="queueId")
    time_to_offset: list[tuple[int, int]]


class QueueEntries(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    queue_id: int = msgspec.field(name="queueId")
    offset_phy_store_time: list[tuple[int, int, int]] = msgspec.field(name="offset_phy_storeTime")


class Look(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    phy: int
    found: bool
    msg_id: str = ""
    topic: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    store_size: int = 0
    body_crc: int = msgspec.field(default=0, name="bodyCRC")
    body_len: int = 0
    store_timestamp: int = 0
    properties: dict[str, str] | None = None


class KeyQuery(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    topic: str
    key: str
    max_num: int
    begin: int
    end: int
    index_offsets: list[int]
    phys: list[int]
    bytes: int
    index_last_update_timestamp: int
    index_last_update_phyoffset: int


class UnknownTopic(msgspec.Struct, forbid_unknown_fields=True):
    max: int
    min: int
    get0: Fetched
    get7: Fetched


class Bounds(msgspec.Struct, forbid_unknown_fields=True):
    max_physical: int = msgspec.field(name="maxPhyOffset")
    min_physical: int = msgspec.field(name="minPhyOffset")
    queues: dict[str, tuple[int, int, int]] = msgspec.field(name="queues_min_max_maxPhysic")

    def by_queue(self) -> dict[tuple[str, int], tuple[int, int, int]]:
        split = {name: name.rpartition("@") for name in self.queues}
        return {(split[name][0], int(split[name][2])): row for name, row in self.queues.items()}


class Checkpoint(msgspec.Struct, rename="camel"):
    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int


class Answers(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    max_phy_offset: int
    min_phy_offset: int
    dispatch_behind_bytes: int
    confirm_offset: int
    earliest_message_time: int
    checkpoint: Checkpoint
    queues: list[QueueBounds]
    get_message: list[QueueFetch]
    get_message_by_tag: list[QueueFetch]
    get_offset_in_queue_by_time: list[QueueTimes] = []
    entries: list[QueueEntries] = msgspec.field(name="units")
    unknown_topic: UnknownTopic
    look_message_by_offset: list[Look]
    query_message: list[KeyQuery]
    after_load: Bounds


class FileFact(msgspec.Struct, forbid_unknown_fields=True):
    path: str
    size: int
    sha256: str
    mtime_ms: int


class ExtensionEntry(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    topic: str
    queue_id: int
    offset: int
    third: int
    found: bool
    size: int
    tags_code: int
    store_time: int
    bitmap: str | None


class SqlPull(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    group: str
    expression: str
    queue_id: int
    bloom_bit_pos: list[int]
    bit_num: int
    born_time: int
    pass_consume_queue_stage: list[int]
    gets: list[Fetched]


class Recovered(msgspec.Struct, forbid_unknown_fields=True):
    after_load: Bounds = msgspec.field(name="afterLoad")
    after_start: Bounds = msgspec.field(name="afterStart")
    checkpoint_after: Checkpoint
    files_after: list[FileFact]


class Manifest(msgspec.Struct, kw_only=True):
    name: str
    clean_shutdown: bool
    settings: dict[str, str | int | bool]
    checkpoint_on_disk: Checkpoint
    puts: list[Put]
    client_sends: list[dict[str, Any]] = []
    more_queries: list[KeyQuery] = []
    ext_entries: list[ExtensionEntry] = msgspec.field(default_factory=list, name="ext_units")
    sql_pulls: list[SqlPull] = []
    before_delete: Bounds | None = None
    after_delete: Bounds | None = None
    delete_after_put: int | None = None
    recovered: Recovered | None = None
    log_zeroed_from: int | None = None
    records: list[Record]
    answers: Answers
    files: list[FileFact]

    def properties(self) -> dict[str, str]:
        return property_texts(self.settings)

    def last_store_time(self) -> int:
        return max(record.store_timestamp for record in self.records)


class Patch(msgspec.Struct, forbid_unknown_fields=True):
    file: str
    offset: int
    bytes_hex: str | None = None
    zero_to_end: bool = False
    truncate: int | None = None

    def apply(self, store: Path) -> None:
        path = store / self.file
        data = bytearray(path.read_bytes())
        if self.truncate is not None:
            del data[self.truncate :]
        elif self.zero_to_end:
            data[self.offset :] = bytes(len(data) - self.offset)
        else:
            assert self.bytes_hex is not None
            new = bytes.fromhex(self.bytes_hex)
            data[self.offset : self.offset + len(new)] = new
        path.write_bytes(data)


class TornOutcome(msgspec.Struct, kw_only=True):
    load: bool
    after_load: Bounds | None = msgspec.field(default=None, name="afterLoad")
    after_start: Bounds | None = msgspec.field(default=None, name="afterStart")
    records: int = 0
    last_record: int = msgspec.field(default=0, name="lastRecord")


class TornPatch(msgspec.Struct):
    what: str
    patch: Patch
    normal: TornOutcome
    abnormal: TornOutcome


class TornTail(msgspec.Struct):
    base: str
    settings: dict[str, str | int | bool]
    base_state: Bounds
    patches: list[TornPatch]


def property_texts(settings: Mapping[str, str | int | bool]) -> dict[str, str]:
    """Settings as a properties file has them, with delayed delivery off: every answer was taken so."""
    spelled = {True: "true", False: "false"}
    texts = {name: spelled[v] if isinstance(v, bool) else str(v) for name, v in settings.items()}
    return {**texts, "emberDelayedDelivery": "false"}


@cache
def manifest(name: str) -> Manifest:
    packed = (GOLDEN / name / "manifest.json.xz").read_bytes()
    return msgspec.json.decode(lzma.decompress(packed), type=Manifest)


@cache
def torn_tail() -> TornTail:
    packed = (GOLDEN / "torn-tail" / "manifest.json.xz").read_bytes()
    return msgspec.json.decode(lzma.decompress(packed), type=TornTail)


def restore(name: str, directory: Path, tree: str = "store") -> Path:
    """A fresh copy of the store under `directory`: holes kept, file times as recorded. Answers its path."""
    with tarfile.open(GOLDEN / name / "store.tar.xz") as archive:
        wanted = [entry for entry in archive if entry.name == tree or entry.name.startswith(f"{tree}/")]
        archive.extractall(directory, wanted, filter="data")
    facts = manifest(name)
    recovered = facts.recovered.files_after if facts.recovered else []
    set_times(directory / tree, facts.files if tree == "store" else recovered)
    return directory / tree


def set_times(store: Path, files: list[FileFact]) -> None:
    for file in files:
        os.utime(store / file.path, ns=(file.mtime_ms * 1_000_000,) * 2)


def segments(store: Path) -> Iterator[tuple[int, bytes]]:
    """Start offset and bytes of each log file; of a 1 GiB file its first MiB only, the rest is a hole."""
    for path in sorted((store / "commitlog").iterdir()):
        size = path.stat().st_size
        with path.open("rb") as file:
            yield int(path.name), file.read(size if size <= 64 << 20 else 1 << 20)


def extents(path: Path) -> Iterator[tuple[int, bytes]]:
    """The parts of a file that are no hole, at most 1 MiB each."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        at = 0
        while at < size:
            try:
                start = os.lseek(descriptor, at, os.SEEK_DATA)
            except OSError:  # ENXIO: nothing but a hole from here on.
                return
            at = os.lseek(descriptor, start, os.SEEK_HOLE)
            for piece in range(start, at, 1 << 20):
                yield piece, os.pread(descriptor, min(1 << 20, at - piece), piece)
    finally:
        os.close(descriptor)


def fingerprint(path: Path) -> str:
    """A digest of length and content that does not read holes and does not see whether zeros are one."""
    digest = hashlib.sha256(str(path.stat().st_size).encode())
    zeros = bytes(4096)
    for start, data in extents(path):
        for at in range(-(start % 4096), len(data), 4096):
            page = data[max(at, 0) : at + 4096].ljust(4096 - max(-at, 0), b"\0").rjust(4096, b"\0")
            if page != zeros:
                digest.update((start + at).to_bytes(8, "big") + page)
    return digest.hexdigest()


def content(directory: Path, *, names: bool = True) -> dict[str, str]:
    """Fingerprint of every file below `directory`, by relative path, or by rank in name order."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file()) if directory.is_dir() else []
    return {
        path.relative_to(directory).as_posix() if names else f"#{rank}": fingerprint(path)
        for rank, path in enumerate(paths)
    }


def tree_state(directory: Path) -> dict[str, tuple[str, int]]:
    """Everything a read-only visitor must leave alone: names, contents, modification times."""
    state: dict[str, tuple[str, int]] = {}
    for path in sorted([directory, *directory.rglob("*")]):
        name = path.relative_to(directory).as_posix()
        state[name] = (fingerprint(path) if path.is_file() else "directory", path.stat().st_mtime_ns)
    return state
