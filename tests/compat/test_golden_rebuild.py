"""The same input gives the same files: what RocketMQ was handed, handed to us, byte for byte.

Two ways to rebuild a store. From the puts: with the clock held at the recorded times, log, queues and index
must come out as RocketMQ's files. From the log: given only `commitlog` and `config`, the queues and the
index derived from it must be RocketMQ's as well.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.errors import AppendRefused, MessageRejected
from embermq.format.checkpoint import decode_checkpoint
from embermq.format.queue_entry import ENTRY, ENTRY_BYTES
from embermq.model.message import Receipt, StoredMessage
from embermq.model.properties import DELAY, REAL_QUEUE_ID, REAL_TOPIC, SCHEDULE_TOPIC, encode_properties
from embermq.testing import ManualClock
from tests.support import golden

# Puts that end otherwise here: (store, number of the put) -> (our status, why).
PUT_DIFFERENCES = {
    ("odd", 21): (
        "MESSAGE_ILLEGAL",
        "a topic name outside [%|a-zA-Z0-9_-]: RocketMQ's store takes it, its broker never lets it in",
    ),
    ("odd", 28): (
        "MESSAGE_ILLEGAL",
        "one byte too large for a log file: RocketMQ says PUT_OK, stores nothing and blanks a file",
    ),
}

# Stores whose derived files the log alone cannot give: name -> why.
NOT_FROM_THE_LOG = {
    "cqext": "bit maps of the extension come from SQL registrations, which only a broker evaluates",
    "deleted-segments": "old entries and keys of deleted messages are still in RocketMQ's first files",
}

Outcome = tuple[object, ...]


def appended(store: MessageStore, put: golden.Put) -> Outcome:
    """Our answer to a put in the order of `recorded`; a refusal is its status."""
    try:
        receipt = store.append_batch(put.batch()) if put.kind == "batch" else store.append(put.message())
    except (MessageRejected, AppendRefused) as refusal:
        return (str(refusal.status),)
    return outcome(receipt)


def outcome(receipt: Receipt) -> Outcome:
    return (
        str(receipt.status),
        receipt.physical_offset,
        receipt.size,
        receipt.message_id,
        receipt.store_timestamp,
        receipt.queue_offset,
        receipt.message_count,
    )


def recorded(put: golden.Put) -> Outcome:
    result = put.result
    if result.append is None:
        return (result.status,)
    done = result.append
    return (
        result.status,
        done.wrote_offset,
        done.wrote_bytes,
        done.msg_id,
        done.store_timestamp,
        done.logics_offset,
        done.msg_num,
    )


def fresh(directory: Path, facts: golden.Manifest, clock: ManualClock, **more: str) -> MessageStore:
    settings = StoreSettings.from_properties({**facts.properties(), **more})
    return MessageStore.open(directory, settings, clock=clock)


def replayed(directory: Path, facts: golden.Manifest) -> list[Outcome]:
    clock = ManualClock(facts.puts[0].clock)
    got = []
    with fresh(directory, facts, clock) as store:
        for put in facts.puts:
            clock.set(put.clock)
            got.append(appended(store, put))
    return got


def assert_same_files(ours: Path, theirs: Path) -> None:
    """Log and queues by name; index files in name order, since their names are times."""
    for family in ("commitlog", "consumequeue", "consumequeue_ext"):
        assert golden.content(ours / family) == golden.content(theirs / family), family
    assert golden.content(ours / "index", names=False) == golden.content(theirs / "index", names=False)


@pytest.mark.parametrize("name", [n for n in golden.PUT_STORES if n not in ("odd", "deleted-segments")])
def test_puts_give_the_same_files(name: str, tmp_path: Path) -> None:
    facts = golden.manifest(name)
    theirs = golden.restore(name, tmp_path / "theirs")
    ours = tmp_path / "ours"
    assert replayed(ours, facts) == [recorded(put) for put in facts.puts]
    assert_same_files(ours, theirs)


@pytest.mark.parametrize("name", [n for n in golden.PUT_STORES if n not in ("odd", "default-size")])
def test_checkpoint_after_the_same_puts(name: str, tmp_path: Path) -> None:
    """After a clean close the log time is that of the last message, the queue time that of the last entry."""
    facts = golden.manifest(name)
    assert facts.settings["flushDiskType"] == "SYNC_FLUSH"
    replayed(tmp_path / "ours", facts)
    times = decode_checkpoint((tmp_path / "ours" / "checkpoint").read_bytes())
    assert times is not None
    expected = facts.checkpoint_on_disk
    assert (times.log_ms, times.queues_ms) == (expected.physic_msg_timestamp, expected.logics_msg_timestamp)


@pytest.mark.parametrize("name", ["deleted-segments", "unclean", "unclean-behind"])
def test_puts_give_at_least_the_same_files(name: str, tmp_path: Path) -> None:
    """Stores where something was taken away afterwards: what is left is the same in ours."""
    facts = golden.manifest(name)
    theirs = golden.restore(name, tmp_path / "theirs", "after" if facts.recovered else "store")
    ours = tmp_path / "ours"
    assert replayed(ours, facts) == [recorded(put) for put in facts.puts]
    for family in ("commitlog", "consumequeue"):
        left = golden.content(theirs / family)
        if name == "unclean-behind":  # Recovered with tag hashes for due times: see the recovery tests.
            left.pop("SCHEDULE_TOPIC_XXXX/2/00000000000000000000", None)
        mine = golden.content(ours / family)
        assert {path: mine.get(path) for path in left} == left, family
    if not facts.recovered:
        left_index = list(golden.content(theirs / "index").values())
        assert list(golden.content(ours / "index").values())[-len(left_index) :] == left_index


def test_odd_puts(tmp_path: Path) -> None:
    """Equal until the first put we refuse; from there on equal but for the places."""
    facts = golden.manifest("odd")
    theirs = golden.restore("odd", tmp_path / "theirs")
    ours = tmp_path / "ours"
    got = replayed(ours, facts)
    first = min(number for store, number in PUT_DIFFERENCES if store == "odd")
    assert got[:first] == [recorded(put) for put in facts.puts[:first]]
    for number, put in enumerate(facts.puts):
        expected = recorded(put)
        if ("odd", number) in PUT_DIFFERENCES:
            assert got[number] == (PUT_DIFFERENCES["odd", number][0],)
        elif len(expected) == 1:
            assert got[number] == expected, number
        else:
            status, _, size, _, store_timestamp, queue_offset, count = expected
            assert (got[number][0], got[number][2], *got[number][4:]) == (
                status,
                size,
                store_timestamp,
                queue_offset,
                count,
            ), number
    result = facts.puts[first].result.append
    assert result is not None
    log = "commitlog/00000000000000000000"
    assert (ours / log).read_bytes()[: result.wrote_offset] == (theirs / log).read_bytes()[: result.wrote_offset]
    untouched = ["Odd/0", "Odd/1", "Odd/2", "Odd/123456789", "Odd/2147483647", "T" * 127 + "/0"]
    for queue in untouched:
        assert golden.content(ours / "consumequeue" / queue) == golden.content(theirs / "consumequeue" / queue)


def resent(message: StoredMessage) -> Message:
    """A record of a broker, as the broker handed it to its store: a parked one still with its own topic."""
    topic, queue_id, encoded = message.topic, message.queue_id, message.property_bytes
    if topic == SCHEDULE_TOPIC:
        properties = dict(message.properties)
        topic, queue_id = properties.pop(REAL_TOPIC), int(properties.pop(REAL_QUEUE_ID))
        encoded = encode_properties(properties)
    return Message(
        topic,
        message.body,
        queue_id=queue_id,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        encoded_properties=encoded,
    )


def was_delivered(message: StoredMessage) -> bool:
    """Came out of the schedule topic: RocketMQ leaves DELAY in the record, and must not park it again."""
    return message.topic != SCHEDULE_TOPIC and int(message.properties.get(DELAY, "0")) > 0


def records_of(store: Path, facts: golden.Manifest) -> Iterator[StoredMessage]:
    settings = StoreSettings.from_properties(facts.properties())
    with MessageStore.open(store, settings, read_only=True, clock=ManualClock(facts.last_store_time())) as opened:
        yield from list(opened.scan())


@pytest.mark.parametrize("name", golden.BROKER_STORES)
def test_records_of_a_broker_give_the_same_log(name: str, tmp_path: Path) -> None:
    facts = golden.manifest(name)
    theirs = golden.restore(name, tmp_path / "theirs")
    clock = ManualClock(0)
    with fresh(tmp_path / "ours", facts, clock) as store:
        for message in records_of(theirs, facts):
            clock.set(message.store_timestamp)
            append = store.internal.append if was_delivered(message) else store.append
            receipt = append(resent(message))
            assert (receipt.physical_offset, receipt.queue_offset) == (
                message.physical_offset,
                message.queue_offset,
            )
    assert golden.content(tmp_path / "ours" / "commitlog") == golden.content(theirs / "commitlog")
    if name not in NOT_FROM_THE_LOG:
        assert_same_files(tmp_path / "ours", theirs)


def log_only(name: str, directory: Path) -> Path:
    """A copy of which only log and config are left."""
    copy = golden.restore(name, directory)
    for path in copy.iterdir():
        if path.name not in ("commitlog", "config"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return copy


FROM_THE_LOG = [name for name in golden.CLEAN_STORES if name not in NOT_FROM_THE_LOG]


@pytest.mark.parametrize(
    ("name", "kernels"),
    [(name, "never") for name in FROM_THE_LOG]
    + [(name, "always") for name in FROM_THE_LOG if name != "default-size"],  # 1 GiB to walk: once is enough.
)
def test_log_gives_the_same_queues_and_index(name: str, kernels: str, tmp_path: Path) -> None:
    """By the plain walk and by the compiled one."""
    facts = golden.manifest(name)
    theirs = golden.restore(name, tmp_path / "theirs")
    ours = log_only(name, tmp_path / "ours")
    with fresh(ours, facts, ManualClock(facts.last_store_time() + 1), emberKernels=kernels):
        pass
    for family in ("commitlog", "consumequeue"):
        assert golden.content(ours / family) == golden.content(theirs / family), family
    assert golden.content(ours / "index", names=False) == golden.content(theirs / "index", names=False)


def queue_entries(queue: Path) -> dict[int, tuple[int, int, int]]:
    """Queue offset -> entry, of all files of a queue."""
    entries: dict[int, tuple[int, int, int]] = {}
    for path in sorted(queue.iterdir()):
        first = int(path.name) // ENTRY_BYTES
        entries.update({first + n: entry for n, entry in enumerate(ENTRY.iter_unpack(path.read_bytes()))})
    return entries


def test_log_of_deleted_segments_gives_the_queues_from_their_minimum(tmp_path: Path) -> None:
    facts = golden.manifest("deleted-segments")
    theirs = golden.restore("deleted-segments", tmp_path / "theirs")
    ours = log_only("deleted-segments", tmp_path / "ours")
    with fresh(ours, facts, ManualClock(facts.last_store_time() + 1)) as store:
        for row in facts.answers.queues:
            assert (store.min_offset(row.topic, row.queue_id), store.max_offset(row.topic, row.queue_id)) == (
                row.min,
                row.max,
            )
    for row in facts.answers.queues:
        queue = f"consumequeue/{row.topic}/{row.queue_id}"
        mine, reference = queue_entries(ours / queue), queue_entries(theirs / queue)
        for n in range(row.min, row.max):
            assert mine[n] == reference[n], (queue, n)


def test_log_of_cqext_gives_queues_without_bit_maps(tmp_path: Path) -> None:
    """Extension entries come back with tag code and time; only the bit maps need the broker."""
    facts = golden.manifest("cqext")
    theirs = golden.restore("cqext", tmp_path / "theirs")
    ours = log_only("cqext", tmp_path / "ours")
    with fresh(ours, facts, ManualClock(facts.last_store_time() + 1)) as store:
        for row in facts.answers.queues:
            assert store.max_offset(row.topic, row.queue_id) == row.max
    for row in facts.answers.queues:
        queue = f"consumequeue/{row.topic}/{row.queue_id}"
        mine, reference = queue_entries(ours / queue), queue_entries(theirs / queue)
        assert [mine[n][:2] for n in range(row.max)] == [reference[n][:2] for n in range(row.max)]
    assert golden.content(ours / "index", names=False) == golden.content(theirs / "index", names=False)
