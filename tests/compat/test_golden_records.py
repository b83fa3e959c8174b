"""The bytes of the golden stores against the format layer: no store is opened here.

Every record decodes as RocketMQ decodes it and encodes back to the same bytes; the property codec, ids,
tag codes, blanks, index files and config files agree with what RocketMQ wrote.
"""

import hashlib
import zlib
from pathlib import Path

import msgspec
import numpy as np
import pytest

from embermq.columns.plain.derive import put_rows
from embermq.columns.plain.scan import scan_rows
from embermq.columns.rows import C_PHYSICAL, C_SIZE, C_TAG_CODE, RecordColumns, new_rows
from embermq.errors import PropertyInvalid
from embermq.format import frame
from embermq.format import index as index_format
from embermq.format import queue_extension as extension
from embermq.format.checkpoint import decode_checkpoint
from embermq.format.client_batch import decode_batch_items, encode_batch_items
from embermq.format.config_json import format_config, parse_config
from embermq.format.frame import Frame, Padding
from embermq.format.names import segment_name
from embermq.format.queue_extension import BloomFilter, ExtensionEntry
from embermq.model.ids import message_id, parse_message_id
from embermq.model.properties import decode_properties, encode_properties
from tests.support import golden

DELAY_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

# Where encode_properties and RocketMQ part ways. Strings that come encoded are stored as they are.
PROPERTY_DIFFERENCES = {
    ("odd", 1): "empty values are refused: no reader gives them back",
    ("odd", 12): "an empty name or value and a separator in a name are refused: they read back as others",
    ("odd", 25): "twelve names with one hash: Java makes a tree of them, whose order we do not repeat",
}


def delay_ms(facts: golden.Manifest) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    levels = str(facts.settings.get("messageDelayLevel", DEFAULT_LEVELS)).split(" ")
    return np.array([int(level[:-1]) * DELAY_UNITS_MS[level[-1]] for level in levels], dtype=np.int64)


def encode_again(record: Frame) -> bytes:
    return frame.encode(
        physical_offset=record.physical_offset,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        topic=record.topic,
        body=record.body,
        properties=record.properties,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_timestamp=record.store_timestamp,
        store_host=record.store_host,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )


def as_manifest(record: Frame) -> golden.Record:
    """The record in the words of a manifest. Tag codes have their own test; null texts are the manifest's."""
    text = record.properties.decode()
    return golden.Record(
        phy=record.physical_offset,
        size=record.size,
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        flag=record.flag,
        sys_flag=record.sys_flag,
        body_crc=record.body_crc,
        body_len=len(record.body),
        body_hex=bytes(record.body).hex() if len(record.body) <= 64 else None,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_timestamp=record.store_timestamp,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        properties_string=text if len(record.properties) <= 4096 else None,
        properties_len=len(record.properties),
        properties_crc32=zlib.crc32(record.properties),
        offset_msg_id=message_id(record.store_host, record.physical_offset),
    )


def comparable(record: golden.Record) -> golden.Record:
    if record.blank:
        return record
    hosts = {"born_host": golden.host(record.born_host), "store_host": golden.host(record.store_host)}
    return msgspec.structs.replace(record, tags_code=0, **hosts)


def walk(store: Path, log_end: int) -> tuple[list[golden.Record], list[tuple[bytes, Frame]]]:
    """All records and blanks of the log, by the plain decoder; and each record with its bytes."""
    met: list[golden.Record] = []
    frames: list[tuple[bytes, Frame]] = []
    for start, data in golden.segments(store):
        at = 0
        while at < len(data):
            verdict = frame.decode(data, at, len(data), physical_offset=start + at, check_crc=True)
            match verdict:
                case Frame():
                    met.append(as_manifest(verdict))
                    frames.append((data[at : at + verdict.size], verdict))
                    at += verdict.size
                case Padding():
                    assert verdict.end == len(data)
                    assert data[at : at + 8] == frame.encode_blank(len(data) - at)
                    met.append(golden.Record(phy=start + at, blank=True))
                    break
                case frame.End():
                    break
                case _:  # Lost pages: where RocketMQ finds the end, too.
                    assert start + at == log_end, f"{verdict} in the file that starts at {start}"
                    return met, frames
    return met, frames


@pytest.mark.parametrize("name", golden.ALL_STORES)
def test_archive_is_what_the_manifest_describes(name: str, tmp_path: Path) -> None:
    """Contents by SHA-256, so that no later change of the archives goes unseen; huge files by length."""
    facts = golden.manifest(name)
    trees = [("store", facts.files)]
    if facts.recovered:
        trees.append(("after", facts.recovered.files_after))
    for tree, files in trees:
        copy = golden.restore(name, tmp_path, tree)
        assert {p.relative_to(copy).as_posix() for p in copy.rglob("*") if p.is_file()} == {f.path for f in files}
        for file in files:
            stat = (copy / file.path).stat()
            assert (stat.st_size, stat.st_mtime_ns) == (file.size, file.mtime_ms * 1_000_000)
            if file.size < 64 << 20:
                assert hashlib.sha256((copy / file.path).read_bytes()).hexdigest() == file.sha256


