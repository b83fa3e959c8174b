"""Transactions of one store, RocketMQ's broker and ours in turn: what one leaves undecided, the other asks about.

The second broker finds decided and undecided half messages of the first and asks about the undecided ones alone. It
leaves one undecided, about which the first one asks when it is back. Nothing becomes visible twice.
"""

import json
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from embermq import MessageStore
from embermq.model.message import StoredMessage
from embermq.model.properties import HALF_TOPIC
from embermq.remoting import parse_json
from tests.interop import java_broker, reference
from tests.interop.recorder.sends import fields as send_fields
from tests.interop.recorder.sends import properties
from tests.interop.test_broker_tables import Talk, broker
from tests.support.transactions import stored_of
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.interop

TOPIC, GROUP = "orders", "pg"
COMMIT, ROLLBACK = "8", "12"
END, HEARTBEAT, CHECK = 37, 34, 39
SILENT = {"transactionCheckInterval": "3600000"}
ASKING = {"transactionCheckInterval": "2000", "transactionTimeOut": "500", "flushConsumerOffsetInterval": "1000"}
LAST = b"last"


@pytest.fixture(scope="module", autouse=True)
def _fetched() -> None:
    try:
        java_broker.class_path()
    except reference.ReferenceMissing as why:
        pytest.skip(str(why))


class Producer:
    """A producer that knows what became of a transaction by the body of its message."""

    def __init__(self, talk: Talk) -> None:
        self._talk, self._answered = talk, 0
        self.asked: set[bytes] = set()
        members = {"clientID": "p", "producerDataSet": [{"groupName": GROUP}], "consumerDataSet": []}
        talk.ask(HEARTBEAT, None, json.dumps(members).encode())

    def prepare(self, body: bytes) -> dict[str, Any]:
        texts = properties(TRAN_MSG="true", PGROUP=GROUP, UNIQ_KEY=f"U-{body.decode()}")
        sent = self._talk.ask(310, send_fields(TOPIC, f="4", g=str(int(time.time() * 1000)), i=texts), body)
        stored = sent.header["extFields"]
        return {"tranStateTableOffset": stored["queueOffset"], "commitLogOffset": str(int(stored["msgId"][16:], 16))}

    def end(self, half: dict[str, Any], decision: str, *, is_asked: bool = False) -> None:
        place = {name: half[name] for name in ("tranStateTableOffset", "commitLogOffset")}
        more = {"producerGroup": GROUP, "commitOrRollback": decision, "fromTransactionCheck": str(is_asked).lower()}
        self._talk.ask(END, place | more)

    def answer_questions(self, undecided: set[bytes]) -> int:
        """Answer all questions up to that about a half message sent now, before which the older ones were asked about;
        the offset of that one."""
        last = self.prepare(LAST)
        deadline = time.monotonic() + 2 * PATIENCE_SECONDS
        while LAST not in self.asked:
            assert time.monotonic() < deadline, self.asked
            asked = self._talk.questions(CHECK, 0.2)
            for question in asked[self._answered :]:
                self._answer(question, undecided)
            self._answered = len(asked)
        return int(last["tranStateTableOffset"])

    def _answer(self, question: Any, undecided: set[bytes]) -> None:
        half = stored_of(question.body)
        assert (half.topic, half.properties["UNIQ_KEY"]) == (TOPIC, f"U-{half.body.decode()}")
        self.asked.add(half.body)
        if half.body not in undecided:
            decision = ROLLBACK if half.body.startswith(b"rollback") else COMMIT
            self.end(question.header["extFields"], decision, is_asked=True)


def begin(talk: Talk) -> None:
    """Two transactions that are decided, and three that are not."""
    producer = Producer(talk)
    for body, decision in ((b"commit-0", COMMIT), (b"commit-1", ""), (b"rollback-2", ROLLBACK)):
        half = producer.prepare(body)
        if decision:
            producer.end(half, decision)
    producer.prepare(b"rollback-3")
    producer.prepare(b"commit-4")


def is_counted(place: Path, half_offset: int) -> bool:
    """Whether the progress on the disk is behind a half message."""
    try:
        table = parse_json((place / "store" / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    except (OSError, ValueError):
        return False  # Between two versions of the file.
    return int(table.get(f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS", {}).get("0", 0)) > half_offset


def visible(place: Path) -> list[StoredMessage]:
    with MessageStore.open(place / "store", read_only=True) as store:
        return [one for queue in range(4) for one in store.fetch(TOPIC, queue, 0).messages]


@pytest.mark.parametrize(
    "is_killed", [pytest.param(False, id="stopped"), pytest.param(True, id="killed", marks=pytest.mark.long)]
)
@pytest.mark.parametrize(("first", "second"), [("ours", "theirs"), ("theirs", "ours")])
def test_what_one_broker_leaves_undecided_the_other_asks_about(
    first: str, second: str, is_killed: bool, tmp_path: Path
) -> None:
    with broker(first, tmp_path, is_killed=is_killed, settings=SILENT) as talk:
        begin(talk)
    turns = ((second, {b"commit-1", b"rollback-3", b"commit-4"}), (first, {b"commit-4"}), (second, set[bytes]()))
    for number, (whose, undecided) in enumerate(turns):
        with broker(whose, tmp_path, is_killed=is_killed, settings=ASKING) as talk:
            producer = Producer(talk)
            last = producer.answer_questions(undecided={b"commit-4"} if number == 0 else set())
            assert producer.asked == {*undecided, LAST}, whose
            if whose == "theirs":  # Its round ends a little later, and a kill would have it ask again.
                wait_until(partial(is_counted, tmp_path, last), "RocketMQ has written down its progress")
    counts = Counter(message.body for message in visible(tmp_path))
    assert counts == {b"commit-0": 1, b"commit-1": 1, b"commit-4": 1, LAST: 3}
