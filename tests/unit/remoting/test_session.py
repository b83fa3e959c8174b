"""Two sessions joined back to back: requests both ways, answers in any order, time-outs, the end."""

import pytest

from embermq.errors import CallTimeout, ConnectionLost, RemotingError
from embermq.remoting import Command, Outcome, Reply, Session, answer, encode_frame
from embermq.remoting.session import PENDING_CALLS_MAX


class Ends:
    """Both ends of a connection."""

    def __init__(self) -> None:
        self.left, self.right = Session("right"), Session("left")
        self.outcomes: list[Outcome] = []

    def ask(self, code: int, now: float = 0.0, seconds: float = 3.0) -> bytes:
        return self.left.call(Command(code), now, seconds, self.outcomes.append)

    def codes(self) -> list[int]:
        return [outcome.code for outcome in self.outcomes if isinstance(outcome, Command)]


def test_answers_find_their_requests_in_any_order() -> None:
    ends = Ends()
    requests = ends.right.receive(ends.ask(1) + ends.ask(2) + ends.ask(3))
    assert [request.code for request in requests] == [1, 2, 3]
    answers = b"".join(encode_frame(answer(request, Reply(request.code * 10))) for request in reversed(requests))
    assert ends.left.receive(answers) == []
    assert ends.codes() == [30, 20, 10]
    assert ends.left.pending_calls == 0


def test_both_directions_number_their_requests_on_their_own() -> None:
    ends = Ends()
    heard: list[Outcome] = []
    (asked,) = ends.right.receive(ends.ask(1))
    back = ends.right.call(Command(40), 0.0, 3.0, heard.append)
    (pushed,) = ends.left.receive(back + encode_frame(answer(asked, Reply(0))))
    assert pushed.code == 40
    assert pushed.opaque == asked.opaque
    assert ends.right.receive(encode_frame(answer(pushed, Reply(5)))) == []
    assert ends.codes() == [0]
    assert [outcome.code for outcome in heard if isinstance(outcome, Command)] == [5]


def test_an_answer_to_nothing_is_ignored() -> None:
    ends = Ends()
    assert ends.left.receive(encode_frame(Command(0, opaque=99, flag=1))) == []
    assert ends.left.failure is None


def test_a_one_way_request_waits_for_nothing() -> None:
    ends = Ends()
    (request,) = ends.right.receive(ends.left.tell(Command(15)))
    assert request.is_oneway
    assert ends.left.pending_calls == 0


def test_what_is_not_answered_in_time_is_ended_once() -> None:
    ends = Ends()
    (late, _early) = ends.right.receive(ends.ask(34, now=0.0, seconds=3.0) + ends.ask(105, now=0.0, seconds=9.0))
    assert ends.left.expire(2.9) == 3.0
    assert ends.left.expire(3.0) == 9.0
    (problem,) = ends.outcomes
    assert isinstance(problem, CallTimeout)
    assert str(problem) == "right did not answer HEART_BEAT within 3 s"
    ends.left.receive(encode_frame(answer(late, Reply(0))))
    assert len(ends.outcomes) == 1
    assert ends.left.expire(9.0) is None


def test_the_end_of_a_connection_ends_its_calls() -> None:
    ends = Ends()
    ends.ask(1)
    ends.ask(2)
    ends.left.end("reset by peer")
    assert [str(outcome) for outcome in ends.outcomes] == ["the connection to right ended: reset by peer"] * 2
    with pytest.raises(ConnectionLost):
        ends.ask(3)


def test_unanswered_calls_are_bounded() -> None:
    ends = Ends()
    for _ in range(PENDING_CALLS_MAX):
        ends.ask(1)
    with pytest.raises(RemotingError, match="has not answered 4,096 requests"):
        ends.ask(1)


def test_request_numbers_wrap_and_avoid_those_in_use() -> None:
    outcomes: list[Outcome] = []
    session = Session("peer", first_opaque=2**31 - 1)
    peer = Session("us")
    frames = b"".join(session.call(Command(1), 0.0, 1.0, outcomes.append) for _ in range(3))
    assert [request.opaque for request in peer.receive(frames)] == [2**31 - 1, 0, 1]


def test_a_bad_frame_leaves_what_came_before() -> None:
    ends = Ends()
    requests = ends.right.receive(ends.ask(1) + b"\xff\xff\xff\xff")
    assert [request.code for request in requests] == [1]
    assert ends.right.failure is not None
