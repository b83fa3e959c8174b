"""A store as lines of JSON: what is chosen, in which order, and what happens at damaged places."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.format.message_json import KEYS, BodyForm
from embermq.inspect.dump import Dump, DumpFilter
from embermq.inspect.snapshot import DamagedRange, Survey
from tests.support import golden

SMALL = StoreSettings(
    segment_bytes=8192,
    queue_file_bytes=2000,
    index_slots_max=100,
    index_entries_max=400,
    disk_full_percent=100,
    disk_clean_percent=100,
)


def dumped(path: Path, form: BodyForm = BodyForm.BASE64, **wanted: Any) -> list[dict[str, Any]]:
    job = Dump(Survey.open(path), DumpFilter(**wanted), form)
    text = b""
    for piece in job.pieces():
        assert not isinstance(piece, DamagedRange), piece
        text += bytes(piece)
    lines = [json.loads(line) for line in text.splitlines()]
    assert len(lines) == job.messages
    return lines


class SteppingClock:
    """One second a message."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return 0.0

    def local_stamp(self, ms: int) -> str:
        return f"{ms:017d}"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """200 messages, a second apart: topics a and bb in turn, queues 0 to 3, tags x, y and none."""
    clock = SteppingClock()
    with MessageStore.open(tmp_path / "store", SMALL, clock=clock) as opened:
        for number in range(200):
            tags = ("x", "y", None)[number % 3]
            topic = ("a", "bb")[number % 2]
            opened.append(Message(topic, b"body %d" % number, tags=tags, queue_id=number % 4, keys=[f"k{number}"]))
            clock.ms += 1000
    return tmp_path / "store"


