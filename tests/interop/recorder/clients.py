"""Steps of clients: heartbeats, members of a group, queue locks, and what the broker passes on to members."""

import json
from typing import Any

from tests.interop.recorder.wire import IdOf, Step

HEARTBEAT, UNREGISTER, MEMBERS, LOCK, UNLOCK, CHECK = 34, 35, 38, 41, 42, 46
CONSUMERS, PRODUCERS, ALL_PRODUCERS, WHO, STATUS, RUNNING, CONSUME, RESET = 203, 204, 328, 300, 223, 307, 309, 222


def subscription(topic: str, text: str = "*", version: Any = 100, **more: Any) -> dict[str, Any]:
    return {"topic": topic, "subString": text, "subVersion": version, "expressionType": "TAG"} | more


def consumer(group: str, *subscriptions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": list(subscriptions),
        "unitMode": False,
    } | more


def beat(
    name: str, client: str, consumers: list[dict[str, Any]] | None, producers: list[str] | None, /, **more: Any
) -> Step:
    body: dict[str, Any] = {"clientID": client}
    if consumers is not None:
        body["consumerDataSet"] = consumers
    if producers is not None:
        body["producerDataSet"] = [{"groupName": group} for group in producers]
    return Step(f"heartbeat: {name}", HEARTBEAT, None, json.dumps(body).encode(), **({"connection": client} | more))


def ask(name: str, code: int, /, **ext: Any) -> Step:
    return Step(f"clients: {name}", code, ext)


def steps() -> list[Step]:
    return [*_joining(), *_passed_on(), *_reset(), *_leaving(), *_locks(), *_checks()]


def _joining() -> list[Step]:
    tags = subscription("Tags", "TagA||TagB", tagsSet=["TagA", "TagB"], codeSet=[2598919, 2598920])
    ordinals = {"consumeType": 1, "messageModel": 1, "consumeFromWhere": 0}
    cpp = consumer("Cpp", subscription("Tags", "TagA", "100", codeSet=["0"]), **ordinals)
    return [
        ask("members of nothing", MEMBERS, consumerGroup="CG"),
        beat("first member", "m1", [consumer("CG", tags)], ["PG1"]),
        ask("members, one", MEMBERS, consumerGroup="CG"),
        beat("the same again", "m1", [consumer("CG", tags)], ["PG1"]),
        beat("second member", "m2", [consumer("CG", tags)], ["PG1", "PG2"], version=353, language="CPP"),
        ask("members, two", MEMBERS, consumerGroup="CG"),
        beat("newer version of a subscription", "m1", [consumer("CG", tags | {"subVersion": 200})], []),
        beat("one topic more", "m1", [consumer("CG", tags, subscription("T"))], []),
        ask("connections, two topics", CONSUMERS, consumerGroup="CG"),
        beat("one topic less", "m2", [consumer("CG", tags)], [], version=353, language="CPP"),
        ask("connections, one topic", CONSUMERS, consumerGroup="CG"),
        beat("as C++ writes it", "m3", [cpp], [], version=253, language="CPP"),
        ask("connections of C++", CONSUMERS, consumerGroup="Cpp"),
        beat("of 5.x", "m4", [consumer("Five", tags)], [], version=479, header={"extFields": {"ns": "x"}}),
        beat("no sets", "m5", None, None),
        beat("producers only", "m5", None, ["PG3"]),
        beat("consumer without subscriptions", "m5", [consumer("Bare")], None),
        ask("connections without subscriptions", CONSUMERS, consumerGroup="Bare"),
        beat("unit mode", "m5", [consumer("Unit", tags, unitMode=True)], None),
        beat("broadcast", "m5", [consumer("All", tags, messageModel="BROADCASTING")], None),
        ask("connections of a broadcast", CONSUMERS, consumerGroup="All"),
        ask("connections of nothing", CONSUMERS, consumerGroup="Nothing"),
        ask("producers", PRODUCERS, producerGroup="PG1"),
        ask("producers of one", PRODUCERS, producerGroup="PG3"),
        ask("producers of nothing", PRODUCERS, producerGroup="Nothing"),
        Step("clients: all producers", ALL_PRODUCERS),
        ask("who reads Tags", WHO, topic="Tags"),
        ask("who reads T", WHO, topic="T"),
        ask("who reads nothing", WHO, topic="Nowhere"),
        Step("heartbeat: empty body", HEARTBEAT, None, b"", connection="m5"),
        Step("heartbeat: no JSON", HEARTBEAT, None, b"hello", connection="m5"),
        Step("heartbeat: empty object", HEARTBEAT, None, b"{}", connection="m6"),
        *(Step(f"clients: {code} without fields", code) for code in (MEMBERS, CONSUMERS, PRODUCERS, WHO, UNREGISTER)),
    ]


