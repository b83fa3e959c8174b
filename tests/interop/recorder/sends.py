"""Steps that store: sends by their three codes, batches, replies, and messages given back."""

import struct
from typing import Any

from tests.interop.recorder.wire import ONEWAY, OffsetOf, Step
from tests.support.send_frames import LONG

SEND, SEND_V2, BATCH, SEND_BACK, REPLY, REPLY_V2 = 10, 310, 320, 36, 324, 325
BORN_MS = 1_700_000_000_000


def fields(topic: str, **more: Any) -> dict[str, Any]:
    """The one-letter fields of a send; None takes one out."""
    whole: dict[str, Any] = {
        "a": "pg",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": str(BORN_MS),
        "h": "0",
        "i": "",
        "j": "0",
        "k": "false",
        "m": "false",
    } | more
    return {name: value for name, value in whole.items() if value is not None}


def long_fields(topic: str, **more: Any) -> dict[str, Any]:
    return {LONG[name]: value for name, value in fields(topic, **more).items()}


def properties(**pairs: str) -> str:
    return "\x02".join(f"{name}\x01{value}" for name, value in pairs.items())


def item(body: bytes, texts: str = "", flag: int = 0) -> bytes:
    """A message of a batch."""
    named = texts.encode()
    head = struct.pack(">iii", 0, 0, flag) + struct.pack(">i", len(body)) + body + struct.pack(">h", len(named)) + named
    return struct.pack(">i", 4 + len(head)) + head


def send(name: str, topic: str, body: bytes = b"hello", /, step: Any = None, **more: Any) -> Step:
    return Step(f"send: {name}", SEND_V2, fields(topic, **more), body, **(step or {}))


def steps() -> list[Step]:
    return [*_places(), *_contents(), *_malformed(), *_batches(), *_retries(), *_given_back(), *_replies()]