@pytest.fixture(params=["plain", "kernel"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(Dump, "_prefers_kernel", lambda _self: request.param == "kernel")
    return str(request.param)


@pytest.mark.parametrize("name", golden.ALL_STORES)
@pytest.mark.slow(8)
def test_every_record_of_rocketmq(name: str, way: str, tmp_path: Path) -> None:
    path = golden.restore(name, tmp_path)
    before = golden.tree_state(path)
    lines = dumped(path, BodyForm.RAW)
    expected = [record for record in golden.manifest(name).records if not record.blank]
    assert len(lines) == len(expected)
    for line, record in zip(lines, expected, strict=True):
        assert tuple(key for key in line if key in KEYS) == KEYS
        assert line["topic"] == record.topic
        assert (line["queueId"], line["queueOffset"]) == (record.queue_id, record.queue_offset)
        assert (line["physicalOffset"], line["size"], line["msgId"]) == (record.phy, record.size, record.offset_msg_id)
        assert (line["flag"], line["sysFlag"]) == (record.flag, record.sys_flag)
        assert (line["bornTimestamp"], line["storeTimestamp"]) == (record.born_timestamp, record.store_timestamp)
        assert line["bornHost"] == str(golden.host(record.born_host))
        assert line["storeHost"] == str(golden.host(record.store_host))
        assert line["reconsumeTimes"] == record.reconsume_times
        assert line["preparedTransactionOffset"] == record.prepared_transaction_offset
        assert line["bodyCrc"] == record.body_crc
        body = base64.b64decode(line["body"])
        assert len(body) == record.body_len
        if record.body_hex is not None:
            assert body.hex().startswith(record.body_hex)
    assert golden.tree_state(path) == before, "a dump writes nothing"


def test_everything_in_order(store: Path, way: str) -> None:
    lines = dumped(store, BodyForm.TEXT)
    assert [line["body"] for line in lines] == [f"body {number}" for number in range(200)]
    offsets = [line["physicalOffset"] for line in lines]
    assert offsets == sorted(offsets)
    assert len(Survey.open(store).segments) > 2, "more than one file is asked for here"


def test_filters(store: Path, way: str) -> None:
    lines = dumped(store)
    cases: list[tuple[dict[str, Any], Callable[[dict[str, Any]], bool]]] = [
        ({"topic": "a"}, lambda line: line["topic"] == "a"),
        ({"topic": "b"}, lambda line: False),
        ({"queue_id": 2}, lambda line: line["queueId"] == 2),
        ({"topic": "bb", "queue_id": 3}, lambda line: line["queueId"] == 3),
        ({"tags": frozenset({"x"})}, lambda line: line["tags"] == "x"),
        ({"tags": frozenset({"x", "y"})}, lambda line: line["tags"] is not None),
        ({"tags": frozenset({"xx"})}, lambda line: False),
        ({"since_ms": 1_700_000_150_000}, lambda line: line["storeTimestamp"] >= 1_700_000_150_000),
        ({"until_ms": 1_700_000_050_000}, lambda line: line["storeTimestamp"] < 1_700_000_050_000),
        (
            {"since_ms": 1_700_000_050_000, "until_ms": 1_700_000_060_000, "tags": frozenset({"y"})},
            lambda line: 1_700_000_050_000 <= line["storeTimestamp"] < 1_700_000_060_000 and line["tags"] == "y",
        ),
        ({"start": lines[7]["physicalOffset"]}, lambda line: line["physicalOffset"] >= lines[7]["physicalOffset"]),
        ({"start": lines[7]["physicalOffset"] + 1}, lambda line: line["physicalOffset"] > lines[7]["physicalOffset"]),
        ({"start": 1 << 40}, lambda line: False),
    ]
    for wanted, expected in cases:
        assert dumped(store, **wanted) == [line for line in lines if expected(line)], wanted


@pytest.mark.parametrize("limit", [0, 1, 63, 200, 1000])
def test_a_limit(store: Path, way: str, limit: int) -> None:
    assert dumped(store, limit=limit) == dumped(store)[:limit]
    assert dumped(store, limit=limit, topic="bb") == dumped(store, topic="bb")[:limit]


def test_a_clock_that_was_set_back_hides_nothing(tmp_path: Path) -> None:
    clock = SteppingClock()
    times = [0, 600_000, 1_200_000, 60_000, 120_000, 1_260_000]  # Twenty minutes back in the middle.
    with MessageStore.open(tmp_path / "store", SMALL, clock=clock) as opened:
        for number, at in enumerate(times):
            clock.ms = 1_700_000_000_000 + at
            for _ in range(40):
                opened.append(Message("t", b"%d" % number))
    lines = dumped(tmp_path / "store", BodyForm.TEXT, since_ms=1_700_000_060_000, until_ms=1_700_000_600_000)
    assert [line["body"] for line in lines] == ["3"] * 40 + ["4"] * 40


@pytest.mark.parametrize("place", ["middle", "missing"])
def test_damage_is_told_and_everything_else_dumped(store: Path, way: str, place: str) -> None:
    lines = dumped(store)
    files = sorted((store / "commitlog").iterdir())
    if place == "missing":
        files[1].unlink()
        lost = {line["physicalOffset"] for line in lines if 8192 <= line["physicalOffset"] < 16384}
    else:
        victim = lines[20]
        raw = bytearray(files[0].read_bytes())
        raw[victim["physicalOffset"] + 90] ^= 0xFF
        files[0].write_bytes(raw)
        lost = {victim["physicalOffset"]}
    job = Dump(Survey.open(store))
    pieces = [piece if isinstance(piece, DamagedRange) else bytes(piece) for piece in job.pieces()]
    damages = [piece for piece in pieces if isinstance(piece, DamagedRange)]
    text = b"".join(piece for piece in pieces if isinstance(piece, bytes))
    kept = [line for line in lines if line["physicalOffset"] not in lost]
    assert [json.loads(line) for line in text.splitlines()] == kept
    assert len(damages) == 1
    assert damages[0].start == min(lost)
    assert damages[0].reason


def test_bodies_that_do_not_decompress_are_counted(tmp_path: Path, way: str) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as opened:
        opened.append(Message("t", b"no zlib at all", sys_flag=1))
        opened.append(Message("t", b"plain"))
    job = Dump(Survey.open(tmp_path / "store"), form=BodyForm.TEXT)
    text = b"".join(bytes(piece) for piece in job.pieces() if not isinstance(piece, DamagedRange))
    assert [json.loads(line)["body"] for line in text.splitlines()] == ["no zlib at all", "plain"]
    assert job.broken_bodies == 1


def test_a_store_that_is_being_written(tmp_path: Path, way: str) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as opened:
        for number in range(50):
            opened.append(Message("t", b"%d" % number))
        lines = dumped(tmp_path / "store", BodyForm.TEXT)
        assert [line["body"] for line in lines] == [str(number) for number in range(50)]
        opened.append(Message("t", b"more"))
        assert dumped(tmp_path / "store", BodyForm.TEXT)[-1]["body"] == "more"


def test_the_kernel_is_for_long_logs(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embermq.columns.choosing.is_loaded", lambda _name: False)
    job = Dump(Survey.open(store))
    list(job.pieces())
    assert not job._prefers_kernel()
    job.end = 1 << 40
    assert job._prefers_kernel()
    job.wanted = DumpFilter(limit=10)
    assert not job._prefers_kernel()
