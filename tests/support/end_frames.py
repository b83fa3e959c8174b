"""Frames of ends of transactions as clients write them, and as none should: strategies for tests of what reads them."""

from typing import Any

from hypothesis import strategies as st

from tests.support.send_frames import JAVA, binary_frame, json_frame

UNKNOWN, COMMIT, ROLLBACK = 0, 8, 12


def end_fields(group: str, half_offset: int, place: int, decision: int) -> dict[str, Any]:
    """As a Java client writes them."""
    return {
        "commitLogOffset": str(place),
        "commitOrRollback": str(decision),
        "fromTransactionCheck": "false",
        "msgId": "7F0000010001639CFE2B000000000001",
        "producerGroup": group,
        "tranStateTableOffset": str(half_offset),
        "transactionId": "7F0000010001639CFE2B000000000001",
    }


_NUMBERS = st.sampled_from(["7", "8", "0", "-1", "007", "x", "", "9" * 18, "9" * 19, 7, 8, 12, 1.0, True, None])


@st.composite
def end_frames(draw: st.DrawFn, places: list[int]) -> bytes:
    """One frame, usually a good one of a half message 7 at one of these places."""
    decision = draw(st.sampled_from([COMMIT, COMMIT, ROLLBACK, UNKNOWN]))
    place = draw(st.sampled_from([*places, *places, places[0] + 1, 0, -1]))
    fields = end_fields("pg", 7, place, decision)
    for name in draw(st.lists(st.sampled_from([*fields, "n", "topic"]), max_size=1)):
        fields[name] = draw(st.one_of(_NUMBERS, st.sampled_from(["pg", "é", "a\nb", 'q"', "true"])))
    for name in draw(st.lists(st.sampled_from(list(fields)), max_size=1)) if draw(st.booleans()) else []:
        del fields[name]
    opaque, code = draw(st.sampled_from([0, 77, -5, 2**31 - 1])), draw(st.sampled_from([37, 37, 37, 310, 36]))
    flag, body = draw(st.sampled_from([0, 0, 2, 1, 3])), draw(st.sampled_from([b"", b"", b"", b"x"]))
    if draw(st.integers(0, 9)) == 0:
        return json_frame(JAVA, b"a send")
    if draw(st.booleans()):
        return binary_frame({name: str(value) for name, value in fields.items()}, body, opaque, code, flag)
    return json_frame(fields, body, opaque, code, flag=flag)
