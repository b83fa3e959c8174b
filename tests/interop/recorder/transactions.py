"""Steps of transactions: half messages, their ends, and the records they leave, which are the same byte for byte."""

from typing import Any

from tests.interop.recorder.reads import pull
from tests.interop.recorder.sends import properties, send
from tests.interop.recorder.wire import OffsetOf, Step

END, RESUME, VIEW = 37, 323, 33
COMMIT, ROLLBACK = "8", "12"
TOPIC = "Last"  # made by earlier steps: by now a send makes no topic
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
AGAIN = {"again_while": (19, 21)}


def half(name: str, /, **more: Any) -> Step:
    texts = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": f"U-{name}"} | more.pop("texts", {})
    return send(f"half, {name}", TOPIC, b"half", **({"f": "4", "e": "1", "i": properties(**texts)} | more))


def end(name: str, sent: str, queue_offset: int, decision: str, **more: Any) -> Step:
    fields = {
        "producerGroup": "pg",
        "tranStateTableOffset": str(queue_offset),
        "commitLogOffset": OffsetOf(f"send: half, {sent}"),
        "commitOrRollback": decision,
        "fromTransactionCheck": "false",
        "msgId": "U",
    }
    return Step(f"end: {name}", END, fields | more)


def steps() -> list[Step]:
    return [
        half("to commit"),
        half("to roll back"),
        half("undecided"),
        half("of another queue", e="3"),
        half("with tags", texts={"TAGS": "TagA", "KEYS": "k1", "WAIT": "true"}, h="7"),
        half("not meant", texts={"TRAN_MSG": "false"}, f="0"),
        half("in capitals", texts={"TRAN_MSG": "TRUE"}),
        half("without its flag", f="0"),
        *_refused(),
        end("commit", "to commit", 0, COMMIT),
        end("roll back", "to roll back", 1, ROLLBACK),
        end("commit of another queue", "of another queue", 3, COMMIT),
        end("commit with tags", "with tags", 4, COMMIT, fromTransactionCheck="true"),
        *(
            Step(f"view: half {name}", VIEW, {"offset": OffsetOf(f"send: half, {name}")})
            for name in ("undecided", "with tags", "not meant", "in capitals", "without its flag")
        ),
        pull("committed", TOPIC, queueId="1", step=AGAIN),
        pull("committed, queue 3", TOPIC, queueId="3", step=AGAIN),
        pull("decisions", OP, step=AGAIN),
    ]


def _refused() -> list[Step]:
    return [
        end("of another group", "undecided", 2, COMMIT, producerGroup="other"),
        end("of another offset", "undecided", 1, COMMIT),
        end("inside a record", "undecided", 2, COMMIT, commitLogOffset=OffsetOf("send: half, undecided", 1)),
        end("behind the log", "undecided", 2, COMMIT, commitLogOffset="99999999999"),
        end("before the log", "undecided", 2, COMMIT, commitLogOffset="-1"),
        Step("resume: no such message", RESUME, {"msgId": "7F00000100002A9F00000000FFFFFFFF"}),
    ]


def odd_steps() -> list[Step]:
    """After these the logs differ."""
    return [
        end("commit again", "to commit", 0, COMMIT),
        end("commit after a rollback", "to roll back", 1, COMMIT),
        pull("committed twice", TOPIC, queueId="1"),
    ]
