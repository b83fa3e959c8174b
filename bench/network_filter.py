"""SQL92 filters over the network: a consumer that wants one message in a hundred, beside one that wants all of them.

1 KiB messages of one queue in the page cache, with the properties Java clients give them and one of its own. A consumer
pulls 32 at a time over one connection, from offset 0 to the end of the queue: once everything, once by the expression
`kind = 'rare'`, which one message in a hundred meets. What is timed is the whole way from the first pull to the last.
"""

import hashlib
import json
import socket
import struct
import time
from typing import Any

from bench.answers import DIGITS
from bench.course import Course
from bench.figures import Figure, at_least
from bench.network import servers as kinds
from bench.network.beside import OURS, collect, in_turn, over, present, ratio_figures, rounds_of, running, values
from bench.network.generator import Load
from bench.network.plain_load import cpu_seconds, frame
from bench.network.servers import Server
from embermq.format.client_batch import encode_batch_items
from embermq.model.message import BatchItem

NAME = "network_filter"
ABOUT = "a SQL92 filter that one message in a hundred passes"
CASE = "SQL92, 1 % of 1 KiB messages"
SETTINGS = {"enablePropertyFilter": "true"}
EVERYTHING, RARE = ("TAG", "*"), ("SQL92", "kind = 'rare'")
FASTER = at_least(5)  # than delivering everything
BESIDE = at_least(2)  # RocketMQ's rate
TOPIC, BATCH, ONE_IN = "filtered", 100, 100
_FOUND, _NOT_FOUND, _RETRY, _SECONDS_MAX = 0, 19, 20, 60.0


def run(course: Course) -> list[Figure]:
    peers, lacking = present(course, (kinds.ROCKETMQ,))
    found, hashes = collect(), set()
    for number in range(rounds_of(course)):
        with course.scratch() as scratch, running(course, scratch, peers, SETTINGS) as servers:
            for server in servers:
                _fill(server, course.amount(500, 40_000))
            for server in in_turn(servers, number):
                course.note(f"{NAME}: {server.name}, round {number + 1}")
                for kind, wanted in (("all", EVERYTHING), ("filtered", RARE)):
                    _pull(server, wanted)  # once before it is measured
                    told = _pull(server, wanted)
                    found[kind][server.name].append(told)
                    hashes.add((kind, told["messages"], told["answer"]))
    assert len(hashes) == 2, f"different messages were delivered: {sorted(hashes)}"
    figures = [
        Figure(
            CASE,
            f"{name}, {kind}",
            "msg/s looked through",
            values(runs, "per_second"),
            answer=runs[0]["answer"] if kind == "filtered" else "",
        )
        for kind, of_servers in found.items()
        for name, runs in of_servers.items()
    ]
    figures += [
        Figure(CASE, f"{name}, filtered, server CPU", "µs per msg", values(runs, "server_cpu_us"))
        for name, runs in found["filtered"].items()
    ]
    for name, runs in found["filtered"].items():
        faster = over(values(runs, "per_second"), values(found["all"][name], "per_second"))
        figures.append(Figure(CASE, f"{name}, filtered / all", "x", faster, FASTER if name == OURS else None))
    return figures + ratio_figures(CASE, "filtered", found["filtered"], "per_second", target=BESIDE, lacking=lacking)


def _fill(server: Server, count: int) -> None:
    """Messages in batches, until all of them can be pulled."""
    link = _Link(server.port)
    for first in range(0, count, BATCH):
        items = [
            BatchItem(
                f"{n:012d}:".encode() + bytes(1011),
                {
                    "KEYS": f"order-{n:012d}",
                    "UNIQ_KEY": f"7F0000010001639CFE2B{n:012d}",
                    "WAIT": "true",
                    "TAGS": "paid",
                    "kind": "rare" if n % ONE_IN == 0 else "usual",
                },
            )
            for n in range(first, min(first + BATCH, count))
        ]
        fields = {"a": "bench_producer", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0"}
        fields |= {"g": str(int(time.time() * 1000)), "h": "0", "i": "", "j": "0", "k": "false", "m": "true"}
        header, _ = link.ask(320, fields, encode_batch_items(items))
        if header["code"] != 0:
            raise RuntimeError(f"{server.name}: a batch was answered with {header}")
    deadline = time.monotonic() + _SECONDS_MAX
    while int(link.ask(30, {"topic": TOPIC, "queueId": "0"})[0]["extFields"]["offset"]) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{server.name}: {count} messages were sent, and cannot be pulled")
        time.sleep(0.05)
    link.close()


def _pull(server: Server, wanted: tuple[str, str]) -> Load:
    """Everything from offset 0 to the end of the queue that `wanted` asks for."""
    link, offset, delivered = _Link(server.port), 0, hashlib.sha256()
    cpu, began = cpu_seconds(server.pid), time.perf_counter()
    while True:
        header, body = link.ask(11, _pull_fields(offset, wanted))
        if header["code"] == _NOT_FOUND:
            break
        if header["code"] not in (_FOUND, _RETRY):
            raise RuntimeError(f"{server.name}: a pull was answered with {header}")
        delivered.update(_bodies(body))
        offset = int(header["extFields"]["nextBeginOffset"])
    seconds, used = time.perf_counter() - began, cpu_seconds(server.pid) - cpu
    link.close()
    answer = delivered.hexdigest()[:DIGITS]
    return {"messages": offset, "per_second": offset / seconds, "server_cpu_us": used * 1e6 / offset, "answer": answer}


def _pull_fields(offset: int, wanted: tuple[str, str]) -> dict[str, str]:
    fields = {"consumerGroup": "bench_consumer", "topic": TOPIC, "queueId": "0", "queueOffset": str(offset)}
    fields |= {"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0"}
    return fields | {"subVersion": "0", "expressionType": wanted[0], "subscription": wanted[1]}


def _bodies(records: bytes) -> bytes:
    """The numbers of the messages: what begins their bodies."""
    found, at = [], 0
    while at < len(records):
        found.append(records[at + 88 : at + 100])
        at += struct.unpack_from(">i", records, at)[0]
    return b"".join(found)


class _Link:
    """One connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        whole = {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 1, "version": 409}
        self._socket.sendall(frame(json.dumps(whole | {"serializeTypeCurrentRPC": "JSON"}).encode(), body))
        size, header = struct.unpack(">ii", self._file.read(8))
        return json.loads(self._file.read(header)), self._file.read(size - 4 - header)

    def close(self) -> None:
        self._file.close()
        self._socket.close()
