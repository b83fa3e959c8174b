"""Steps that read: pulls, offsets, queries. They come after the sends."""

from typing import Any

from tests.interop.recorder.sends import properties, send
from tests.interop.recorder.wire import OffsetOf, Step

PULL, LITE_PULL, QUERY, VIEW = 11, 361, 12, 33
FAR_MS = 4_000_000_000_000


def fields(topic: str, offset: int | str, /, **more: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "consumerGroup": "PG",
        "topic": topic,
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    } | more
    return {name: value for name, value in whole.items() if value is not None}


def pull(name: str, topic: str, offset: int | str = 0, /, step: Any = None, **more: Any) -> Step:
    return Step(f"pull: {name}", PULL, fields(topic, offset, **more), **(step or {}))


def steps() -> list[Step]:
    return [*_dispatched(), *_found(), *_refused(), *_registered(), *_offsets(), *_queries(), *_malformed()]


def dispatched(name: str, topic: str, key: str) -> Step:
    """Wait until the message with this key is in its queue and in the index: what was stored before is there, too."""
    ext = {"topic": topic, "key": key, "maxNum": "1", "beginTimestamp": "0", "endTimestamp": str(2**62)}
    return Step(f"dispatched: {name}", QUERY, ext, again_while=(22,))


def _dispatched() -> list[Step]:
    """The last message of the sends can be pulled: all others can as well."""
    again = {"again_while": (19, 21)}
    return [send("last one", "Last"), pull("the last message", "Last", step=again)]


def _found() -> list[Step]:
    tags = ("TagA", "TagA||TagB", " TagA || TagB ", "TagC", "*", "", "标签", "TagA||", "TagB || ")
    return [
        pull("from the start", "T"),
        pull("one", "T", 1, maxMsgNums="1"),
        pull("none wanted", "T", 0, maxMsgNums="0"),
        pull("a negative number wanted", "T", 0, maxMsgNums="-1"),
        pull("more than a pull gives", "T", 0, maxMsgNums="1000"),
        pull("goes on", "T", 32),
        pull("queue 3", "T", 0, queueId="3"),
        pull("queue 1", "T", 0, queueId="1"),
        pull("queue 2 is empty", "T", 0, queueId="2"),
        pull("empty queue, further on", "T", 5, queueId="2"),
        pull("at the end", "Keys", 3),
        pull("past the end by one", "Keys", 4),
        pull("far past the end", "T", 1000),
        pull("before the start", "Keys", -1),
        *(pull(f"tags {text!r}", "Tags", subscription=text) for text in tags),
        pull("no text", "Tags", subscription=None),
        pull("no kind of expression", "Tags", expressionType=None, subscription="TagA"),
        pull("empty kind of expression", "Tags", expressionType="", subscription="TagB"),
        pull("batch", "Batch"),
        pull("delayed topic", "SCHEDULE_TOPIC_XXXX", 0, queueId="17"),
        pull("dead letters", "%DLQ%R1"),
        pull("dead letters of another", "%DLQ%G1"),
        pull("retry topic", "%RETRY%R1"),
        pull("far past the end, once more", "T", 1001, consumerGroup="LastMoved"),
        dispatched("offset moved events", "OFFSET_MOVED_EVENT", "LastMoved"),
        pull("offset moved events", "OFFSET_MOVED_EVENT"),
        pull("reply topic", "DefaultCluster_REPLY_TOPIC"),
        pull("topic of 127 characters", "t" * 127),
        pull("commits an offset", "Tags", 1, sysFlag="5", commitOffset="1", consumerGroup="Commits"),
        pull("commits beyond the queue", "Tags", 1, sysFlag="5", commitOffset="77", consumerGroup="Commits2"),
        pull("does not commit", "Tags", 1, commitOffset="3", consumerGroup="Commits3"),
        pull(
            "commits and is refused", "Tags", 1, sysFlag="5", commitOffset="2", queueId="50", consumerGroup="Commits5"
        ),
        pull("may wait, and finds", "Tags", 0, sysFlag="6", suspendTimeoutMillis="1000"),
        Step("pull: lite", LITE_PULL, fields("Tags", 0, sysFlag="20")),
        pull(
            "of a client of 5.x", "Tags", step={"version": 479}, maxMsgBytes="1000", requestSource="0", bname="broker-a"
        ),
        pull("as JSON numbers", "Tags", queueId=0, queueOffset=0, maxMsgNums=32, sysFlag=4, subVersion=0),
    ]


