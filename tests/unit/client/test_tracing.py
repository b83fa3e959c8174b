"""Lines of the message trace."""

import asyncio

from embermq.client.tracing import LINES_MAX, Tracer, after_line, before_line, end_transaction_line, pub_line
from embermq.model.message import Message


def test_lines_have_rocketmqs_fields_in_order() -> None:
    pub = pub_line(
        time_ms=1,
        region="R",
        group="G",
        topic="T",
        message_id="M",
        tags="",
        keys="k1 k2",
        store_host="1.1.1.1:1",
        body_bytes=3,
        cost_ms=4,
        kind=0,
        offset_message_id="O",
        is_sent=True,
    )
    assert pub == "Pub\x011\x01R\x01G\x01T\x01M\x01\x01k1 k2\x011.1.1.1:1\x013\x014\x010\x01O\x01true\x02"
    before = before_line(time_ms=1, region="R", group="G", request_id="Q", message_id="M", retries=2, keys="k")
    assert before == "SubBefore\x011\x01R\x01G\x01Q\x01M\x012\x01k\x02"
    after = after_line(
        request_id="Q", message_id="M", cost_ms=5, is_consumed=False, keys="k", code=1, time_ms=9, group="G"
    )
    assert after == "SubAfter\x01Q\x01M\x015\x01false\x01k\x011\x019\x01G\x02"
    end = end_transaction_line(
        time_ms=1,
        region="R",
        group="G",
        topic="T",
        message_id="M",
        tags="t",
        keys="k",
        store_host="h",
        transaction_id="X",
        state="COMMIT_MESSAGE",
        is_check=False,
    )
    assert end.split("\x01") == [
        "EndTransaction",
        "1",
        "R",
        "G",
        "T",
        "M",
        "t",
        "k",
        "h",
        "2",
        "X",
        "COMMIT_MESSAGE",
        "false\x02",
    ]


def test_lines_are_posted_a_hundred_at_a_time_and_at_a_flush() -> None:
    posted: list[Message] = []

    async def scenario() -> None:
        tracer = Tracer("TRACE", posted.append)
        for number in range(LINES_MAX + 5):
            tracer.add(f"{number}\x02", [f"id{number}", "", "k"])
        assert len(posted) == 1
        tracer.flush()
        tracer.flush()

    asyncio.run(scenario())
    assert [message.body.count(b"\x02") for message in posted] == [LINES_MAX, 5]
    assert posted[1].keys == "id100 k id101 id102 id103 id104"
    assert posted[0].topic == "TRACE"


def test_long_lines_are_spread_over_messages() -> None:
    posted: list[Message] = []

    async def scenario() -> None:
        tracer = Tracer("TRACE", posted.append)
        for _ in range(3):
            tracer.add("x" * 60_000, ["id"])
        tracer.flush()

    asyncio.run(scenario())
    assert [len(message.body) for message in posted] == [60_000] * 3
