"""Steps after which the two brokers no longer hold the same, on purpose: they come last, and wanted.py has a row for
each that is answered differently."""

from tests.interop.recorder.admins import ask, group
from tests.interop.recorder.reads import fields as pull_fields
from tests.interop.recorder.sends import back, properties, send
from tests.interop.recorder.wire import OffsetOf, Step


def steps() -> list[Step]:
    return [*_names(), *_offsets(), *_numbers(), *_stored_otherwise()]


def _names() -> list[Step]:
    """Groups without a name, and groups that are only left."""
    left = {"clientID": "m3", "consumerGroup": "Left1", "producerGroup": "Left2"}
    return [
        Step("odd: pull of a group without a name", 11, pull_fields("Tags", 0, consumerGroup="")),
        Step("odd: leave a group without a name", 35, {"clientID": "m3", "consumerGroup": "", "producerGroup": ""}),
        Step("odd: leave unknown groups", 35, left, connection="m3"),
        Step("odd: leave a group of others", 35, {"clientID": "m3", "consumerGroup": "Five"}, connection="m3"),
        group("as 5.x writes it", {"groupName": "Newer", "consumeMessageOrderly": False, "attributes": {}}),
        Step("odd: leave without a client id", 35, {"consumerGroup": "CG"}, connection="m3"),
        Step("odd: all groups", 201),
    ]


def _offsets() -> list[Step]:
    negative = {"consumerGroup": "Negative", "topic": "Tags", "queueId": "0", "commitOffset": "-1"}
    return [
        Step("odd: negative commit", 15, negative),
        Step("odd: after a negative commit", 14, negative),
        Step("odd: negative commit of a pull", 11, pull_fields("Tags", 0, **(negative | {"sysFlag": "5"}))),
        *(
            Step(f"odd: {code} without a group", code, {"topic": "Tags", "queueId": "0", "commitOffset": "1"})
            for code in (14, 15)
        ),
        Step("odd: 15 without a topic", 15, {"consumerGroup": "Off", "queueId": "0", "commitOffset": "1"}),
        Step("odd: all offsets", 43),
        Step("odd: reset without a time", 222, {"topic": "Tags", "group": "CG", "isForce": "false"}),
        ask("correction without some", 308, topic="Tags", compareGroup="CG", filterGroups="Off,Commits2"),
        Step("odd: offsets of those left out", 14, {"consumerGroup": "Off", "topic": "Tags", "queueId": "0"}),
        ask("clone without a topic", 314, srcGroup="CG", destGroup="Clone2"),
        Step("odd: the clone", 14, {"consumerGroup": "Clone2", "topic": "Tags", "queueId": "0"}),
    ]


def _numbers() -> list[Step]:
    return [
        Step(f"odd: queue id {text!r}", 30, {"topic": "Tags", "queueId": text})
        for text in ("1.0", "+1", "-0", "1e0", "0x1", "١", "1_0", " 1", "1 ")
    ]


def _stored_otherwise() -> list[Step]:
    second = OffsetOf("send: second message")
    return [
        send("separator inside a value", "T", i="A\x011\x013\x02B\x012"),
        send("retry topic of no group", "%RETRY%"),
        back("empty group", "", 18, second),
        send("dead letter, delayed", "%RETRY%R1", j="16", i=properties(DELAY="18")),
        send("batch as C++ writes it", "T", b"no batch", m="1"),
        send("new topics after they were off", "Never4"),
    ]