def _refused() -> list[Step]:
    return [
        pull("unknown topic", "Nowhere"),
        pull("queue out of range", "T", queueId="50"),
        pull("negative queue", "T", queueId="-1"),
        pull("separators only", "Tags", subscription="||"),
        pull("blank and separators", "Tags", subscription=" || "),
        pull("empty SQL", "Tags", expressionType="SQL92", subscription=""),
        pull("SQL, which is off", "Tags", expressionType="SQL92", subscription="a = 5"),
        pull("kind that is not known", "Tags", expressionType="REGEX", subscription="a"),
        pull("group is not registered", "Tags", sysFlag="0"),
        pull("topic name that is none", "a.b"),
        pull("empty topic", ""),
    ]


def _registered() -> list[Step]:
    """Subscriptions that a heartbeat brought."""
    beat = (
        b'{"clientID":"r1","consumerDataSet":[{"groupName":"Reg","consumeType":"CONSUME_PASSIVELY","messageModel":'
        b'"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[{"topic":"Tags","subString":'
        b'"TagA","tagsSet":["TagA"],"codeSet":[2598919],"subVersion":100,"expressionType":"TAG"}]},{"groupName":"RegAll",'
        b'"consumeType":"CONSUME_ACTIVELY","messageModel":"BROADCASTING","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
        b'"subscriptionDataSet":[{"topic":"Tags","subString":"*","subVersion":100}]}],"producerDataSet":[]}'
    )
    group = {"consumerGroup": "Reg", "subscription": None}
    return [
        Step("pull: a heartbeat first", 34, None, beat, connection="reg"),
        pull("registered", "Tags", sysFlag="0", subVersion="100", **group),
        pull("registered, older version", "Tags", sysFlag="0", subVersion="99", **group),
        pull("registered, newer version", "Tags", sysFlag="0", subVersion="101", **group),
        pull("registered, other topic", "T", sysFlag="0", subVersion="100", **group),
        pull("registered, text in the request", "Tags", subVersion="999", consumerGroup="Reg", subscription="TagB"),
        pull("registered by a broadcast group", "Tags", sysFlag="0", subVersion="100", consumerGroup="RegAll"),
        pull("class filter", "Tags", sysFlag="8", subVersion="100", **group),
    ]


def queue(name: str, code: int, topic: str, queue_id: Any = "0", **more: Any) -> Step:
    return Step(f"offset: {name}", code, {"topic": topic, "queueId": queue_id} | more)


def _offsets() -> list[Step]:
    known = {"consumerGroup": "Off"}
    found = []
    for code, word in ((30, "max"), (31, "min")):
        found += [
            queue(f"{word}", code, "Tags"),
            queue(f"{word} of an empty queue", code, "Tags", "2"),
            queue(f"{word} of an unknown queue", code, "Tags", "77"),
            queue(f"{word} of a negative queue", code, "Tags", "-1"),
            queue(f"{word} of an unknown topic", code, "Nowhere"),
        ]
    return [
        *found,
        queue("max of committed", 30, "Tags", committed="true"),
        queue("earliest of an unknown topic", 32, "Nowhere"),
        queue("earliest of an empty queue", 32, "Tags", "2"),
        queue("by time, long ago", 29, "Tags", timestamp="1"),
        queue("by time, far ahead", 29, "Tags", timestamp=str(FAR_MS)),
        queue("by time, negative", 29, "Tags", timestamp="-1"),
        queue("by time, empty queue", 29, "Tags", "2", timestamp="1"),
        queue("by time, unknown topic", 29, "Nowhere", timestamp="1"),
        queue("by time, of a 5.x client", 29, "Tags", timestamp=str(FAR_MS), boundaryType="LOWER"),
        queue("new group", 14, "Tags", **known),
        queue("new group, unknown topic", 14, "Nowhere", **known),
        queue("new group, 5.x", 14, "Tags", setZeroIfNotFound="true", **known),
        queue("commit", 15, "Tags", commitOffset="3", **known),
        queue("committed", 14, "Tags", **known),
        queue("commit back", 15, "Tags", commitOffset="1", **known),
        queue("committed back", 14, "Tags", **known),
        queue("commit beyond the queue", 15, "Tags", commitOffset="5000", **known),
        queue("committed beyond", 14, "Tags", **known),
        queue("commit an unknown topic", 15, "Nowhere", commitOffset="3", **known),
        queue("committed of an unknown topic", 14, "Nowhere", **known),
        queue("commit in queue 40", 15, "Tags", "40", commitOffset="9", **known),
        queue("committed in queue 40", 14, "Tags", "40", **known),
        queue("commit one-way", 15, "Tags", "1", commitOffset="2", **known),
        queue("piggy-back was kept", 14, "Tags", consumerGroup="Commits"),
        queue("piggy-back beyond the queue was kept", 14, "Tags", consumerGroup="Commits2"),
        queue("piggy-back without the bit was not", 14, "Tags", consumerGroup="Commits3"),
        queue("piggy-back of a refused pull was not", 14, "Tags", "50", consumerGroup="Commits5"),
    ]


