"""One producer in a process of its own: how long it takes to have its messages acknowledged. A JSON line.

python -m bench.network.python_load NAME_SERVER ours|cpp IN_FLIGHT COUNT BYTES
"""

import asyncio
import json
import sys
import time

TOPIC = "bench"


def body_of(number: int, size: int) -> bytes:
    return b"%010d" % number + b"x" * (size - 10)


def one_by_one(name_server: str, count: int, size: int) -> float:
    from embermq.client import Message, Producer

    with Producer(name_server, "bench") as producer:
        producer.send(Message("warm", b"up"))
        producer.send(Message(TOPIC, body_of(0, size), tags="t"))
        began = time.perf_counter()
        for number in range(1, count):
            producer.send(Message(TOPIC, body_of(number, size), tags="t"))
        return time.perf_counter() - began


def one_by_one_cpp(name_server: str, count: int, size: int) -> float:
    from rocketmq.client import Message, Producer

    def message(number: int) -> Message:
        made = Message(TOPIC)
        made.set_tags("t")
        made.set_body(body_of(number, size).decode())
        return made

    producer = Producer("bench")
    producer.set_namesrv_addr(name_server)
    producer.start()
    try:
        producer.send_sync(message(0))
        began = time.perf_counter()
        for number in range(1, count):
            producer.send_sync(message(number))
        return time.perf_counter() - began
    finally:
        producer.shutdown()


async def many_at_once(name_server: str, in_flight: int, count: int, size: int) -> float:
    from embermq.client.aio import Message, Producer

    async with Producer(name_server, "bench") as producer:
        await producer.send(Message(TOPIC, body_of(0, size), tags="t"))
        numbers = iter(range(1, count))
        ended = asyncio.get_running_loop().create_future()
        left = count - 1

        def acknowledged(future: "asyncio.Future[object]") -> None:
            nonlocal left
            future.result()
            left -= 1
            if not left:
                ended.set_result(None)
            following()

        def following() -> None:
            number = next(numbers, None)
            if number is not None:
                sent = producer.send_async(Message(TOPIC, body_of(number, size), tags="t"))
                sent.add_done_callback(acknowledged)  # type: ignore[arg-type]

        began = time.perf_counter()
        for _ in range(in_flight):
            following()
        await ended
        return time.perf_counter() - began


def main() -> None:
    name_server, kind = sys.argv[1:3]
    in_flight, count, size = map(int, sys.argv[3:])
    if kind == "cpp":
        seconds = one_by_one_cpp(name_server, count, size)
    elif in_flight == 1:
        seconds = one_by_one(name_server, count, size)
    else:
        seconds = asyncio.run(many_at_once(name_server, in_flight, count, size))
    print(json.dumps({"per_second": (count - 1) / seconds}))


if __name__ == "__main__":
    main()