def _places() -> list[Step]:
    """Topics and queues."""
    return [
        send("first message makes the topic", "T"),
        send("second message", "T", b"world", i=properties(TAGS="TagA", KEYS="k1 k2", UNIQ_KEY="U1")),
        send("queue 3", "T", e="3"),
        send("queue of a topic with 4", "T", e="4"),
        send("queue far out", "T", e="99"),
        send("largest queue id", "T", e="2147483647"),
        send("queue as a JSON number", "T", e=1),
        send("random queue of a topic with one", "DefaultCluster_REPLY_TOPIC", e="-1"),
        send("topic with a dot", "a.b"),
        send("topic with a blank inside", "a b"),
        send("empty topic", ""),
        send("blank topic", "   "),
        send("topic of 127 characters", "t" * 127),
        send("topic of 128 characters", "t" * 128),
        send("topic of 300 characters", "t" * 300),
        send("topic with a pipe and a percent sign", "a|b%c"),
        send("topic in Chinese", "主题"),
        send("schedule topic", "SCHEDULE_TOPIC_XXXX"),
        send("half topic", "RMQ_SYS_TRANS_HALF_TOPIC"),
        send("op topic", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
        send("discarded transactions", "TRANS_CHECK_MAX_TIME_TOPIC"),
        send("self test topic", "SELF_TEST_TOPIC"),
        send("offset moved topic", "OFFSET_MOVED_EVENT"),
        send("default topic itself", "TBW102"),
        send("benchmark topic", "BenchmarkTest", e="1023"),
        send("cluster topic", "DefaultCluster"),
        send("broker topic", "broker-a"),
        send("trace topic", "RMQ_SYS_TRACE_TOPIC"),
        send("lower-case system prefix", "rmq_sys_x"),
        send("unknown default topic", "U1", c="nowhere"),
        send("default topic that does not inherit", "U2", c="BenchmarkTest"),
        send("default topic is the cluster's", "U3", c="DefaultCluster", d="20"),
        send("default topic is the broker's", "U4", c="broker-a", d="20"),
        send("more queues than the default topic has", "U5", d="100"),
        send("no queue of a new topic", "U6", d="0"),
        send("negative number of queues", "U7", d="-3"),
        send("queue beyond those of a new topic", "U8", d="2", e="2"),
        send("that topic is there now", "U8", e="1"),
        send("unit mode", "U9", k="true"),
        send("unit mode in capitals", "U10", k="TRUE"),
        send("unit mode as a JSON boolean", "U11", k=True),
        send("empty default topic", "U12", c=""),
        Step("send: long names", SEND, long_fields("T"), b"long"),
        Step("send: long names, unknown topic", SEND, long_fields("L1", d="3"), b"long"),
        Step("send: code 320 without batch", BATCH, fields("T"), b"single"),
        Step("send: one-way", SEND_V2, fields("T"), b"one-way", flag=ONEWAY),
        send("after the one-way", "T"),
        send("version 0", "T", step={"version": 0}),
        send(
            "a client of 5.x", "T", step={"version": 479}, n="broker-a", ns="x", nsd="false", lo="false", oway="false"
        ),
        send("language CPP", "T", step={"language": "CPP"}),
        send("language PYTHON", "T", step={"language": "PYTHON"}),
        send("unknown language", "T", step={"language": "COBOL"}),
        Step("send: numbers as JSON numbers", SEND_V2, fields("T", d=4, e=0, f=0, g=BORN_MS, h=0, j=0), b"numbers"),
    ]


def _contents() -> list[Step]:
    """Bodies, flags and properties."""
    return [
        send("empty body", "T", b""),
        send("empty properties left out", "T", i=None),
        send("flag 7", "T", h="7"),
        send("negative flag", "T", h="-1"),
        send("compressed", "T", f="1"),
        send("unknown system flags", "T", f="1024"),
        send("all optional fields left out", "T", i=None, j=None, k=None, m=None),
        send("reconsume times of an ordinary topic", "T", j="3"),
        send("negative born time", "T", g="-1"),
        send("born time 0", "T", g="0"),
        send("property text ends in a separator", "T", i=properties(A="1", B="2") + "\x02"),
        send("property with an empty value", "T", i="A\x01\x02B\x012"),
        send("property without a value", "T", i="A\x02B\x012"),
        send("property twice", "T", i="A\x011\x02A\x012"),
        send("property in Chinese", "T", i=properties(名="值")),
        send("properties of 33,000 characters", "T", i=properties(A="x" * 33_000)),
        send("properties of 32,000 characters", "T", i=properties(A="x" * 32_000)),
        send("properties of 12,000 three-byte characters", "T", i=properties(A="值" * 12_000)),
        send("wait is false", "T", i=properties(WAIT="false")),
        send("wait is true", "T", i=properties(WAIT="true", X="y")),
        send("cluster property of the client", "T", i=properties(CLUSTER="mine")),
        send("delayed by level 18", "T", i=properties(DELAY="18", TAGS="TagA")),
        send("delayed by level 18, and wait", "T", i=properties(DELAY="18", WAIT="true")),
        send("delay level beyond the last", "T", i=properties(DELAY="99")),
        send("delay level 0", "T", i=properties(DELAY="0")),
        send("negative delay level", "T", i=properties(DELAY="-1")),
        send("delay level that is no number", "T", i=properties(DELAY="x")),
        send("body of 4 MiB", "T", b"x" * (4 << 20)),
        send("body of 4 MiB and a byte", "T", b"x" * ((4 << 20) + 1)),
        send("body of 100 KiB", "T", b"x" * (100 << 10)),
        send("many properties", "T", i=properties(**{f"name{number}": str(number) for number in range(40)})),
        send("tag A", "Tags", i=properties(TAGS="TagA")),
        send("tag B", "Tags", i=properties(TAGS="TagB")),
        send("no tag", "Tags"),
        send("tag in Chinese", "Tags", i=properties(TAGS="标签")),
        send("keys", "Keys", i=properties(KEYS="order-1 order-2", UNIQ_KEY="0A0A0A0A00010001")),
        send("keys again", "Keys", i=properties(KEYS="order-1")),
        send("keys with blanks", "Keys", i=properties(KEYS="  spaced   out ")),
    ]


def _malformed() -> list[Step]:
    """Headers that miss something or cannot be read."""
    required = "abcdefgh"
    return [
        *(send(f"field {name} is missing", "T", **{name: None}) for name in required),
        *(Step(f"send: {LONG[name]} is missing", SEND, long_fields("T", **{name: None})) for name in required),
        *(send(f"field {name} is no number", "T", **{name: "x"}) for name in "defghj"),
        *(send(f"field {name} is empty", "T", **{name: ""}) for name in "adefgh"),
        send("queue id of 2^31", "T", e="2147483648"),
        send("queue id with a blank", "T", e=" 1"),
        send("queue id with an underscore", "T", e="1_0"),
        send("batch is neither", "T", m="maybe"),
        Step("send: no fields at all", SEND_V2, {}),
        Step("send: no extFields", SEND_V2),
        Step("send: long names under the short code", SEND_V2, long_fields("T")),
        Step("send: short names under the long code", SEND, fields("T")),
        Step("send: two fields", SEND_V2, {"a": "pg", "b": "T"}),
        send("field that is not known", "T", zz="1"),
        Step("send: value null", SEND_V2, fields("T") | {"j": None}, b"null"),
    ]


def _batches() -> list[Step]:
    two = item(b"one", properties(TAGS="TagA", UNIQ_KEY="B1")) + item(b"two", properties(TAGS="TagB"), flag=5)
    return [
        Step("batch: two messages", BATCH, fields("Batch", m="true"), two),
        Step("batch: under code 310", SEND_V2, fields("Batch", m="true"), two),
        Step("batch: under code 10", SEND, long_fields("Batch", m="true"), two),
        Step("batch: with properties of the whole", BATCH, fields("Batch", m="true", i=properties(X="y")), two),
        Step("batch: one message", BATCH, fields("Batch", m="true"), item(b"alone")),
        Step("batch: a message without body", BATCH, fields("Batch", m="true"), item(b"")),
        Step("batch: delayed", BATCH, fields("Batch", m="true", i=properties(DELAY="3")), two),
        Step("batch: prepared", BATCH, fields("Batch", m="true", f="4"), two),
        Step("batch: committed", BATCH, fields("Batch", m="true", f="8"), two),
        Step("batch: unknown topic", BATCH, fields("Batch2", m="true"), two),
        Step("batch: bad topic", BATCH, fields("a.b", m="true"), two),
        Step("batch: queue far out", BATCH, fields("Batch", m="true", e="44"), two),
        Step("batch: reserved topic", BATCH, fields("SELF_TEST_TOPIC", m="true"), two),
        Step("batch: empty body", BATCH, fields("Batch", m="true"), b""),
        Step("batch: three bytes", BATCH, fields("Batch", m="true"), b"\0\0\0"),
        Step("batch: truncated", BATCH, fields("Batch", m="true"), two[:-2]),
        Step("batch: delay inside a message", BATCH, fields("Batch", m="true"), item(b"d", properties(DELAY="3"))),
        Step("batch: version 0", BATCH, fields("Batch", m="true"), two, version=0),
        send("after the batches", "Batch"),
    ]


def _retries() -> list[Step]:
    """Sends to retry topics: what a client does when giving back failed."""
    return [
        send("unknown retry topic", "%RETRY%R1"),
        send("retry topic, last try", "%RETRY%R1", j="15"),
        send("retry topic, one too many", "%RETRY%R1", j="16"),
        send("retry topic, own limit", "%RETRY%R1", j="3", l="3"),
        send("retry topic, own limit of an old client", "%RETRY%R1", j="3", l="3", step={"version": 100}),
        send("retry topic, own limit is higher", "%RETRY%R1", j="17", l="20"),
        send("retry topic, delayed", "%RETRY%R1", j="1", i=properties(DELAY="18")),
        send("retry topic without a default topic", "%RETRY%R2", c="nowhere"),
        send("retry topic in unit mode", "%RETRY%R3", k="true"),
        send("dead-letter topic itself", "%DLQ%R9"),
        send("own limit 0", "%RETRY%R1", j="0", l="0"),
        send("negative own limit", "%RETRY%R1", j="0", l="-1"),
        send("reconsume times left out", "%RETRY%R1", j=None),
    ]


def back(name: str, group: str, level: int | str, offset: Any, /, version: int = 409, **more: Any) -> Step:
    ext = {"offset": offset, "group": group, "delayLevel": str(level), "originMsgId": "x", "originTopic": "T"} | more
    return Step(f"back: {name}", SEND_BACK, {k: v for k, v in ext.items() if v is not None}, version=version)


def _given_back() -> list[Step]:
    first, second = OffsetOf("send: first message makes the topic"), OffsetOf("send: second message")
    dead = OffsetOf("send: retry topic, one too many")
    return [
        back("broker chooses the delay", "G1", 0, first),
        back("level 18", "G1", 18, second),
        back("level beyond the last", "G1", 40, second),
        back("to the dead letters", "G1", -1, second),
        back("own limit reached", "G1", 0, second, maxReconsumeTimes="0"),
        back("own limit of an old client", "G1", 18, second, version=100, maxReconsumeTimes="0"),
        back("unit mode", "G2", 18, second, unitMode="true"),
        back("no such place", "G1", 18, "999999999"),
        back("inside a record", "G1", 18, OffsetOf("send: second message", 7)),
        back("negative place", "G1", 18, "-5"),
        back("message that was given back before", "G1", 0, dead),
        back("group is missing", "G1", 0, first, group=None),
        back("offset is missing", "G1", 0, None),
        back("level is missing", "G1", 0, first, delayLevel=None),
        back("offset is no number", "G1", 0, "x"),
        back("without origin", "G1", 18, second, originMsgId=None, originTopic=None),
        Step("back: no fields", SEND_BACK),
    ]


def reply(name: str, client: str | None, /, code: int = REPLY_V2, **more: Any) -> Step:
    texts = {"CORRELATION_ID": "c1", "TTL": "3000", "MSG_TYPE": "reply"}
    named = properties(**texts, **({} if client is None else {"REPLY_TO_CLIENT": client}))
    chosen = (fields if code == REPLY_V2 else long_fields)("DefaultCluster_REPLY_TOPIC", i=named, **more)
    accepts = {326: (0, b"")}
    return Step(f"reply: {name}", code, chosen, b"the reply", client_answers=accepts)


def _replies() -> list[Step]:
    beat = b'{"clientID":"asker","producerDataSet":[{"groupName":"askers"}],"consumerDataSet":[]}'
    return [
        reply("to an unknown client", "nobody-there"),
        reply("to no client", None),
        Step("reply: the asker is there", 34, None, beat, connection="asker"),
        reply("pushed", "asker"),
        reply("pushed, long names", "asker", code=REPLY),
        reply("queue out of range", "asker", e="9"),
        Step("reply: unknown topic without default", REPLY_V2, fields("Nowhere", c="none"), b"x"),
        Step("reply: reserved topic", REPLY_V2, fields("SELF_TEST_TOPIC"), b"x"),
        Step("reply: field missing", REPLY_V2, fields("DefaultCluster_REPLY_TOPIC", b=None), b"x"),
        Step("reply: the asker refuses", REPLY_V2, reply("", "asker").ext, b"no", client_answers={326: (1, b"")}),
    ]
