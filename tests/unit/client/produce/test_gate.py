"""What may be under way at once."""

import threading
import time

from embermq.client.produce.gate import Gate


def entered(gate: Gate, size: int) -> threading.Thread:
    thread = threading.Thread(target=gate.enter, args=(size,), daemon=True)
    thread.start()
    return thread


def waits(thread: threading.Thread) -> bool:
    time.sleep(0.02)
    return thread.is_alive()


def test_count_and_bytes_are_bounded() -> None:
    gate = Gate(2, 100)
    gate.enter(10)
    gate.enter(10)
    third = entered(gate, 10)
    assert waits(third)
    gate.leave(10)
    third.join(10)
    assert not third.is_alive()
    gate.leave(10)
    large = entered(gate, 95)
    assert waits(large)
    gate.leave(10)
    large.join(10)
    assert not large.is_alive()


def test_one_message_always_gets_through() -> None:
    gate = Gate(2, 100)
    gate.enter(1000)
    gate.leave(1000)
    gate.enter(1000)
