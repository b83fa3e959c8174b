"""Which frames are offered to a taker together, and who reads what it leaves."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from embermq.remoting import (
    Command,
    Piece,
    RemotingLimits,
    RemotingServer,
    Reply,
    RequestTable,
    Row,
    RunTaker,
    encode_frame,
)
from embermq.remoting.frame_runs import BUSY_LINKS_MIN, READS_A_LOOK, UNKNOWN_READS, FrameRuns
from embermq.remoting.headers import NoHeader
from embermq.remoting.link import Link
from tests.support.fed_links import ListTransport

KNOWN, OTHER = encode_frame(Command(1, 5)), encode_frame(Command(2, 6))
assert len(KNOWN) == len(OTHER)


class Taker:
    """Takes the frames KNOWN and answers each with a letter."""

    def __init__(self) -> None:
        self.offered: list[int] = []
        self.ready = True

    def is_ready(self, frames: int) -> bool:
        return self.ready

    def take(self, pieces: Sequence[Piece]) -> None:
        self.offered.append(len(pieces))
        for piece in pieces:
            count = 0
            while piece.buffer.startswith(KNOWN, piece.at):
                piece.at += len(KNOWN)
                count += 1
            if count:
                piece.link.begin_run(count)
                piece.link.answer_run(count, b"k" * count)


class Setting:
    """A server with one handler, whose answers are frames; and what its links were written."""

    def __init__(self) -> None:
        self.taker = Taker()
        self.codes: list[int] = []
        rows = [Row(code, NoHeader, self._handle) for code in (1, 2)]
        # A turn that never ends, however slow the machine: what is fed is served before `take` returns.
        self.server, self._table = RemotingServer(RemotingLimits(turn_seconds=60.0)), RequestTable(rows)
        taker: RunTaker = self.taker
        self.runs = FrameRuns(asyncio.get_running_loop(), taker)

    def _handle(self, call: object) -> Reply:
        self.codes.append(call.request.code)  # type: ignore[attr-defined]
        return Reply()

    def link(self) -> tuple[Link, ListTransport]:
        transport, link = ListTransport(1), self.server.new_link(self._table)
        link.connection_made(transport)
        return link, transport


def play(scenario: Callable[[Setting], Awaitable[None]]) -> None:
    async def run() -> None:
        setting = Setting()
        await scenario(setting)
        await setting.server.stop()

    asyncio.run(run())


def answers(transport: ListTransport) -> int:
    """How many responses of the plain way were written."""
    return b"".join(transport.written).count(b'"opaque":')


def test_a_single_frame_of_one_connection_is_offered_at_once() -> None:
    async def scenario(setting: Setting) -> None:
        link, transport = setting.link()
        for _ in range(3):
            assert setting.runs.take(link, KNOWN)
        assert (transport.written, setting.taker.offered, setting.codes) == ([b"k"] * 3, [1] * 3, [])

    play(scenario)


def test_a_connection_with_frames_that_are_not_known_is_not_offered_for_a_while() -> None:
    async def scenario(setting: Setting) -> None:
        link, _transport = setting.link()
        assert setting.runs.take(link, OTHER)
        assert setting.codes == [2]
        taken = [setting.runs.take(link, OTHER) for _ in range(UNKNOWN_READS + 1)]
        assert taken == [False] * UNKNOWN_READS + [True]
        assert len(setting.taker.offered) == 2
        assert setting.runs.take(link, KNOWN * 20), "many frames are offered"
        assert setting.runs.take(link, KNOWN), "the connection is known again"

    play(scenario)


def test_many_frames_are_offered_at_once_and_answered_in_one_write() -> None:
    async def scenario(setting: Setting) -> None:
        link, transport = setting.link()
        assert setting.runs.take(link, KNOWN * 20)
        assert transport.written == [b"k" * 20]
        assert setting.server.counters.requests == 20
        assert (link.in_flight, setting.codes) == (0, [])

    play(scenario)


def test_a_taker_that_is_not_ready_is_offered_nothing() -> None:
    async def scenario(setting: Setting) -> None:
        setting.taker.ready = False
        assert not setting.runs.take(setting.link()[0], KNOWN * 20)
        assert setting.taker.offered == []

    play(scenario)


def test_what_is_not_known_is_read_by_the_link_and_the_rest_offered_again() -> None:
    async def scenario(setting: Setting) -> None:
        link, transport = setting.link()
        assert setting.runs.take(link, KNOWN * 10 + OTHER + KNOWN * 10 + OTHER * 3)
        assert setting.codes == [2] * 4
        [written] = transport.written
        assert written.startswith(b"k" * 10)
        assert (written.count(b"k" * 10), answers(transport)) == (2, 4)

    play(scenario)


def test_a_stream_of_unknown_frames_is_offered_less_and_less() -> None:
    async def scenario(setting: Setting) -> None:
        link, _transport = setting.link()
        assert setting.runs.take(link, OTHER * 400)
        assert setting.codes == [2] * 400
        assert len(setting.taker.offered) < 20

    play(scenario)


def test_an_unfinished_frame_waits_for_its_end() -> None:
    async def scenario(setting: Setting) -> None:
        link, transport = setting.link()
        assert setting.runs.take(link, KNOWN * 10 + OTHER[:-3])
        assert setting.codes == []
        link.data_received(OTHER[-3:])
        assert setting.codes == [2]
        assert setting.server.counters.unread_bytes == 0
        assert answers(transport) == 1

    play(scenario)


def test_a_frame_that_cannot_be_closes_the_connection_behind_those_before_it() -> None:
    async def scenario(setting: Setting) -> None:
        link, transport = setting.link()
        assert setting.runs.take(link, KNOWN * 10 + b"\xff\xff\xff\xff" + KNOWN)
        assert transport.written == [b"k" * 10]
        assert transport.closed
        assert setting.server.counters.closed_invalid == 1

    play(scenario)


def test_single_frames_of_busy_connections_are_offered_together() -> None:
    async def scenario(setting: Setting) -> None:
        ends = [setting.link() for _ in range(BUSY_LINKS_MIN * 2)]
        for number in range(READS_A_LOOK):
            assert setting.runs.take(ends[number % len(ends)][0], KNOWN)
        await asyncio.sleep(0)
        for _link, transport in ends:
            transport.written.clear()
        setting.taker.offered.clear()
        for link, _transport in ends:
            assert setting.runs.take(link, KNOWN)
        assert setting.taker.offered == []
        await asyncio.sleep(0)
        assert setting.taker.offered == [len(ends)]
        assert all(transport.written == [b"k"] for _link, transport in ends)

    play(scenario)
