"""Steps in the manner of real clients: what npm's ali-ons and the C++ client write into headers, and binary headers."""

from typing import Any

from tests.interop.recorder.reads import dispatched
from tests.interop.recorder.reads import fields as pull_fields
from tests.interop.recorder.sends import fields, item, long_fields, properties
from tests.interop.recorder.wire import Step

NODE: dict[str, Any] = {"version": 121}
CPP: dict[str, Any] = {"version": 63, "language": "CPP", "header": {"remark": ""}, "after_header": b"\n"}
ALIYUN = {"AccessKey": "", "OnsChannel": "ALIYUN", "Signature": "x"}
QUEUE = {"topic": "Habits", "queueId": "0"}


def steps() -> list[Step]:
    return [*_node(), *_cpp(), *_binary()]


def _node() -> list[Step]:
    """Numbers and booleans as such, a separator after the last property, no unique key."""
    sent = fields("Habits", d=4, e=0, f=0, g=1_700_000_000_000, h=0, j=0, k=False, m=False)
    pulled = pull_fields("Habits", 0, queueId=0, queueOffset=0, maxMsgNums=32, sysFlag=4, commitOffset=0)
    beat = b'{"clientID":"1.2.3.4@5","consumerDataSet":[{"groupName":"Node","consumeType":"CONSUME_PASSIVELY",'
    beat += b'"messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":'
    beat += b'[{"topic":"Habits","subString":"*","tagsSet":[],"codeSet":[],"subVersion":5}],"unitMode":false}]}'
    offset: dict[str, Any] = {"consumerGroup": "Node", "topic": "Habits", "queueId": 0}
    return [
        Step("node: send", 310, sent | {"i": properties(TAGS="a", KEYS="k") + "\x02"}, b"node", **NODE),
        Step("node: pull", 11, pulled | {"subVersion": 5, "suspendTimeoutMillis": 0}, again_while=(19, 21), **NODE),
        Step("node: heartbeat", 34, {}, beat, connection="node", **NODE),
        Step("node: members", 38, {"consumerGroup": "Node"}, **NODE),
        Step("node: offset", 14, offset, **NODE),
        Step("node: commit", 15, offset | {"commitOffset": 1}, **NODE),
        Step("node: committed", 14, offset, **NODE),
        Step("node: give back", 36, {"offset": 0, "group": "Node", "delayLevel": 18, "maxReconsumeTimes": 3}, **NODE),
        Step("node: leave", 35, {"clientID": "1.2.3.4@5", "consumerGroup": "Node"}, connection="node", **NODE),
    ]


def _cpp() -> list[Step]:
    """A line break after the header, an empty remark, booleans as digits, fields of another service."""
    sent = long_fields("Habits", d=4, e=0, f=0, g="1700000000000", h=0, j=0, k="0", m="0") | ALIYUN
    text = properties(TAGS="a", UNIQ_KEY="0100007F00010001", WAIT="true") + "\x02"
    beat = b'{"clientID":"5-127.0.0.1@DEFAULT","producerDataSet":[{"groupName":"CppP"}]}\n'
    offset: dict[str, Any] = {"consumerGroup": "CppG", "topic": "Habits", "queueId": 0} | ALIYUN
    return [
        Step("cpp: send", 10, sent | {"properties": text}, b"cpp", **CPP),
        Step("cpp: heartbeat", 34, ALIYUN, beat, connection="cpp", **CPP),
        Step("cpp: producers", 204, {"producerGroup": "CppP"}),
        Step("cpp: offset", 14, offset, **CPP),
        Step("cpp: commit", 15, offset | {"commitOffset": "1"}, **CPP),
        Step("cpp: committed", 14, offset, **CPP),
        dispatched("cpp", "Habits", "0100007F00010001"),
        Step("cpp: newest", 30, {"topic": "Habits", "queueId": 0} | ALIYUN, **CPP),
        Step("cpp: oldest", 31, {"topic": "Habits", "queueId": 0} | ALIYUN, **CPP),
        Step("cpp: give back", 36, {"offset": "0", "group": "CppG", "delayLevel": 18} | ALIYUN, **CPP),
    ]


def _binary() -> list[Step]:
    """A message, reads and refusals with binary headers."""
    binary: dict[str, Any] = {"is_binary": True}
    two = item(b"one") + item(b"two", properties(KEYS="binary-key"))
    by_key = {"topic": "Habits", "key": "binary-key", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": str(2**62)}
    return [
        Step("binary: send", 310, fields("Habits", i=properties(TAGS="b")), b"binary", **binary),
        Step("binary: send to a bad topic", 310, fields("a.b"), b"x", **binary),
        Step("binary: batch", 320, fields("Habits", m="true"), two, **binary),
        Step("binary: query", 12, by_key, again_while=(22,), **binary),
        Step("binary: pull", 11, pull_fields("Habits", 0), **binary),
        Step("binary: pull past the end", 11, pull_fields("Habits", 999), **binary),
        Step("binary: pull of an unknown topic", 11, pull_fields("Nowhere", 0), **binary),
        Step("binary: newest", 30, QUEUE, **binary),
        Step("binary: offset", 14, QUEUE | {"consumerGroup": "Bin"}, **binary),
        Step("binary: commit", 15, QUEUE | {"consumerGroup": "Bin", "commitOffset": "2"}, **binary),
        Step("binary: committed", 14, QUEUE | {"consumerGroup": "Bin"}, **binary),
        Step("binary: topics", 202, {"topic": "Habits"}, **binary),
        Step("binary: heartbeat", 34, None, b'{"clientID":"bin","producerDataSet":[{"groupName":"B"}]}', **binary),
        Step("binary: view", 33, {"offset": "0"}, **binary),
        Step("binary: view of nothing", 33, {"offset": "99999999"}, **binary),
        Step("binary: field missing", 30, {"topic": "Habits"}, **binary),
        Step("binary: unknown code", 9999, None, **binary),
    ]
