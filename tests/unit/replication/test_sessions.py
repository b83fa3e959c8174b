"""Both sides of a replication connection without sockets: bytes in, bytes out, times as numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.errors import LogsDiffer, ReplicaMisbehaved
from embermq.replication.master_session import MasterSession, SessionLimits
from embermq.replication.slave_session import KNOWN_BYTES, SlaveSession, known_start
from embermq.replication.wire import TRANSFER, TransferReader, encode_heartbeat, encode_report, encode_transfers

FILE = 1000
LIMITS = SessionLimits(heartbeat_seconds=5, silence_seconds=20, transfer_bytes=64)


def at_master(report: int, *, begin: int = 0, end: int = 5500) -> MasterSession:
    session = MasterSession(LIMITS, FILE, now=0.0)
    session.receive(encode_report(report), 0.0, begin, end)
    return session


def at_slave(end: int, known: bytes = b"") -> SlaveSession:
    session = SlaveSession(end, known, 5.0, 20.0)
    session.first_report(0.0)
    return session


def transfer(offset: int, data: bytes) -> bytes:
    return b"".join(encode_transfers(offset, data, 64))


# -- wire --------------------------------------------------------------------------------------------------------


def test_bytes_on_the_wire() -> None:
    assert encode_report(258).hex() == "0000000000000102"
    assert encode_heartbeat(5).hex() == "0000000000000005" + "00000000"
    assert transfer(16, b"abc").hex() == "0000000000000010" + "00000003" + b"abc".hex()


@given(data=st.binary(min_size=1, max_size=600), cuts=st.lists(st.integers(1, 80)), size=st.integers(1, 100))
def test_transfers_are_found_however_they_are_cut(data: bytes, cuts: list[int], size: int) -> None:
    stream = b"".join(encode_transfers(77, data, size)) + encode_heartbeat(77 + len(data))
    reader, found, at = TransferReader(), b"", 0
    heartbeats = 0
    for cut in [*cuts, len(stream)]:
        for offset, body in reader.receive(stream[at : at + cut]):
            assert offset == 77 + len(found)
            found += body
            heartbeats += not body
        at += cut
    assert found == data
    assert heartbeats == 1


@pytest.mark.parametrize("head", [(-1, 5), (0, -1), (0, 17 << 20)])
def test_what_no_master_sends_is_refused(head: tuple[int, int]) -> None:
    with pytest.raises(ReplicaMisbehaved):
        TransferReader().receive(TRANSFER.pack(*head))


# -- a master ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("report", "begins"), [(0, 5000), (1, 1), (1234, 1234), (5500, 5500)])
def test_where_a_master_begins(report: int, begins: int) -> None:
    assert at_master(report).begin == begins


def test_an_empty_slave_gets_no_file_that_is_gone() -> None:
    assert at_master(0, begin=700, end=700).begin == 700
    assert at_master(0, begin=0, end=0).begin == 0


@pytest.mark.parametrize("report", [-1, 5501, 999])
def test_what_a_master_cannot_go_on_with(report: int) -> None:
    with pytest.raises(ReplicaMisbehaved):
        at_master(report, begin=1000)


def test_the_first_report_acknowledges_nothing() -> None:
    session = at_master(5000)
    assert not session.receive(encode_report(5000), 1.0, 0, 5500)
    assert session.acknowledged == 0


def test_later_reports_acknowledge_what_was_sent() -> None:
    session = at_master(5000)
    sent = b"".join(session.transfers(b"x" * 100, 1.0))
    assert len(sent) == 100 + 2 * TRANSFER.size
    assert session.receive(encode_report(5040) + encode_report(5100)[:3], 2.0, 0, 5500)
    assert session.acknowledged == 5040
    assert session.receive(encode_report(5100)[3:], 2.0, 0, 5500)
    assert session.acknowledged == session.sent == 5100
    assert not session.receive(encode_report(5040), 2.0, 0, 5500)  # It never goes back.
    assert session.acknowledged == 5100


def test_more_than_was_sent_cannot_be_acknowledged() -> None:
    session = at_master(5000)
    list(session.transfers(b"x" * 100, 1.0))
    with pytest.raises(ReplicaMisbehaved):
        session.receive(encode_report(5101), 2.0, 0, 5500)


def test_signs_of_life_of_a_master() -> None:
    session = at_master(5000)
    assert session.heartbeat(4.9) is None
    assert session.heartbeat(5.0) == encode_heartbeat(5000)
    assert session.heartbeat(9.9) is None
    list(session.transfers(b"x", 9.0))
    assert session.heartbeat(10.0) is None
    assert session.seconds_to_wait(10.0) == 4.0
    assert not session.is_silent(20.0)
    assert session.is_silent(20.1)


def test_before_the_first_report_nothing_is_sent() -> None:
    session = MasterSession(LIMITS, FILE, now=0.0)
    assert session.heartbeat(19.0) is None
    assert session.seconds_to_wait(0.0) == 20.0
    assert session.is_silent(21.0)


# -- a slave -----------------------------------------------------------------------------------------------------


def test_where_the_compared_bytes_begin() -> None:
    assert known_start(0, 0, 1 << 30) == 0  # Nothing to compare: an empty slave.
    assert known_start(0, 500, 1 << 30) == 1  # 0 would say that it is empty.
    assert known_start(0, 1 << 20, 1 << 30) == (1 << 20) - KNOWN_BYTES
    assert known_start(0, 2000, 1000) == 1000  # A full file: the last bytes of that one.
    assert known_start(0, 2001, 1000) == 2000


def test_an_empty_slave_takes_what_comes() -> None:
    session = at_slave(0)
    assert list(session.receive(encode_heartbeat(3000), 1.0)) == []
    assert list(session.receive(transfer(3000, b"abc"), 1.0)) == [(3000, b"abc")]
    assert list(session.receive(transfer(3003, b"d"), 1.0)) == [(3003, b"d")]
    assert session.report(3004, 1.0) == encode_report(3004)
    assert session.report(3004, 2.0) is None
    assert session.report(3004, 6.1) == encode_report(3004)


@given(cut=st.integers(1, 64), known=st.binary(min_size=1, max_size=200), new=st.binary(min_size=1, max_size=200))
def test_what_is_known_is_compared_and_only_the_rest_is_new(cut: int, known: bytes, new: bytes) -> None:
    session = at_slave(500 + len(known), known)
    stream = b"".join(encode_transfers(500, known + new, cut))
    found = b""
    for at in range(0, len(stream), 37):
        for offset, body in session.receive(stream[at : at + 37], 1.0):
            assert offset == 500 + len(known) + len(found)
            found += body
    assert found == new
    assert session.is_compared
    assert session.master_end == 500 + len(known) + len(new)


@given(known=st.binary(min_size=1, max_size=200), data=st.data())
def test_one_other_byte_is_another_log(known: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(known) - 1))
    other = bytearray(known)
    other[at] ^= 1
    session = at_slave(500 + len(known), known)
    with pytest.raises(LogsDiffer) as refused:
        list(session.receive(transfer(500, bytes(other) + b"new"), 1.0))
    assert refused.value.physical_offset == 500 + at
    assert session.report(10_000, 1.0) is None  # Nothing is acknowledged.


@pytest.mark.parametrize("stream", [encode_heartbeat(500), transfer(500, b"kn") + encode_heartbeat(502)])
def test_a_master_with_less_is_another_one(stream: bytes) -> None:
    session = at_slave(505, b"known")
    with pytest.raises(LogsDiffer):
        list(session.receive(stream, 1.0))


@pytest.mark.parametrize(
    "stream", [transfer(499, b"x"), transfer(501, b"x"), transfer(500, b"known") + transfer(506, b"x")]
)
def test_bytes_that_do_not_follow_are_refused(stream: bytes) -> None:
    with pytest.raises(ReplicaMisbehaved):
        list(at_slave(505, b"known").receive(stream, 1.0))


def test_before_the_comparison_nothing_is_acknowledged() -> None:
    session = at_slave(505, b"known")
    assert session.report(505, 1.0) is None
    assert session.report(505, 5.0) == encode_report(500)  # A sign of life: where it began.
    list(session.receive(transfer(500, b"known"), 6.0))
    assert session.report(505, 6.0) == encode_report(505)


def test_times_of_a_slave() -> None:
    session = at_slave(0)
    assert session.seconds_to_wait(1.0) == 4.0
    assert not session.is_silent(20.0)
    assert session.is_silent(20.1)


def test_both_sides_joined() -> None:
    """A slave that has the first 300 bytes of a master's log gets the rest, and its reports are believed."""
    log = bytes(n % 251 for n in range(900))
    slave = SlaveSession(300, log[100:300], 5.0, 20.0)
    upper = MasterSession(LIMITS, FILE, now=0.0)
    upper.receive(slave.first_report(0.0), 0.0, 0, len(log))
    assert upper.begin == 100
    stored = log[:300]
    for piece in (50, 400, 350):
        stream = b"".join(upper.transfers(log[upper.sent : upper.sent + piece], 1.0))
        for offset, body in slave.receive(stream, 1.0):
            assert offset == len(stored)
            stored += body
        if (report := slave.report(len(stored), 1.0)) is not None:
            upper.receive(report, 1.0, 0, len(log))
    assert stored == log
    assert upper.acknowledged == 900