def _passed_on() -> list[Step]:
    """Requests that a member answers."""
    running = b'{"properties":{"PROP_CLIENT_VERSION":"x"},"statusTable":{},"subscriptionSet":[],"mqTable":{}}'
    consumed = b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":9}'
    status = b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"Tags"}:5}}'
    member = {"consumerGroup": "CG", "clientId": "m1"}
    answers = {307: (0, running), 309: (0, consumed), 221: (0, status)}

    def passed(name: str, code: int, /, **ext: Any) -> Step:
        return Step(f"passed on: {name}", code, ext, client_answers=answers)

    return [
        passed("running info", RUNNING, **member),
        passed("running info with a stack trace", RUNNING, jstackEnable="true", **member),
        passed("running info of an unknown client", RUNNING, consumerGroup="CG", clientId="m9"),
        passed("running info of an unknown group", RUNNING, consumerGroup="Nothing", clientId="m1"),
        passed("running info without client", RUNNING, consumerGroup="CG"),
        Step("passed on: a refusal", RUNNING, member, client_answers={307: (1, b"")}),
        passed("consume", CONSUME, msgId=IdOf("send: tag A"), brokerName="broker-a", topic="Tags", **member),
        passed("consume, unknown client", CONSUME, consumerGroup="CG", clientId="m9", msgId=IdOf("send: tag A")),
        passed("status of one member", STATUS, topic="Tags", group="CG", clientAddr="m1"),
        passed("status of all members", STATUS, topic="Tags", group="CG"),
        passed("status of an unknown group", STATUS, topic="Tags", group="Nothing"),
        passed("status of an unknown member", STATUS, topic="Tags", group="CG", clientAddr="m9"),
        passed("status without group", STATUS, topic="Tags"),
    ]


def _reset() -> list[Step]:
    def reset(name: str, group: str, topic: str, timestamp: Any, /, **more: Any) -> Step:
        ext = {"topic": topic, "group": group, "timestamp": str(timestamp), "isForce": "false"} | more
        return Step(f"reset: {name}", RESET, {k: v for k, v in ext.items() if v is not None})

    commits = [
        Step(
            f"reset: CG commits queue {number}",
            15,
            {"consumerGroup": "CG", "topic": "Tags", "queueId": str(number), "commitOffset": str(at)},
        )
        for number, at in enumerate((3, 0, 0, 0))
    ]
    return [
        reset("group without offsets", "CG", "Tags", 1),
        *commits,
        reset("to the start", "CG", "Tags", 1),
        reset("to the end", "CG", "Tags", -1),
        reset("to the end by force", "CG", "Tags", -1, isForce="true"),
        reset("to a time to come", "CG", "Tags", 4_000_000_000_000),
        reset("to a time to come by force", "CG", "Tags", 4_000_000_000_000, isForce="true"),
        reset("unknown topic", "CG", "Nowhere", 1),
        reset("group that is not online", "Off", "Tags", 1),
        reset("without force", "CG", "Tags", 1, isForce=None),
        Step("reset: the table is as it was", 14, {"consumerGroup": "CG", "topic": "Tags", "queueId": "0"}),
    ]


def _leaving() -> list[Step]:
    def leave(name: str, client: str, /, **ext: Any) -> Step:
        return Step(f"leave: {name}", UNREGISTER, {"clientID": client} | ext, connection=client)

    return [
        leave("consumer group", "m2", consumerGroup="CG", producerGroup=""),
        ask("members after one left", MEMBERS, consumerGroup="CG"),
        leave("producer group", "m2", producerGroup="PG2"),
        ask("producers after one left", PRODUCERS, producerGroup="PG2"),
        leave("no groups", "m2"),
        beat("m2 is back", "m2", [consumer("CG", subscription("Tags", "TagA||TagB"))], []),
        Step("leave: m2 closes", UNREGISTER, connection="m2", closes=True),
        Step("clients: members after a close", MEMBERS, {"consumerGroup": "CG"}),
    ]


def _locks() -> list[Step]:
    def queues(*numbers: int) -> list[dict[str, Any]]:
        return [{"brokerName": "broker-a", "queueId": number, "topic": "Tags"} for number in numbers]

    def locking(name: str, code: int, client: str, numbers: list[dict[str, Any]] | None, group: str = "CG") -> Step:
        body = {"clientId": client, "consumerGroup": group}
        whole = body if numbers is None else body | {"mqSet": numbers}
        return Step(f"lock: {name}", code, None, json.dumps(whole).encode())

    return [
        locking("one queue", LOCK, "m1", queues(0)),
        locking("two queues, one taken", LOCK, "m3", queues(0, 1)),
        locking("renewed", LOCK, "m1", queues(0)),
        locking("unlocked by another", UNLOCK, "m3", queues(0)),
        locking("still held", LOCK, "m3", queues(0)),
        locking("unlocked", UNLOCK, "m1", queues(0)),
        locking("free now", LOCK, "m3", queues(0)),
        locking("of another group", LOCK, "m1", queues(0), "Other"),
        locking("unknown topic", LOCK, "m1", [{"brokerName": "x", "queueId": 7, "topic": "Nowhere"}]),
        locking("no queues", LOCK, "m1", []),
        locking("no set", LOCK, "m1", None),
        locking("unlock no queues", UNLOCK, "m1", []),
        locking("unlock in an unknown group", UNLOCK, "m1", queues(0), "Nothing"),
    ]


def _checks() -> list[Step]:
    def check(name: str, data: dict[str, Any] | None) -> Step:
        body = {"clientId": "m1", "group": "CG"} | ({} if data is None else {"subscriptionData": data})
        return Step(f"check: {name}", CHECK, None, json.dumps(body).encode())

    return [
        check("tags", subscription("Tags", "TagA")),
        check("SQL, which is off", subscription("Tags", "a = 5") | {"expressionType": "SQL92"}),
        check("unknown kind", subscription("Tags", "a = 5") | {"expressionType": "REGEX"}),
        check("no subscription", None),
    ]
