"""Steps of administrators and slaves: topics, groups, settings, figures, progress, offsets, cleaning."""

import json
from typing import Any

from tests.interop.recorder.reads import dispatched
from tests.interop.recorder.wire import Step

TOPIC_DEFAULTS = {
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}


def ask(name: str, code: int, /, body: bytes = b"", **ext: Any) -> Step:
    return Step(f"admin: {name}", code, ext or None, body)


def topic(name: str, topic_name: str | None, /, **more: Any) -> Step:
    ext = ({} if topic_name is None else {"topic": topic_name}) | TOPIC_DEFAULTS | more
    return Step(f"topic: {name}", 17, {k: v for k, v in ext.items() if v is not None})


def group(name: str, document: Any) -> Step:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return Step(f"group: {name}", 200, None, body)


def steps() -> list[Step]:
    return [*_topics(), *_groups(), *_forbidden(), *_settings(), *_figures(), *_progress(), *_offsets(), *_others()]


def _topics() -> list[Step]:
    from_send = {"a": "pg", "c": "TBW102", "d": "4", "f": "0", "g": "1700000000000", "h": "0", "i": ""}
    return [
        topic("made", "Made"),
        topic("with other queues", "Made", readQueueNums="8", writeQueueNums="2"),
        Step("topic: sent to a queue that is read only", 310, from_send | {"b": "Made", "e": "5"}, b"x"),
        topic("ordered", "Ordered", order="true"),
        topic("unit", "UnitTopic", topicSysFlag="3"),
        topic("many tags", "Multi", topicFilterType="MULTI_TAG"),
        Step("topic: sent to many tags", 310, from_send | {"b": "Multi", "e": "0"}, b"x"),
        topic("unknown filter type", "Bad1", topicFilterType="OTHER"),
        topic("no filter type", "Bad2", topicFilterType=None),
        topic("read only", "ReadOnly", perm="4"),
        topic("write only", "WriteOnly", perm="2"),
        topic("no permission", "Closed", perm="0"),
        topic("inherits", "Model", perm="7", writeQueueNums="3"),
        Step("topic: made after a model", 310, from_send | {"b": "AfterModel", "c": "Model", "e": "0"}, b"x"),
        topic("default topic", "TBW102"),
        topic("schedule topic", "SCHEDULE_TOPIC_XXXX"),
        topic("cluster's name", "DefaultCluster"),
        topic("broker's name", "broker-a"),
        topic("reply topic", "DefaultCluster_REPLY_TOPIC"),
        topic("trace topic", "RMQ_SYS_TRACE_TOPIC"),
        topic("system prefix", "rmq_sys_y"),
        topic("bad characters", "a.b"),
        topic("empty", ""),
        topic("128 characters", "t" * 128),
        topic("no name", None),
        *(
            topic(f"without {name}", "Bad3", **{name: None})
            for name in ("defaultTopic", "readQueueNums", "perm", "order")
        ),
        topic("queues that are no number", "Bad4", readQueueNums="x"),
        topic("no system flag", "NoFlag", topicSysFlag=None),
        topic("retry topic", "%RETRY%Made"),
        ask("one topic of 5.x", 351, topic="Made"),
        ask("delete a topic", 215, topic="UnitTopic"),
        ask("delete it again", 215, topic="UnitTopic"),
        ask("delete a system topic", 215, topic="SELF_TEST_TOPIC"),
        ask("delete the default topic", 215, topic="TBW102"),
        ask("delete a bad name", 215, topic="a.b"),
        ask("delete an empty name", 215, topic=""),
        Step("admin: delete without a name", 215),
        Step("admin: system topics", 305),
        Step("admin: all topics", 21),
    ]


def _groups() -> list[Step]:
    whole = {
        "groupName": "Made",
        "consumeEnable": True,
        "consumeFromMinEnable": False,
        "consumeBroadcastEnable": False,
        "retryQueueNums": 3,
        "retryMaxTimes": 2,
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": False,
    }
    return [
        group("made", whole),
        group("with defaults", {"groupName": "Defaults"}),
        group("may not read", {"groupName": "Closed", "consumeEnable": False}),
        group("no retries", {"groupName": "NoRetries", "retryQueueNums": 0}),
        group("no broadcast", {"groupName": "NoBroadcast", "consumeBroadcastEnable": False}),
        group("one retry", {"groupName": "OneRetry", "retryMaxTimes": 1}),
        group("no JSON", b"hello"),
        group("no body", b""),
        ask("one group of 5.x", 352, group="Made"),
        Step("admin: all groups", 201),
        ask("delete a group", 207, groupName="Defaults"),
        ask("delete it once more", 207, groupName="Defaults"),
        ask("delete with offsets", 207, groupName="Commits", removeOffset="true"),
        Step("admin: its offsets are gone", 14, {"consumerGroup": "Commits", "topic": "Tags", "queueId": "0"}),
        ask("delete and keep offsets", 207, groupName="Commits2"),
        Step("admin: its offsets are there", 14, {"consumerGroup": "Commits2", "topic": "Tags", "queueId": "0"}),
        Step("admin: delete no group", 207),
        Step("admin: all groups again", 201),
    ]