@pytest.mark.parametrize("name", golden.ALL_STORES)
def test_records_decode_as_in_rocketmq_and_encode_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    facts = golden.manifest(name)
    met, frames = walk(golden.restore(name, tmp_path), facts.answers.max_phy_offset)
    assert met == [comparable(record) for record in facts.records]
    for raw, record in frames:
        assert encode_again(record) == raw
        place = (record.store_host, record.physical_offset)
        assert parse_message_id(message_id(*place)) == place


@pytest.mark.parametrize("name", golden.ALL_STORES)
def test_tag_codes(name: str, tmp_path: Path) -> None:
    """Also due times: the code of a parked record is when to deliver it."""
    facts = golden.manifest(name)
    got: list[tuple[int, int, int]] = []
    for start, data in golden.segments(golden.restore(name, tmp_path)):
        rows = new_rows(len(facts.records))
        count, _, _ = scan_rows(data, start, 0, len(data), rows, delay_ms(facts), True, True)
        got += [(int(row[C_PHYSICAL]), int(row[C_SIZE]), int(row[C_TAG_CODE])) for row in rows[:count]]
    assert got == [(record.phy, record.size, record.tags_code) for record in facts.records if not record.blank]


@pytest.mark.parametrize("name", golden.ALL_STORES)
def test_log_files_are_the_records_one_after_another(name: str, tmp_path: Path) -> None:
    """Records, a blank where the next one does not fit, zeros: nothing else is in a log file."""
    store = golden.restore(name, tmp_path)
    facts = golden.manifest(name)
    _, frames = walk(store, facts.answers.max_phy_offset)
    encoded = {record.physical_offset: encode_again(record) for _, record in frames}
    blanks = {record.phy for record in facts.records if record.blank}
    for start, data in golden.segments(store):
        image = bytearray(len(data))
        for physical, raw in encoded.items():
            if start <= physical < start + len(data):
                image[physical - start : physical - start + len(raw)] = raw
        for physical in blanks:
            if start <= physical < start + len(data):
                image[physical - start : physical - start + 8] = frame.encode_blank(start + len(data) - physical)
        sound = len(data) if facts.log_zeroed_from is None else max(0, facts.answers.max_phy_offset - start)
        assert image[:sound] == data[:sound], f"the file that starts at {start}"


@pytest.mark.parametrize("name", [*golden.PUT_STORES, *golden.UNCLEAN_STORES])
def test_property_strings_of_puts(name: str) -> None:
    """The same names and values in the same order of setting give Java's property string, byte by byte."""
    for number, put in enumerate(golden.manifest(name).puts):
        for pairs, text in [(put.properties, put.properties_string)] + [
            (item.properties, item.properties_string) for item in put.items
        ]:
            if (name, number) in PROPERTY_DIFFERENCES:
                continue
            assert encode_properties(dict(pairs)) == text.encode(), f"put {number}"
            assert decode_properties(text.encode()) == dict(pairs)


def test_property_differences() -> None:
    puts = golden.manifest("odd").puts
    for number in (1, 12):
        with pytest.raises(PropertyInvalid):
            encode_properties(dict(puts[number].properties))
    ours, theirs = encode_properties(dict(puts[25].properties)), puts[25].properties_string.encode()
    assert ours != theirs
    assert decode_properties(ours) == decode_properties(theirs) == dict(puts[25].properties)


@pytest.mark.parametrize("name", ["batch", "ipv6"])
def test_client_batches(name: str) -> None:
    batches = [put for put in golden.manifest(name).puts if put.kind == "batch"]
    assert batches
    for put in batches:
        items = put.batch().items
        encoded = encode_batch_items(items)
        assert put.encoded_body is not None
        assert (len(encoded), zlib.crc32(encoded)) == (put.encoded_body.len, put.encoded_body.crc32)
        if put.encoded_body.hex is not None:
            assert encoded.hex() == put.encoded_body.hex
        decoded = decode_batch_items(encoded)
        assert [(i.flag, bytes(i.body), i.property_bytes()) for i in decoded] == [
            (i.flag, i.body, i.property_bytes()) for i in items
        ]


