"""The load generator where there is no C compiler: a process of Python's over prepared frames, with the same answers.

    python -m bench.network.plain_load send --port 10911 --connections 1 --window 256 --messages 20000
    python -m bench.network.plain_load pull --port 10911 --messages 20000

It sends the frames bench/loadgen sends, made before the clock starts, and checks the same things. One process of Python
takes a good part of a core for it, so its rates say more about itself than about a quick broker.
"""

import argparse
import json
import selectors
import socket
import struct
import sys
import time
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

_READ_BYTES = 1 << 18
_BUSY = 2
_OPAQUE_FIRST = 1_000_000_000
_MAGIC = 0xDAA320A7
_MASK = (1 << 64) - 1
_CPU_CLOCK = 2  # of a whole process, in the way Linux numbers the clocks of processes

Json = dict[str, Any]


class Wrong(Exception):
    """A response that is not the one expected."""


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of another process; 0 for pid 0."""
    return time.clock_gettime((~pid << 3) | _CPU_CLOCK) if pid else 0.0


def frame(header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def body_of(number: int, size: int) -> bytes:
    pattern = bytes((at * 31 + number) & 0xFF for at in range(size))
    return f"{number:012d}:".encode() + pattern[13:]


def send_frame(options: argparse.Namespace, number: int) -> bytes:
    queue = number // options.topics % options.queues
    topic = options.topic if options.topics == 1 else f"{options.topic}-{number % options.topics:04d}"
    properties = f"KEYS\x01order-{number:012d}\x02UNIQ_KEY\x017F0000010001639CFE2B{number:012d}\x02WAIT\x01true"
    fields = {"a": "bench_producer", "b": topic, "c": "TBW102", "d": str(options.queues), "e": str(queue), "f": "0"}
    fields |= {"g": str(int(time.time() * 1000)), "h": "0", "i": f"{properties}\x02TAGS\x01paid", "j": "0"}
    fields |= {"k": "false", "m": "false"}
    return frame(_header(310, fields, _OPAQUE_FIRST + number), body_of(number, options.body))


def _header(code: int, fields: dict[str, str], opaque: int) -> bytes:
    whole = {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": opaque}
    return json.dumps(whole | {"serializeTypeCurrentRPC": "JSON", "version": 409}, separators=(",", ":")).encode()


class Answer(NamedTuple):
    header: Json
    body: bytes


def answers(data: bytearray) -> Iterator[Answer]:
    """Whole frames at the start of `data`, which are taken out of it."""
    while len(data) >= 8:
        size, header = struct.unpack_from(">iI", data)
        if len(data) < size + 4:
            return
        yield Answer(json.loads(bytes(data[8 : 8 + header])), bytes(data[8 + header : size + 4]))
        del data[: size + 4]


class Links:
    """So many connections, and what has arrived on each."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._stall = options.stall_ms / 1000
        self._selector = selectors.DefaultSelector()
        self.sockets = [self._open(options) for _ in range(options.connections)]

    def _open(self, options: argparse.Namespace) -> socket.socket:
        link = socket.create_connection((options.host, options.port), timeout=self._stall)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(link, selectors.EVENT_READ, bytearray())
        return link

    def arrived(self) -> Iterator[tuple[socket.socket, list[Answer]]]:
        ready = self._selector.select(self._stall)
        if not ready:
            raise Wrong(f"no answer for {self._stall:g} s")
        for key, _ in ready:
            link, data = key.fileobj, key.data
            assert isinstance(link, socket.socket)
            piece = link.recv(_READ_BYTES)
            if not piece:
                raise Wrong("the server closed a connection")
            data += piece
            yield link, list(answers(data))

    def close(self) -> None:
        self._selector.close()
        for link in self.sockets:
            link.close()


