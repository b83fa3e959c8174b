"""The load generator: it compiles without a warning, both forms of it agree, and it believes no wrong answer."""

import json
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.network import generator, plain_load
from bench.network.generator import LoadFailed, LoadMissing, load
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.bench

Json = dict[str, Any]
Reply = Callable[[Json], list[Json]]
needs_compiler = pytest.mark.skipif(generator.compiler() is None, reason="no C compiler here")
FORMS = [pytest.param(True, id="C", marks=needs_compiler), pytest.param(False, id="Python")]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Each test with the compiled generator, and with the one for machines without a compiler."""
    if not request.param:
        monkeypatch.setattr(generator, "program", lambda: None)
    return bool(request.param)


@needs_compiler
@pytest.mark.slow(3)
def test_the_source_has_no_warnings(tmp_path: Path) -> None:
    found = generator.compiler()
    assert found is not None
    generator.compile_to(tmp_path / "loadgen", found, "-Werror")
    assert (tmp_path / "loadgen").stat().st_size > 0


def test_without_a_compiler_the_other_modes_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "program", lambda: None)
    with pytest.raises(LoadMissing, match="apt-get install gcc"):
        load("deliver", 1)


@pytest.mark.slow(4)
def test_messages_sent_are_read_back_the_same_by_both_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    forms = [None, generator.program()]
    with BrokerProcess(tmp_path) as broker:
        port, pid = int(broker.address.rpartition(":")[2]), broker.process.pid
        for number, built in enumerate(forms):
            monkeypatch.setattr(generator, "program", lambda built=built: built)
            topic = f"form-{number}"
            sent = load("send", port, pid=pid, topic=topic, connections=2, window=8, messages=150, warm_up=20, body=300)
            assert (sent["gaps"], sent["busy"], sent["next_number"]) == (0, 0, 174)
            assert sent["server_cpu_us"] > 0
            assert 0 < sent["latency_p50_us"] <= sent["latency_p99_us"] <= sent["latency_max_us"]
            told += [load("pull", port, topic=topic, messages=174)]
            monkeypatch.setattr(generator, "program", lambda built=forms[1 - number]: built)
            told += [load("pull", port, topic=topic, messages=174)]
    assert {one["messages"] for one in told} == {174}
    assert len({one["answer"] for one in told}) == 1


@needs_compiler
@pytest.mark.slow(4)
def test_delivery_queries_and_idle_connections(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        port, pid = int(broker.address.rpartition(":")[2]), broker.process.pid
        delivered = load("deliver", port, pid=pid, topic="deliver", rate=500, messages=100, warm_up=10)
        assert 0 < delivered["delivery_p50_us"] <= delivered["delivery_p99_us"]
        load("send", port, pid=pid, topic="keys", window=16, messages=96)
        queried = load("query", port, pid=pid, topic="keys", messages=100, rate=50)
        assert queried["queries"] == 50
        held = load("hold", port, pid=pid, connections=20, hold_ms=10)
        assert held["held"] == 20
        beside = load(
            "send", port, pid=pid, topic="beside", window=4, messages=40, held_pulls=40, held_connections=4, hold_ms=50
        )
        assert beside["held_answered"] == 0
        first = load("first", port, topic="first")
        assert first["connected_ns"] < first["acknowledged_ns"]


# -- answers that are wrong ----------------------------------------------------------------------------------


def good(header: Json, offset: int = 0) -> Json:
    fields = header["extFields"]
    found = {"queueId": fields["e"], "queueOffset": str(offset), "msgId": "0"}
    return {"code": 0, "flag": 1, "opaque": header["opaque"], "language": "JAVA", "version": 409, "extFields": found}


@contextmanager
def answering(reply: Reply, body: bytes = b"") -> Iterator[int]:
    """A server that answers each request of one connection with the headers `reply` gives."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            link, _ = listening.accept()
            data = bytearray()
            with link:
                while piece := link.recv(1 << 16):
                    data += piece
                    for asked in plain_load.answers(data):
                        for header in reply(asked.header):
                            link.sendall(plain_load.frame(json.dumps(header).encode(), body))

        def quietly() -> None:
            try:
                serve()
            except OSError:
                pass  # The generator has seen enough and is gone.

        thread = threading.Thread(target=quietly, daemon=True)
        thread.start()
        yield int(listening.getsockname()[1])
    thread.join(10)