@pytest.mark.parametrize("name", sorted({*golden.CLEAN_STORES} - {"default-size", "deleted-segments"}))
def test_index_files(name: str, tmp_path: Path) -> None:
    """The plain index writer, fed with the log, gives RocketMQ's files.

    Left out: `deleted-segments`, whose index still knows the deleted messages, and `default-size` (420 MB).
    """
    store = golden.restore(name, tmp_path)
    facts = golden.manifest(name)
    slots, entries = int(facts.settings["maxHashSlotNum"]), int(facts.settings["maxIndexNum"])
    files = [bytearray(index_format.index_file_bytes(slots, entries))]
    for start, data in golden.segments(store):
        rows = new_rows(len(facts.records))
        count, _, _ = scan_rows(data, start, 0, len(data), rows, delay_ms(facts), True, True)
        columns = RecordColumns(data, start, rows[:count])
        row = key = 0
        while True:
            row, key, _ = put_rows(files[-1], slots, entries, columns, row, key, 0)
            if row == len(columns):
                break
            files.append(rolled_over(files[-1]))
    reference = sorted((store / "index").iterdir())
    assert [bytes(file) for file in files] == [path.read_bytes() for path in reference]


def rolled_over(full: bytearray) -> bytearray:
    """A fresh file begins with the end of the one before it, as in RocketMQ."""
    end = index_format.decode_header(full)
    begin = index_format.IndexHeader(
        end.end_timestamp, end.end_timestamp, end.end_physical, end.end_physical, slot_count=0, count=0
    )
    return bytearray(index_format.encode_header(begin).ljust(len(full), b"\0"))


@pytest.mark.parametrize("name", golden.ALL_STORES)
def test_checkpoints(name: str, tmp_path: Path) -> None:
    times = decode_checkpoint((golden.restore(name, tmp_path) / "checkpoint").read_bytes())
    expected = golden.manifest(name).checkpoint_on_disk
    assert times is not None
    assert (times.log_ms, times.queues_ms, times.index_ms) == (
        expected.physic_msg_timestamp,
        expected.logics_msg_timestamp,
        expected.index_msg_timestamp,
    )


@pytest.mark.parametrize("name", golden.BROKER_STORES)
def test_config_files_read_and_write_back_the_same(name: str, tmp_path: Path) -> None:
    config = golden.restore(name, tmp_path) / "config"
    texts = {path.name: path.read_text() for path in config.iterdir()}
    assert "topics.json" in texts
    assert {file: format_config(parse_config(text)) for file, text in texts.items()} == texts


def test_config_of_delayed_messages(tmp_path: Path) -> None:
    config = golden.restore("delay", tmp_path) / "config"
    assert parse_config((config / "delayOffset.json").read_text()) == {"offsetTable": {1: 10, 2: 4, 3: 4}}


def test_extension_entries(tmp_path: Path) -> None:
    """Entries, placed by our rule one after another, give RocketMQ's files and addresses."""
    store = golden.restore("cqext", tmp_path)
    facts = golden.manifest("cqext")
    file_bytes = int(facts.settings["mappedFileSizeConsumeQueueExt"])
    files: dict[str, bytearray] = {}
    ends: dict[str, int] = {}
    for row in facts.ext_entries:
        queue = f"{row.topic}/{row.queue_id}"
        entry = ExtensionEntry(row.tags_code, row.store_time, bytes.fromhex(row.bitmap or ""))
        assert (row.found, row.size) == (True, entry.size)
        at = ends.get(queue, 0)
        if not extension.fits(entry.size, at % file_bytes, file_bytes):
            full = files[f"{queue}/{segment_name(at - at % file_bytes)}"]
            full[at % file_bytes : at % file_bytes + 2] = extension.END_MARK
            at += file_bytes - at % file_bytes
        assert extension.is_address(row.third)
        assert extension.offset_of(row.third) == at
        file = files.setdefault(f"{queue}/{segment_name(at - at % file_bytes)}", bytearray(file_bytes))
        file[at % file_bytes : at % file_bytes + entry.size] = extension.encode_entry(entry)
        assert extension.decode_entry(file, at % file_bytes, file_bytes) == entry
        ends[queue] = at + entry.size
    root = store / "consumequeue_ext"
    reference = {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    assert {path: bytes(data) for path, data in files.items()} == reference


def test_bloom_filters_let_the_same_entries_pass() -> None:
    facts = golden.manifest("cqext")
    bloom = BloomFilter.sized()
    assert facts.sql_pulls
    for pull in facts.sql_pulls:
        assert bloom.bits == pull.bit_num
        assert bloom.positions(f"{pull.group}#SqlTopic") == pull.bloom_bit_pos
        passing = [
            row.offset
            for row in facts.ext_entries
            if (row.topic, row.queue_id) == ("SqlTopic", pull.queue_id)
            and (
                row.bitmap is None
                or row.store_time <= pull.born_time
                or extension.may_contain(bytes.fromhex(row.bitmap), pull.bloom_bit_pos)
            )
        ]
        assert passing == pull.pass_consume_queue_stage, (pull.group, pull.queue_id)
