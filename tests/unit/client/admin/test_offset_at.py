"""The first message at a time, whatever message a broker guesses."""

import asyncio
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.client.admin.messages import Messages
from embermq.client.message_queue import MessageQueue

QUEUE = MessageQueue("t", "b", 0)


def looked_up(times: list[int], first: int, guess: int, wanted: int) -> tuple[int, int]:
    """The answer for a queue that holds messages of these times from offset `first` on; and how many were looked at."""
    looked: list[int] = []

    class Scripted(Messages):
        async def span(self, queue: MessageQueue) -> tuple[int, int]:
            return first, first + len(times)

        async def _is_earlier(self, queue: MessageQueue, offset: int, timestamp_ms: int) -> bool:
            looked.append(offset)
            return times[offset - first] < timestamp_ms

        async def _place(self, queue: MessageQueue) -> object:  # type: ignore[override]
            return None

    class NoCaller:
        caller = None

    async def answered(*_arguments: object) -> int:
        return guess

    with patch("embermq.client.admin.messages.search_offset", answered):
        found = asyncio.run(Scripted(NoCaller()).offset_at(QUEUE, wanted))  # type: ignore[arg-type]
    return found, len(looked)


@given(
    st.lists(st.integers(0, 6), max_size=40).map(sorted),
    st.integers(0, 5),
    st.integers(-1, 60),
    st.integers(-1, 8),
)
def test_the_first_is_found_from_any_guess(times: list[int], first: int, guess: int, wanted: int) -> None:
    expected = next((at for at, one in enumerate(times) if one >= wanted), len(times))
    assert looked_up(times, first, guess, wanted)[0] == first + expected


@pytest.mark.parametrize(("guess", "most"), [(500, 2), (501, 4), (499, 2), (520, 12), (0, 20), (999, 20)])
def test_a_good_guess_is_cheap(guess: int, most: int) -> None:
    found, looked = looked_up(list(range(1000)), 0, guess, 500)
    assert found == 500
    assert looked <= most
