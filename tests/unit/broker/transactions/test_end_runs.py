"""An end of a transaction gets the same records and the same response from a run as from the plain path."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embermq.errors import AppendRefused, DiskFull
from embermq.model.properties import HALF_TOPIC, OP_TOPIC
from embermq.remoting import FrameReader, Piece, ResponseCode
from embermq.settings import FlushDisk, KernelUse
from embermq.store.tables import TopicConfig
from tests.support.end_frames import COMMIT, ROLLBACK, UNKNOWN, end_fields
from tests.support.fed_links import FedBroker
from tests.support.send_frames import JAVA, binary_frame, json_frame

HALF = JAVA | {"i": "UNIQ_KEY\x017F01\x02WAIT\x01true\x02TRAN_MSG\x01true\x02PGROUP\x01pg", "f": "4"}
Answers = list[tuple[bytes, bool]]


class Pair:
    """Two brokers of the same kind: one takes runs, the other has no kernels."""

    def __init__(self, place: Path, **more: Any) -> None:
        self.runs = FedBroker(place / "runs", KernelUse.ALWAYS, **more)
        self.plain = FedBroker(place / "plain", KernelUse.NEVER, **more)
        for fed in self.both:
            fed.broker.topics.put(TopicConfig("T", 4, 4))
            fed.broker.topics.put(TopicConfig(HALF_TOPIC, 1, 1))

    @property
    def both(self) -> tuple[FedBroker, FedBroker]:
        return self.runs, self.plain

    def feed(self, datas: list[bytes]) -> Answers:
        """The answers of both, which are the same; so are their logs, and what is undecided."""
        by_runs = self.runs.feed(datas, by_runs=True)
        assert by_runs == self.plain.feed(datas, by_runs=False)
        assert self.runs.log_bytes() == self.plain.log_bytes()
        mine, theirs = (fed.broker.transactions.undecided for fed in self.both)
        assert [(offset, entry.op_floor) for offset, entry in mine.items()] == [
            (offset, entry.op_floor) for offset, entry in theirs.items()
        ]
        assert (mine.half_end, mine.op_end) == (theirs.half_end, theirs.op_end)
        return by_runs

    def prepare(self, count: int, **changes: str) -> list[tuple[int, int]]:
        """Store half messages; queue offset and place of each."""
        before = self.runs.broker.transactions.undecided.half_end
        sent = [json_frame(HALF | {"e": str(n % 4)} | changes, b"body %d" % n, n) for n in range(count)]
        assert codes(self.feed([b"".join(sent)])) == [[0] * count]
        found = self.runs.broker.transactions.undecided.items()
        return [(offset, entry.physical_offset) for offset, entry in found if offset >= before]

    def taken(self, data: bytes) -> int:
        """How many bytes of one connection a run takes."""
        link, _transport = self.runs.connect(4000)
        piece = Piece(link, data)
        assert self.runs.broker.runs.is_ready(1)
        self.runs.broker.runs.take([piece])
        link.connection_lost(None)
        return piece.at

    def close(self) -> None:
        for fed in self.both:
            fed.__exit__(None, None, None)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    both = Pair(tmp_path_factory.mktemp("pair"))
    yield both
    both.close()


def codes(answers: Answers) -> list[list[int]]:
    return [[command.code for command in FrameReader().feed(data)] for data, _closed in answers]


def end(half: tuple[int, int], decision: int = COMMIT, opaque: int = 1, flag: int = 0, **changes: str) -> bytes:
    fields = end_fields("pg", *half, decision) | changes
    if opaque % 2:
        return json_frame(fields, opaque=opaque, code=37, flag=flag)
    return binary_frame(fields, opaque=opaque, code=37, flag=flag)


@pytest.mark.parametrize("count", [1, 3, 700])
def test_transactions_are_committed_and_rolled_back(pair: Pair, count: int) -> None:
    halves = pair.prepare(count)
    puts = [fed.broker.statistics.put_total for fed in pair.both]
    requests = [fed.broker.server.counters.requests for fed in pair.both]
    ends = [end(half, ROLLBACK if n % 3 == 2 else COMMIT, n) for n, half in enumerate(halves)]
    third = len(ends) // 3
    answers = pair.feed([b"".join(ends[:third]), b"".join(ends[third:])])
    assert [len(one) for one in codes(answers)] == [third, count - third]
    assert not {offset for offset, _place in halves} & set(pair.runs.broker.transactions.undecided)
    after = [fed.broker.statistics.put_total for fed in pair.both]
    assert after[0] - puts[0] == after[1] - puts[1] == count - count // 3
    assert [fed.broker.server.counters.requests for fed in pair.both] == [before + count for before in requests]
    for name in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"):
        mine, theirs = (fed.broker.statistics.figure(name, "T") for fed in pair.both)
        assert mine is not None
        assert theirs is not None
        assert mine.day == theirs.day


def test_a_run_takes_ends_and_sends_of_one_connection_in_their_order(pair: Pair) -> None:
    first, second, third = pair.prepare(3)
    mixed = [
        end(first, opaque=3),
        json_frame(JAVA, b"between", 5),
        json_frame(HALF, b"another", 7),
        end(second, ROLLBACK, 9),
        end(third, opaque=10, flag=2),
        json_frame(JAVA, b"last", 11),
    ]
    [(data, _closed)] = pair.feed([b"".join(mixed)])
    assert [command.opaque for command in FrameReader().feed(data)] == [3, 5, 7, 9, 11]
    [half] = pair.prepare(1)
    whole = end(half) + json_frame(JAVA, b"x") + json_frame(HALF, b"y")
    assert pair.taken(whole) == len(whole)
    pair.plain.feed([whole], by_runs=False)


def test_a_second_end_stores_nothing(pair: Pair) -> None:
    one, other = pair.prepare(2)
    before = pair.runs.store.max_offset("T", 0)
    [(data, _closed)] = pair.feed(
        [
            end(one) * 3 + end(one, ROLLBACK) + end(other, ROLLBACK),
        ]
    )
    answers = FrameReader().feed(data)
    assert [answer.code for answer in answers] == [0] * 5
    assert ["decided before" in (answer.remark or "") for answer in answers] == [False, True, True, True, False]
    assert pair.runs.store.max_offset("T", 0) == before + 1
    assert codes(pair.feed([end(one), end(other)])) == [[0], [0]]
    assert pair.runs.store.max_offset("T", 0) == before + 1


def test_an_end_that_is_not_ordinary_is_answered_by_the_plain_path(pair: Pair) -> None:
    one, two, delayed = *pair.prepare(2), pair.prepare(1, i=HALF["i"] + "\x02DELAY\x013")[0]
    wrong = [
        end(one, producerGroup="other"),
        end(one, tranStateTableOffset="99999"),
        end((one[0], one[1] + 1)),
        end((one[0], -1)),
        end(one, UNKNOWN, flag=2),
    ]
    answers = codes(pair.feed([b"".join(wrong) + end(one) + end(two) + end(delayed)]))
    assert answers == [[ResponseCode.SYSTEM_ERROR] * 4 + [0] * 3]
    assert not {one[0], two[0], delayed[0]} & set(pair.runs.broker.transactions.undecided)


def test_a_half_message_that_was_asked_about_is_ended_by_the_plain_path(pair: Pair) -> None:
    one, asked, last = pair.prepare(3)
    for fed in pair.both:
        entry = fed.broker.transactions.undecided.entry(asked[0])
        assert entry is not None
        entry.checks = 2
    assert codes(pair.feed([end(one) + end(asked) + end(last), end(asked)])) == [[0, 0, 0], [0]]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_order_of_ends_gives_what_the_plain_path_gives(pair: Pair, data: st.DataObject) -> None:
    halves = pair.prepare(3)
    frames = st.builds(
        end,
        st.sampled_from([*halves, (halves[0][0], halves[1][1]), (0, 0)]),
        st.sampled_from([COMMIT, COMMIT, ROLLBACK]),
        st.integers(0, 9),
        st.sampled_from([0, 0, 2]),
    )
    frames = st.one_of(frames, frames, st.sampled_from([json_frame(JAVA, b"s", 3), json_frame(HALF, b"h", 5)]))
    pair.feed([b"".join(data.draw(st.lists(frames, min_size=1, max_size=8)))])
    pair.feed([b"".join(end(half) for half in halves)])


def test_under_sync_flush_a_run_waits_for_the_disk(tmp_path: Path) -> None:
    both = Pair(tmp_path, flush=FlushDisk.SYNC)
    try:
        halves = both.prepare(12)
        assert codes(both.feed([b"".join(map(end, halves[:11])), end(halves[11])])) == [[0] * 11, [0]]
        assert both.runs.broker.server.counters.in_flight == 0
        assert both.runs.store.max_offset(OP_TOPIC, 0) == 12
    finally:
        both.close()


def test_when_the_disk_fails_every_end_of_a_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = Pair(tmp_path, flush=FlushDisk.SYNC)
    try:
        halves = both.prepare(6)

        def fail(end: int, callback: Callable[[AppendRefused | None], None]) -> None:
            callback(AppendRefused("the disk is gone"))

        for fed in both.both:
            monkeypatch.setattr(fed.store, "when_durable", fail)
        answers = both.feed([b"".join(map(end, halves))])
        assert codes(answers) == [[ResponseCode.SERVICE_NOT_AVAILABLE] * 6]
    finally:
        both.close()


def test_a_run_that_the_store_refuses_leaves_everything_undecided(pair: Pair) -> None:
    halves = pair.prepare(6)
    ends = b"".join(end(half, opaque=3) for half in halves)
    for fed in pair.both:
        fed.store.engine.writer.refuse_while_full(DiskFull("no room"))
    answers = codes(pair.feed([ends]))
    assert set(answers[0]) == {ResponseCode.SERVICE_NOT_AVAILABLE}
    assert {offset for offset, _place in halves} <= set(pair.runs.broker.transactions.undecided)
    for fed in pair.both:
        fed.store.engine.writer.refuse_while_full(None)
    assert codes(pair.feed([ends])) == [[0] * 6]


def test_a_run_that_does_not_fit_a_log_file_is_decided_one_by_one(tmp_path: Path) -> None:
    both = Pair(tmp_path, segment_bytes=64 << 10)
    try:
        halves = both.prepare(300)
        assert codes(both.feed([b"".join(map(end, halves))])) == [[0] * 300]
        assert both.runs.store.max_offset(OP_TOPIC, 0) == 300
    finally:
        both.close()


def test_the_records_of_a_run_lie_in_one_log_file(tmp_path: Path) -> None:
    """A kill between two of them leaves a final record without its op record only as the last one of the log."""
    with FedBroker(tmp_path, KernelUse.ALWAYS, segment_bytes=64 << 10) as fed:
        fed.broker.topics.put(TopicConfig("T", 4, 4))
        fed.broker.topics.put(TopicConfig(HALF_TOPIC, 1, 1))
        for _ in range(6):
            fed.feed([json_frame(HALF, b"x", 1) * 40], by_runs=True)
            halves = [(offset, one.physical_offset) for offset, one in fed.broker.transactions.undecided.items()]
            before = fed.store.max_physical
            fed.feed([b"".join(map(end, halves))], by_runs=True)
            written = [one for one in fed.store.scan() if one.physical_offset >= before]
            assert [one.topic for one in written] == ["T", OP_TOPIC] * 40
            assert len({one.physical_offset // (64 << 10) for one in written}) == 1
        assert fed.store.max_physical > 64 << 10  # A run has met the end of a file.