def query(name: str, topic: str, key: str, /, step: Any = None, **more: Any) -> Step:
    ext = {"topic": topic, "key": key, "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(FAR_MS)} | more
    return Step(f"query: {name}", QUERY, {k: v for k, v in ext.items() if v is not None}, **(step or {}))


def _queries() -> list[Step]:
    unique = {"_UNIQUE_KEY_QUERY": "true"}
    first = OffsetOf("send: first message makes the topic")
    return [
        send("key of the last query", "Keys", i=properties(KEYS="last-key")),
        query("indexed by now", "Keys", "last-key", step={"again_while": (22,)}),
        query("one of two keys", "Keys", "order-2"),
        query("two messages", "Keys", "order-1"),
        query("at most one", "Keys", "order-1", maxNum="1"),
        query("at most none", "Keys", "order-1", maxNum="0"),
        query("unknown key", "Keys", "nothing"),
        query("key of another topic", "T", "order-1"),
        query("unknown topic", "Nowhere", "order-1"),
        query("time range long ago", "Keys", "order-1", endTimestamp="1000"),
        query("time range to come", "Keys", "order-1", beginTimestamp=str(FAR_MS - 1)),
        query("unique id", "Keys", "0A0A0A0A00010001", **unique),
        query("unique id among keys", "Keys", "0A0A0A0A00010001"),
        query("key as a unique id", "Keys", "order-1", **unique),
        query("unique id, at most none", "Keys", "0A0A0A0A00010001", maxNum="0", **unique),
        query("blank inside the key", "Keys", "order-1 order-2"),
        query("empty key", "Keys", ""),
        query("empty topic", "", "order-1"),
        Step("view: first message", VIEW, {"offset": first}),
        Step("view: inside a record", VIEW, {"offset": OffsetOf("send: first message makes the topic", 5)}),
        Step("view: past the end", VIEW, {"offset": "99999999999"}),
        Step("view: negative", VIEW, {"offset": "-1"}),
        Step("view: dead letter", VIEW, {"offset": OffsetOf("send: retry topic, one too many")}),
        Step("view: no offset", VIEW, {}),
        Step("view: no number", VIEW, {"offset": "x"}),
    ]


def _malformed() -> list[Step]:
    required = (
        "consumerGroup",
        "topic",
        "queueId",
        "queueOffset",
        "maxMsgNums",
        "sysFlag",
        "commitOffset",
        "suspendTimeoutMillis",
        "subVersion",
    )
    whole = {"consumerGroup": "Off", "topic": "Tags", "queueId": "0", "commitOffset": "1", "timestamp": "1"}
    of_code = {
        14: ("topic", "queueId"),
        15: ("queueId", "commitOffset"),
        29: ("topic", "queueId", "timestamp"),
        30: ("topic", "queueId"),
        31: ("topic", "queueId"),
        32: ("topic", "queueId"),
    }
    asked = {"topic": "Keys", "key": "order-1", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": "9"}
    return [
        *(pull(f"{name} is missing", "T", **{name: None}) for name in required),
        *(pull(f"{name} is no number", "T", **{name: "x"}) for name in required[2:]),
        Step("pull: no fields", PULL),
        *(
            Step(f"offset: {code} without {name}", code, {k: v for k, v in whole.items() if k != name})
            for code, names in of_code.items()
            for name in names
        ),
        *(Step(f"offset: {code} with a text for a queue", code, whole | {"queueId": "x"}) for code in of_code),
        *(Step(f"query: without {name}", QUERY, {k: v for k, v in asked.items() if k != name}) for name in asked),
        *(Step(f"query: {name} is no number", QUERY, asked | {name: "x"}) for name in list(asked)[2:]),
    ]