def _forbidden() -> list[Step]:
    """What groups and topics do not permit."""
    pull = {
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    from_send = {"a": "pg", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0", "i": ""}
    data = [{"topic": "Tags", "subString": "*", "subVersion": 1}]
    beat = {
        "clientID": "caster",
        "consumerDataSet": [
            {
                "groupName": "NoBroadcast",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "BROADCASTING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": data,
            }
        ],
    }
    back = {"offset": "0", "delayLevel": "18", "originMsgId": "x", "originTopic": "T"}
    return [
        Step("forbidden: pull of a closed group", 11, pull | {"consumerGroup": "Closed", "topic": "Tags"}),
        Step("forbidden: pull of a write-only topic", 11, pull | {"consumerGroup": "g", "topic": "WriteOnly"}),
        Step("forbidden: pull of a read-only topic", 11, pull | {"consumerGroup": "g", "topic": "ReadOnly"}),
        Step(
            "forbidden: pull beyond the read queues", 11, pull | {"consumerGroup": "g", "topic": "Made", "queueId": "8"}
        ),
        Step(
            "forbidden: pull past the write queues", 11, pull | {"consumerGroup": "g", "topic": "Made", "queueId": "7"}
        ),
        Step("forbidden: send to a read-only topic", 310, from_send | {"b": "ReadOnly"}, b"x"),
        Step("forbidden: send to a closed topic", 310, from_send | {"b": "Closed"}, b"x"),
        Step("forbidden: members broadcast", 34, None, json.dumps(beat).encode(), connection="caster"),
        Step(
            "forbidden: pull of a group that broadcasts",
            11,
            pull | {"consumerGroup": "NoBroadcast", "topic": "Tags", "sysFlag": "0", "subVersion": "1"},
        ),
        Step("forbidden: give back without retries", 36, back | {"group": "NoRetries"}),
        topic("retry topic of a group, read only", "%RETRY%Made2", perm="4"),
        Step("forbidden: give back to a read-only topic", 36, back | {"group": "Made2"}),
        Step("forbidden: give back once", 36, back | {"group": "OneRetry"}),
    ]


def _settings() -> list[Step]:
    def change(name: str, text: str) -> Step:
        return Step(f"settings: {name}", 25, None, text.encode())

    from_send = {
        "a": "pg",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "",
    }
    pull = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "1",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    back = {"offset": "0", "delayLevel": "18", "group": "G1"}
    return [
        change("trace off", "traceOn=false"),
        Step("settings: send without trace", 310, from_send, b"x"),
        change("trace on", "traceOn=true\n"),
        change("nothing", ""),
        change("read only", "brokerPermission=4"),
        Step("settings: send to a read-only broker", 310, from_send | {"i": "KEYS\x01settings-key"}, b"x"),
        dispatched("settings", "T", "settings-key"),
        Step("settings: give back to a read-only broker", 36, back),
        change("write only", "brokerPermission=2"),
        Step("settings: pull from a write-only broker", 11, pull),
        change("read and write", "brokerPermission=6"),
        change("no new topics", "autoCreateTopicEnable=false"),
        Step("settings: send to an unknown topic", 310, from_send | {"b": "Never"}, b"x"),
        Step(
            "settings: unknown topic after the cluster's", 310, from_send | {"b": "Never2", "c": "DefaultCluster"}, b"x"
        ),
        Step("settings: unknown retry topic", 310, from_send | {"b": "%RETRY%Never3"}, b"x"),
        change("new topics", "autoCreateTopicEnable=true"),
        change("no new groups", "autoCreateSubscriptionGroup=false"),
        Step("settings: pull of an unknown group", 11, pull | {"consumerGroup": "Unknown1"}),
        Step("settings: pull of a system group", 11, pull | {"consumerGroup": "CID_RMQ_SYS_x"}),
        Step("settings: give back of an unknown group", 36, back | {"group": "Unknown2"}),
        Step("settings: retry topic of an unknown group", 310, from_send | {"b": "%RETRY%Unknown3"}, b"x"),
        change("new groups", "autoCreateSubscriptionGroup=true"),
        change("no sends until later", "startAcceptSendRequestTimeStamp=4000000000000"),
        Step("settings: send too early", 310, from_send, b"x"),
        change("sends at once", "startAcceptSendRequestTimeStamp=0"),
        Step("settings: all", 26),
    ]


def _figures() -> list[Step]:
    def figure(name: str, stats: str, key: str) -> Step:
        return Step(f"figures: {name}", 315, {"statsName": stats, "statsKey": key})

    return [
        Step("figures: runtime", 28),
        figure("topic", "TOPIC_PUT_NUMS", "Tags"),
        figure("topic bytes", "TOPIC_PUT_SIZE", "Tags"),
        figure("unknown topic", "TOPIC_PUT_NUMS", "Nowhere"),
        figure("unknown name", "NOTHING", "Tags"),
        figure("group", "GROUP_GET_NUMS", "Tags@PG"),
        figure("given back", "SNDBCK_PUT_NUMS", "T@G1"),
        figure("queue", "QUEUE_PUT_NUMS", "Tags@0"),
        Step("figures: no fields", 315),
    ]


def _progress() -> list[Step]:
    return [
        ask("stats of a topic", 202, topic="Tags"),
        ask("stats of a topic with unequal queues", 202, topic="Made"),
        ask("stats of an unknown topic", 202, topic="Nowhere"),
        Step("admin: stats of no topic", 202),
        ask("progress of a group", 208, consumerGroup="CG"),
        ask("progress of a group in a topic", 208, consumerGroup="CG", topic="Tags"),
        ask("progress in a topic it does not read", 208, consumerGroup="CG", topic="T"),
        ask("progress of an offline group", 208, consumerGroup="Off"),
        ask("progress of an offline group in a topic", 208, consumerGroup="Off", topic="Tags"),
        ask("progress of an unknown group", 208, consumerGroup="Nothing"),
        ask("progress in an unknown topic", 208, consumerGroup="CG", topic="Nowhere"),
        Step("admin: progress of no group", 208),
        ask("time span", 303, topic="Tags", group="CG"),
        ask("time span of an unknown topic", 303, topic="Nowhere", group="CG"),
        ask("time span of an unknown group", 303, topic="Tags", group="Nothing"),
        Step("admin: time span of nothing", 303),
        ask("progress of all groups", 317, isOrder="false"),
        ask("progress of all groups, ordered", 317, isOrder="true"),
        Step("admin: progress of all, no field", 317),
    ]


def _offsets() -> list[Step]:
    def entries(name: str, topic_name: str, queue_id: str, index: str, count: str, /, **more: Any) -> Step:
        ext = {"topic": topic_name, "queueId": queue_id, "index": index, "count": count} | more
        return Step(f"entries: {name}", 321, ext)

    return [
        Step("admin: all offsets", 43),
        Step("admin: delay offsets", 45),
        ask("correction", 308, topic="Tags", compareGroup="CG"),
        ask("correction of an unknown group", 308, topic="Tags", compareGroup="Nothing"),
        ask("correction of an unknown topic", 308, topic="Nowhere", compareGroup="CG"),
        Step("admin: correction of nothing", 308),
        ask("clone", 314, srcGroup="CG", destGroup="Clone", topic="Tags", offline="false"),
        Step("admin: the clone", 14, {"consumerGroup": "Clone", "topic": "Tags", "queueId": "0"}),
        ask("clone of an unknown topic", 314, srcGroup="CG", destGroup="Clone", topic="Nowhere", offline="false"),
        ask("clone of an unknown group", 314, srcGroup="Nothing", destGroup="Clone", topic="Tags", offline="true"),
        Step("admin: clone of nothing", 314),
        entries("first", "Tags", "0", "0", "2"),
        entries("for a group", "Tags", "0", "0", "4", consumerGroup="CG"),
        entries("for a group that is not there", "Tags", "0", "0", "4", consumerGroup="Nothing"),
        entries("past the end", "Tags", "0", "100", "2"),
        entries("empty queue", "Tags", "2", "0", "2"),
        entries("unknown queue", "Tags", "60", "0", "2"),
        entries("unknown topic", "NowhereElse", "0", "0", "2"),
        entries("none", "Tags", "0", "0", "0"),
        Step("entries: no fields", 321),
    ]


def _others() -> list[Step]:
    return [
        Step("admin: clean queues", 306),
        Step("admin: clean topics", 316),
        Step("admin: delete expired files", 329),
        *(
            Step(f"unknown code {code}", code)
            for code in (0, 1, 13, 22, 23, 27, 99, 209, 214, 301, 302, 400, 9999, 105, 206)
        ),
        Step("header: unknown members", 30, {"topic": "Tags", "queueId": "0"}, header={"colour": "red"}),
        Step("header: remark in a request", 30, {"topic": "Tags", "queueId": "0"}, header={"remark": "hello"}),
        Step("header: body where none belongs", 30, {"topic": "Tags", "queueId": "0"}, b"some body"),
        Step("header: version as a text", 30, {"topic": "Tags", "queueId": "0"}, header={"version": "409"}),
        Step("header: code as a text", 30, {"topic": "Tags", "queueId": "0"}, header={"code": "30"}),
        Step("header: language in lower case", 30, {"topic": "Tags", "queueId": "0"}, header={"language": "java"}),
        Step("header: no language", 30, {"topic": "Tags", "queueId": "0"}, header={"language": None}),
    ]
