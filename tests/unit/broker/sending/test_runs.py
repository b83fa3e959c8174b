"""A frame gets the same record and the same response from a run as from the plain path, byte for byte."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embermq.broker import SendContext
from embermq.errors import AppendRefused
from embermq.model.properties import HALF_TOPIC
from embermq.remoting import FrameReader, Piece, ResponseCode
from embermq.settings import FlushDisk, KernelUse
from embermq.store.tables import MULTI_TAG, TopicConfig
from tests.support.fed_links import FedBroker
from tests.support.send_frames import JAVA, LONG, binary_frame, json_frame, send_frames

TOPICS = (
    TopicConfig("T", 4, 4),
    TopicConfig("Other", 1, 1, topic_filter_type=MULTI_TAG),
    TopicConfig("%RETRY%g", 1, 1),
    TopicConfig(HALF_TOPIC, 1, 1),
)
HALF = JAVA | {"i": "UNIQ_KEY\x017F01\x02WAIT\x01true\x02TRAN_MSG\x01true\x02PGROUP\x01pg", "f": "4"}


class Pair:
    """Two brokers of the same kind: one takes runs, the other has no kernels."""

    def __init__(self, place: Path, **more: Any) -> None:
        self.runs = FedBroker(place / "runs", KernelUse.ALWAYS, **more)
        self.plain = FedBroker(place / "plain", KernelUse.NEVER, **more)
        for fed in (self.runs, self.plain):
            for topic in TOPICS:
                fed.broker.topics.put(topic)

    def feed(self, datas: list[bytes]) -> list[tuple[bytes, bool]]:
        """The answers of both, which are the same."""
        by_runs = self.runs.feed(datas, by_runs=True)
        assert by_runs == self.plain.feed(datas, by_runs=False)
        return by_runs

    def close(self) -> None:
        for fed in (self.runs, self.plain):
            fed.__exit__(None, None, None)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    both = Pair(tmp_path_factory.mktemp("pair"))
    yield both
    both.close()


def codes(answers: list[tuple[bytes, bool]]) -> list[list[int]]:
    return [[command.code for command in FrameReader().feed(data)] for data, _closed in answers]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(send_frames(), min_size=1, max_size=5))
def test_records_and_responses_are_those_of_the_plain_path(pair: Pair, frames: list[bytes]) -> None:
    before = pair.plain.store.max_physical
    pair.feed([b"".join(frames)])
    assert pair.runs.store.max_physical == pair.plain.store.max_physical
    assert pair.runs.log_bytes()[before:] == pair.plain.log_bytes()[before:]


def test_sends_of_every_form_are_taken_and_counted(pair: Pair) -> None:
    forms = [
        json_frame(JAVA, b"json", 1),
        binary_frame(JAVA, b"binary", 2),
        json_frame({LONG[name]: value for name, value in JAVA.items()}, b"long names", 3, 10),
        json_frame(JAVA | {"b": "Other"}, b"several tags", 4),
        json_frame(JAVA | {"e": 2, "k": True, "i": "键\x01值\x02"}, b"numbers", 5),
    ]
    requests = pair.runs.broker.server.counters.requests
    puts = pair.runs.broker.statistics.put_total
    assert codes(pair.feed([b"".join(forms)])) == [[0] * 5]
    assert pair.runs.broker.server.counters.requests == requests + 5
    assert pair.runs.broker.statistics.put_total == puts + 5
    for name in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"):
        mine, theirs = (fed.broker.statistics.figure(name, "T") for fed in (pair.runs, pair.plain))
        assert mine is not None
        assert theirs is not None
        assert mine.day == theirs.day
    assert pair.runs.broker.server.counters.in_flight == 0
    assert pair.runs.log_bytes() == pair.plain.log_bytes()


def undecided(fed: FedBroker) -> list[tuple[int, int, int]]:
    found = fed.broker.transactions.undecided
    return [(offset, entry.physical_offset, entry.op_floor) for offset, entry in found.items()]


@pytest.mark.parametrize("count", [3, 40])
def test_half_messages_are_taken_and_are_undecided_then(pair: Pair, count: int) -> None:
    before = len(pair.runs.broker.transactions.undecided)
    large = json_frame(HALF, bytes(pair.plain.store.settings.message_bytes_max + 1), 5)
    sent = [json_frame(HALF | {"e": str(n % 4)}, b"%d" % n, n) for n in range(count)]
    first, second = b"".join(sent), binary_frame(HALF, b"x", 77) + json_frame(JAVA, b"y", 78)
    link, _transport = pair.runs.connect(4000)
    pieces = [Piece(link, first + large + second)]
    assert pair.runs.broker.runs.is_ready(1)
    pair.runs.broker.runs.take(pieces)
    assert pieces[0].at == len(pieces[0].buffer)
    link.connection_lost(None)
    pair.plain.feed([first + large + second], by_runs=False)
    assert len(undecided(pair.runs)) == before + count + 1
    assert undecided(pair.runs) == undecided(pair.plain)
    assert pair.runs.log_bytes() == pair.plain.log_bytes()
    assert codes(pair.feed([first + large + second])) == [[0] * count + [ResponseCode.MESSAGE_ILLEGAL, 0, 0]]
    assert undecided(pair.runs) == undecided(pair.plain)


def test_half_messages_beyond_the_bound_are_refused(tmp_path: Path) -> None:
    both = Pair(tmp_path, broker={"undecided_max": 8})
    try:
        assert codes(both.feed([json_frame(HALF, b"x", 1) * 12])) == [[0] * 8 + [ResponseCode.SYSTEM_BUSY] * 4]
        assert undecided(both.runs) == undecided(both.plain)
        assert both.runs.log_bytes() == both.plain.log_bytes()
    finally:
        both.close()


def test_half_messages_under_sync_flush_wait_for_the_disk(tmp_path: Path) -> None:
    both = Pair(tmp_path, flush=FlushDisk.SYNC)
    try:
        assert codes(both.feed([json_frame(HALF, b"x", 1) * 12, json_frame(HALF, b"y", 2)])) == [[0] * 12, [0]]
        assert len(undecided(both.runs)) == 13
    finally:
        both.close()


def test_a_refused_message_is_refused_alone(pair: Pair) -> None:
    good, large = json_frame(JAVA, b"x"), json_frame(JAVA, bytes(pair.plain.store.settings.message_bytes_max + 1))
    answers = codes(pair.feed([good + large + good, good]))
    assert answers == [[0, ResponseCode.MESSAGE_ILLEGAL, 0], [0]]


def test_what_was_let_in_is_forgotten_with_the_topic(pair: Pair) -> None:
    frame = json_frame(JAVA | {"b": "Passing", "c": ""}, b"x")
    for fed in (pair.runs, pair.plain):
        fed.broker.topics.put(TopicConfig("Passing", 1, 1))
    assert codes(pair.feed([frame * 2])) == [[0, 0]]
    for fed in (pair.runs, pair.plain):
        fed.broker.topics.remove("Passing")
    assert codes(pair.feed([frame * 2])) == [[ResponseCode.TOPIC_NOT_EXIST] * 2]


def test_a_long_run_is_stored_in_parts(pair: Pair) -> None:
    datas = [b"".join(json_frame(JAVA | {"e": str(n % 4)}, b"%d" % n, n) for n in range(1500)), json_frame(JAVA)]
    assert [len(one) for one in codes(pair.feed(datas))] == [1500, 1]
    assert pair.runs.log_bytes() == pair.plain.log_bytes()


def test_under_sync_flush_a_run_waits_for_the_disk(tmp_path: Path) -> None:
    both = Pair(tmp_path, flush=FlushDisk.SYNC)
    try:
        answers = both.feed([json_frame(JAVA, b"x", 7) * 3, binary_frame(JAVA, b"y", 8)])
        assert codes(answers) == [[0] * 3, [0]]
        assert both.runs.broker.server.counters.in_flight == 0
        large = json_frame(JAVA, bytes(both.plain.store.settings.message_bytes_max + 1), 9)
        [(data, _closed)] = both.runs.feed([json_frame(JAVA, b"x", 10) + large], by_runs=True)
        found = {command.opaque: command.code for command in FrameReader().feed(data)}
        assert found == {9: ResponseCode.MESSAGE_ILLEGAL, 10: 0}
    finally:
        both.close()


def test_when_the_disk_fails_every_send_of_a_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FedBroker(tmp_path, KernelUse.ALWAYS, flush=FlushDisk.SYNC) as fed:

        def fail(end: int, callback: Callable[[AppendRefused | None], None]) -> None:
            callback(AppendRefused("the disk is gone"))

        monkeypatch.setattr(fed.store, "when_durable", fail)
        frames = json_frame(JAVA | {"b": "TBW102"}, b"x", 1) * 2 + binary_frame(JAVA | {"b": "TBW102"}, b"y", 2)
        [(data, _closed)] = fed.feed([frames], by_runs=True)
        answers = FrameReader().feed(data)
        assert [answer.code for answer in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 3
        assert all(answer.remark == "the disk is gone" and "msgId" not in (answer.ext or {}) for answer in answers)
        assert fed.broker.server.counters.in_flight == 0


def test_a_hook_sees_every_send(tmp_path: Path) -> None:
    class Audit:
        seen = 0

        def after_send(self, context: SendContext) -> None:
            self.seen += 1

    audit = Audit()
    with FedBroker(tmp_path, KernelUse.ALWAYS, hooks=(audit,)) as fed:
        assert not fed.broker.runs.is_ready(1)
        fed.feed([json_frame(JAVA | {"b": "TBW102"}) * 3], by_runs=False)
    assert audit.seen == 3
