"""Any bytes at all: a session reads commands or says why it cannot, and whatever it read can be answered."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.remoting import BINARY, JSON, Command, Reply, Session, answer, encode_frame, parse_json, write_json
from tests.support.nasty_frames import NASTY, Nasty, Outcome, framed

GOOD = (
    encode_frame(Command(310, 1, ext={"a": "pg", "b": "T", "e": "0"}, body=b"body")),
    encode_frame(Command(11, 2, ext={"topic": "T", "queueId": "0"}, remark="r", serialization=BINARY)),
    framed(b'{"code":34,"extFields":{"n":1,"b":true,"x":null},"language":3}', b'{"clientID":"c"}'),
)
PIECES = (
    b'{ } [ ] , : "code" "extFields" "flag" "opaque" "a" '
    b'"\xff" "\\ud800" 1 - 1e999 NaN null true " \\ \0 \xc3 999999999999999999999'
)
JSON_PIECES = st.lists(st.sampled_from([*PIECES.split(), b" "]), max_size=14).map(b"".join)


def feed(data: bytes, cuts: list[int]) -> tuple[list[Command], str | None]:
    """What a session makes of a stream that comes in pieces."""
    session, requests, at = Session("peer"), [], 0
    for cut in [*sorted(min(cut, len(data)) for cut in cuts), len(data)]:
        if cut > at:
            requests += session.receive(data[at:cut])
            at = cut
        assert session.unread_bytes <= len(data)
    for request in requests:
        echoed = str(request.ext)[:1000]
        assert encode_frame(answer(request, Reply(1, echoed, request.ext if request.serialization == JSON else None)))
    return requests, session.failure


@pytest.mark.parametrize("nasty", NASTY, ids=[nasty.name for nasty in NASTY])
def test_the_corpus(nasty: Nasty) -> None:
    requests, failure = feed(nasty.data, [1, 7, 30])
    if nasty.outcome is Outcome.CLOSED:
        assert failure is not None
    else:
        assert failure is None
        assert bool(requests) == (nasty.outcome is Outcome.ANSWERED or nasty.name.startswith("one-way"))


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=4))
def test_any_bytes(data: bytes, cuts: list[int]) -> None:
    feed(data, cuts)


@given(st.sampled_from(GOOD), st.integers(0, 2**32), st.lists(st.integers(0, 200), max_size=3))
def test_frames_with_changed_bytes(frame: bytes, seed: int, cuts: list[int]) -> None:
    dice, data = random.Random(seed), bytearray(frame)
    for _ in range(dice.randint(1, 4)):
        data[dice.randrange(len(data))] = dice.choice((0, 1, 0x22, 0x5C, 0x7B, 0x7F, 0x80, 0xFF, dice.randrange(256)))
    feed(bytes(data) + GOOD[0], cuts)


@given(JSON_PIECES, st.sampled_from([0, 1]))
def test_headers_of_json_pieces(header: bytes, kind: int) -> None:
    feed(framed(header, kind=kind) + GOOD[1], [])


@given(st.binary(max_size=60))
def test_binary_headers(header: bytes) -> None:
    feed(framed(header, kind=BINARY), [])


@given(JSON_PIECES)
def test_bodies_of_json_pieces(body: bytes) -> None:
    """What is read can be written again."""
    try:
        value = parse_json(body)
    except ValueError:
        return
    assert parse_json(write_json(value)) == value