WRONG_SENDS: dict[str, tuple[Reply, str]] = {
    "a code": (lambda asked: [good(asked) | {"code": 1}], "code 1"),
    "an opaque": (lambda asked: [good(asked) | {"opaque": 77}], "opaque 77, which was not asked"),
    "a queue": (lambda asked: [good(asked) | {"extFields": {"queueId": "9", "queueOffset": "0"}}], "queue 9"),
    "twice": (lambda asked: [good(asked), good(asked)], "which was not asked"),
    "nothing": (lambda asked: [], "no answer for 0.3 s"),
}


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("name", WRONG_SENDS)
def test_a_wrong_acknowledgement_ends_the_run(name: str) -> None:
    reply, words = WRONG_SENDS[name]
    with answering(reply) as port, pytest.raises(LoadFailed, match=words):
        load("send", port, messages=8, queues=1, no_create=True, settle_ms=0, stall_ms=300)


@pytest.mark.usefixtures("form")
def test_an_offset_given_twice_and_one_that_is_missing() -> None:
    with answering(lambda asked: [good(asked, 5)]) as port, pytest.raises(LoadFailed, match="two messages"):
        load("send", port, messages=4, queues=1, no_create=True, settle_ms=0)
    offsets = iter([0, 1, 4, 5])
    with answering(lambda asked: [good(asked, next(offsets))]) as port:
        told = load("send", port, messages=4, queues=1, no_create=True, settle_ms=0)
    assert told["gaps"] == 2


@pytest.mark.usefixtures("form")
def test_a_busy_server_gets_the_message_again() -> None:
    codes = iter([2, 2, 0, 0])
    offsets = iter([7, 7, 7, 8])
    with answering(lambda asked: [good(asked, next(offsets)) | {"code": next(codes)}]) as port:
        told = load("send", port, messages=2, queues=1, no_create=True, settle_ms=0)
    assert (told["busy"], told["gaps"]) == (2, 0)


def record(offset: int, *, crc: int | None = None, magic: int = 0xDAA320A7) -> bytes:
    body = plain_load.body_of(offset, 40)
    rest = body + bytes([1]) + b"T" + struct.pack(">h", 0)
    summed = zlib.crc32(body) & 0x7FFFFFFF if crc is None else crc
    head = struct.pack(">IIiiq", magic, summed, 0, 0, offset) + bytes(88 - 32) + struct.pack(">i", len(body))
    return struct.pack(">i", 4 + len(head) + len(rest)) + head + rest


def pulled(asked: Json, next_offset: int) -> Json:
    fields = {"nextBeginOffset": str(next_offset), "minOffset": "0", "maxOffset": "9", "suggestWhichBrokerId": "0"}
    return {"code": 0, "flag": 1, "opaque": asked["opaque"], "language": "JAVA", "version": 409, "extFields": fields}


WRONG_RECORDS = {
    "the sum": (record(0, crc=1), "checksum"),
    "the magic number": (record(0, magic=1), "magic number 00000001"),
    "the offset": (record(3), "was asked"),
}


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("name", WRONG_RECORDS)
def test_a_wrong_record_ends_the_run(name: str) -> None:
    body, words = WRONG_RECORDS[name]
    with answering(lambda asked: [pulled(asked, 1)], body) as port, pytest.raises(LoadFailed, match=words):
        load("pull", port, messages=1, queues=1)


@pytest.mark.usefixtures("form")
def test_right_records_are_counted() -> None:
    body = record(0) + record(1)
    with answering(lambda asked: [pulled(asked, 2)], body) as port:
        told = load("pull", port, messages=2, queues=1)
    assert told["messages"] == 2