class Sending:
    """One run of `send`: what waits for its answer, and what was acknowledged."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._waiting: dict[int, tuple[int, float]] = {}
        self.latencies: list[float] = []
        self.offsets: dict[tuple[int, int], list[int]] = {}
        self.busy = 0

    def run(self, links: Links, first: int, count: int) -> None:
        frames = {number: send_frame(self._options, number) for number in range(first, first + count)}
        unsent = iter(list(frames))
        done = 0
        for link in links.sockets:
            for _ in range(self._options.window):
                self._send(link, frames, next(unsent, None))
        while done < count:
            for link, heard in links.arrived():
                for answer in heard:
                    number = self._check(answer.header)
                    if number is not None:
                        self.busy += 1
                        self._send(link, frames, number)
                    else:
                        done += 1
                        self._send(link, frames, next(unsent, None))

    def _send(self, link: socket.socket, frames: dict[int, bytes], number: int | None) -> None:
        if number is not None:
            self._waiting[_OPAQUE_FIRST + number] = (number, time.perf_counter())
            link.sendall(frames[number])

    def _check(self, header: Json) -> int | None:
        """The message to send again where the server is busy."""
        if header["opaque"] not in self._waiting:
            raise Wrong(f"an answer to opaque {header['opaque']}, which was not asked")
        number, sent = self._waiting.pop(header["opaque"])
        if header["code"] == _BUSY:
            return number
        if header["code"] != 0:
            raise Wrong(f"message {number}: the answer has code {header['code']}")
        fields, topics = header["extFields"], self._options.topics
        queue = number // topics % self._options.queues
        if int(fields["queueId"]) != queue:
            raise Wrong(f"message {number} for queue {queue}: the answer says queue {fields['queueId']}")
        self.offsets.setdefault((number % topics, queue), []).append(int(fields["queueOffset"]))
        self.latencies.append(time.perf_counter() - sent)
        return None

    def gaps(self) -> int:
        gaps = 0
        for offsets in self.offsets.values():
            if len(set(offsets)) != len(offsets):
                raise Wrong("a queue offset was given to two messages")
            gaps += max(offsets) - min(offsets) + 1 - len(offsets)
        return gaps


def send(options: argparse.Namespace) -> Json:
    links, sending, at = Links(options), Sending(options), options.first
    for count in (0 if options.no_create else options.topics * options.queues, options.warm_up):
        sending.run(links, at, count)
        at += count
    sending.latencies.clear()
    time.sleep(options.settle_ms / 1000)
    cpu, began = cpu_seconds(options.pid), time.perf_counter()
    sending.run(links, at, options.messages)
    seconds = time.perf_counter() - began
    time.sleep(options.settle_ms / 1000)
    used = cpu_seconds(options.pid) - cpu
    links.close()
    found = {"messages": options.messages, "seconds": seconds, "per_second": options.messages / seconds}
    found |= {"server_cpu_us": used / options.messages * 1e6, "busy": sending.busy, "gaps": sending.gaps()}
    return found | _percentiles(sending.latencies) | {"next_number": at + options.messages}


def _percentiles(seconds: list[float]) -> Json:
    ordered = sorted(seconds)
    parts = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}
    return {f"latency_{name}_us": ordered[round(part * (len(ordered) - 1))] * 1e6 for name, part in parts.items()}


def mix64(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


def pull_frame(options: argparse.Namespace, queue: int, offset: int) -> bytes:
    fields = {"commitOffset": "0", "consumerGroup": "bench_consumer", "expressionType": "TAG", "subscription": "*"}
    fields |= {"maxMsgNums": str(options.batch), "queueId": str(queue), "queueOffset": str(offset), "subVersion": "0"}
    fields |= {"suspendTimeoutMillis": "15000", "sysFlag": "6", "topic": options.topic}
    return frame(_header(11, fields, queue))


def records(body: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(queue, queue offset, sum of the body, bytes of the body) of every record; Wrong for a bad one."""
    at = 0
    while at < len(body):
        size, magic, crc, queue, _, offset = struct.unpack_from(">iIIiiq", body, at)
        (length,) = struct.unpack_from(">i", body, at + 84)
        if magic != _MAGIC or at + size > len(body):
            raise Wrong(f"a record of {size} bytes with the magic number {magic:08x}")
        if zlib.crc32(body[at + 88 : at + 88 + length]) & 0x7FFFFFFF != crc:
            raise Wrong(f"queue {queue} offset {offset}: the checksum of the body is wrong")
        yield queue, offset, crc, length
        at += size


def pull(options: argparse.Namespace) -> Json:
    links = Links(options)
    wanted = dict.fromkeys(range(options.queues), 0)
    by_queue = {queue: links.sockets[queue % options.connections] for queue in wanted}
    latencies: list[float] = []
    asked: dict[int, float] = {}
    messages = answer = 0
    cpu, began = cpu_seconds(options.pid), time.perf_counter()

    def ask(queue: int) -> None:
        asked[queue] = time.perf_counter()
        by_queue[queue].sendall(pull_frame(options, queue, wanted[queue]))

    for queue in wanted:
        ask(queue)
    while messages < options.messages:
        for _, heard in links.arrived():
            for header, body in heard:
                queue = header["opaque"]
                latencies.append(time.perf_counter() - asked[queue])
                if header["code"] not in (0, 19, 20):
                    raise Wrong(f"a pull of queue {queue}: the answer has code {header['code']}")
                for place, offset, crc, length in records(body):
                    if (place, offset) != (queue, wanted[queue]):
                        raise Wrong(f"queue {queue}, offset {wanted[queue]} was asked; {place}, {offset} came")
                    wanted[queue] += 1
                    messages += 1
                    answer += mix64(mix64(crc << 16 | queue) + length)
                ask(queue)
    seconds = time.perf_counter() - began
    used = cpu_seconds(options.pid) - cpu
    links.close()
    found: Json = {"messages": messages, "seconds": seconds, "per_second": messages / seconds}
    found |= {"server_cpu_us": used / messages * 1e6, "answer": f"{answer & _MASK:016x}"}
    return found | _percentiles(latencies)


def _options(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="plain_load")
    parser.add_argument("mode", choices=["send", "pull"])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--wire", choices=["rocketmq"], default="rocketmq")
    parser.add_argument("--no-create", action="store_true")
    numbers = {"port": 10911, "connections": 1, "window": 1, "messages": 10_000, "warm-up": 0, "body": 100, "topics": 1}
    numbers |= {"queues": 4, "first": 0, "batch": 32, "pid": 0, "settle-ms": 200, "stall-ms": 30_000}
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    options = _options(words)
    try:
        print(json.dumps(send(options) if options.mode == "send" else pull(options)))
    except (Wrong, OSError) as problem:
        print(f"plain_load: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
