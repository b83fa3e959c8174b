"""Every request of a name server without a socket: codes, header fields and bodies as RocketMQ answers them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embermq.model.hosts import Host
from embermq.namesrv import NameServer
from embermq.remoting import Command, Reply, RequestCode, parse_json, run
from embermq.settings import NamesrvSettings
from embermq.testing import LossyFiles, ManualClock
from tests.unit.namesrv.test_register_body import COMPRESSED_BODY, JSON_BODY

HOME = Path("/home/namesrv")
SETTINGS = NamesrvSettings(kv_config_path=HOME / "kvConfig.json", config_store_path=HOME / "namesrv.properties")


class FakePeer:
    """A connection, as handlers see it."""

    host = Host("127.0.0.1", 5)
    is_open = True

    def __init__(self) -> None:
        self.closed: list[str] = []

    def tell(self, request: Command) -> bool:
        return True

    def call(self, request: Command, seconds: float, on_answer: Callable[[Any], None]) -> None:
        raise AssertionError("a name server asks nothing")

    def close(self, reason: str) -> None:
        self.closed.append(reason)


class Asked:
    """A name server that is asked through its rows."""

    def __init__(self, settings: NamesrvSettings = SETTINGS) -> None:
        self.disk, self.clock, self.peer = LossyFiles(), ManualClock(), FakePeer()
        self.disk.put(Path("/home"), None)
        self.server = NameServer(settings, files=self.disk, clock=self.clock)

    def ask(self, code: int, body: bytes = b"", /, **fields: Any) -> Reply:
        """By a client of version 409, or of `version`; the other fields are those of the header."""
        version = fields.pop("version", 409)
        row = self.server.requests.find(code)
        assert row is not None
        reply = run(row, self.peer, Command(code, ext=fields, body=body, version=version), lambda *_: None)
        assert reply is not None
        return reply

    def register(self, name: str = "a", address: str = "1.1.1.1:1", body: bytes = JSON_BODY, **more: Any) -> Reply:
        fields = {"clusterName": "C", "brokerId": "0", "haServerAddr": f"{address}2"} | more
        return self.ask(103, body, brokerName=name, brokerAddr=address, **fields)


@pytest.fixture
def asked() -> Asked:
    return Asked()


def registration(*topics: str, counter: int = 0, **fields: int) -> bytes:
    table = {
        topic: {"perm": 6, "readQueueNums": 8, "writeQueueNums": 8, "topicSysFlag": 0} | fields for topic in topics
    }
    wrapper = {"dataVersion": {"counter": counter, "timestamp": 1}, "topicConfigTable": table}
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()


def topics_of(reply: Reply) -> list[str]:
    assert reply.code == 0
    found: list[str] = parse_json(reply.body)["topicList"]
    return found


# -- 103, 104, 322: registration ---------------------------------------------------------------------------------


def test_a_master_registers(asked: Asked) -> None:
    assert asked.register() == Reply(0, ext={})
    assert topics_of(asked.ask(206)) == ["T"]


def test_a_compressed_registration_with_its_checksum(asked: Asked) -> None:
    assert asked.register(body=COMPRESSED_BODY, compressed="true", bodyCrc32="2036784875").code == 0
    assert topics_of(asked.ask(206)) == ["T"]


def test_a_wrong_checksum_is_1_with_empty_fields(asked: Asked) -> None:
    reply = asked.register(bodyCrc32="7")
    assert (reply.code, reply.ext) == (1, {})
    assert topics_of(asked.ask(206)) == []
    assert asked.server.counters.registrations_refused == 1


def test_a_broker_before_3_0_11_sends_the_bare_table(asked: Asked) -> None:
    bare = json.dumps(json.loads(JSON_BODY)["topicConfigSerializeWrapper"]).encode()
    assert asked.register(body=bare, version=36).code == 0
    assert topics_of(asked.ask(206)) == ["T"]


def test_a_registration_without_a_body(asked: Asked) -> None:
    assert asked.register(body=b"").code == 0
    assert topics_of(asked.ask(206)) == []
    known = asked.ask(322, b'{"counter":0,"timestamp":0}', **identity())
    assert known.ext == {"changed": "false"}


def test_a_slave_learns_of_its_master_and_its_replication_address(asked: Asked) -> None:
    assert asked.register(address="2.2.2.2:1", brokerId="1").ext == {}
    asked.register()
    reply = asked.register(address="2.2.2.2:1", brokerId="1")
    assert reply.ext == {"haServerAddr": "1.1.1.1:12", "masterAddr": "1.1.1.1:1"}


def test_a_registration_is_answered_with_the_order_config(asked: Asked) -> None:
    asked.ask(100, namespace="ORDER_TOPIC_CONFIG", key="T", value="a:4")
    assert asked.register().body == b'{"table":{"T":"a:4"}}'


@pytest.mark.parametrize("missing", ["brokerName", "brokerAddr", "clusterName", "brokerId"])
def test_a_field_that_is_missing_is_1(asked: Asked, missing: str) -> None:
    fields = {"brokerName": "a", "brokerAddr": "1:1", "clusterName": "C", "brokerId": "0", "haServerAddr": "1:2"}
    del fields[missing]
    reply = asked.ask(103, **fields)
    assert (reply.code, reply.remark) == (1, f"REGISTER_BROKER: header field {missing}: is missing")


@pytest.mark.parametrize(("field", "value"), [("brokerId", "-1"), ("clusterName", ""), ("brokerName", "x" * 513)])
def test_a_field_that_cannot_be_is_1(asked: Asked, field: str, value: str) -> None:
    fields = {"brokerName": "a", "brokerAddr": "1:1", "clusterName": "C", "brokerId": "0"} | {field: value}
    reply = asked.ask(103, **fields)
    assert reply.code == 1
    assert f"header field {field}" in (reply.remark or "")


def test_a_body_that_cannot_be_read_is_1(asked: Asked) -> None:
    reply = asked.register(body=b"{")
    assert reply.code == 1
    assert "the body cannot be read" in (reply.remark or "")


def test_a_registration_over_a_limit_is_2() -> None:
    asked = Asked(SETTINGS.replace(topics_max=1))
    reply = asked.register(body=registration("T", "U"))
    assert (reply.code, reply.remark) == (2, "no room for 2 more topics: the limit is 1 (emberMaxTopics)")
    assert asked.server.counters.registrations_refused == 1
    assert asked.ask(318, b"emberMaxTopics=2").code == 0
    assert asked.register(body=registration("T", "U")).code == 0


def test_a_topic_without_a_possible_name_does_not_keep_a_broker_out(asked: Asked) -> None:
    assert asked.register(body=registration("", "T")).code == 0
    assert topics_of(asked.ask(206)) == ["T"]


def identity(name: str = "a", address: str = "1.1.1.1:1", broker_id: str = "0") -> dict[str, str]:
    return {"brokerName": name, "brokerAddr": address, "clusterName": "C", "brokerId": broker_id}


def test_unregistering(asked: Asked) -> None:
    asked.register()
    assert asked.ask(104, **identity(address="9.9.9.9:1")) == Reply()
    assert topics_of(asked.ask(206)) == ["T"]
    assert asked.ask(104, **identity()) == Reply()
    assert topics_of(asked.ask(206)) == []
    assert asked.ask(104, **identity()).code == 0


def test_the_version_is_asked_for(asked: Asked) -> None:
    unknown = asked.ask(322, b'{"counter":0,"timestamp":1794792662295}', **identity())
    assert (unknown.ext, unknown.body) == ({"changed": "true"}, b"")
    asked.register()
    same = asked.ask(322, b'{"counter":0,"timestamp":1794792662295}', **identity())
    assert (same.ext, same.body) == ({"changed": "false"}, b'{"counter":0,"timestamp":1794792662295}')
    other = asked.ask(322, b'{"counter":1,"timestamp":1794792662295}', **identity())
    assert (other.ext, other.body) == ({"changed": "true"}, b'{"counter":0,"timestamp":1794792662295}')
    assert asked.ask(322, b"{", **identity()).code == 1


def test_an_unchanged_version_is_a_sign_of_life_and_a_changed_one_is_none(asked: Asked) -> None:
    asked.register()
    asked.register("b", "2.2.2.2:1", registration("U"))
    asked.clock.advance(s=100)
    asked.ask(322, b'{"counter":0,"timestamp":1794792662295}', **identity())
    asked.ask(322, b'{"counter":9,"timestamp":9}', **identity("b", "2.2.2.2:1"))
    asked.clock.advance(s=100)
    assert [live.identity.name for live in asked.server.expire_brokers()] == ["b"]
    assert asked.peer.closed == ["no registration for 120 s"]
    assert asked.server.counters.brokers_expired == 1


# -- 105, 106: routes --------------------------------------------------------------------------------------------

ROUTE = (
    '{"brokerDatas":[{"brokerAddrs":{%s},"brokerName":"a","cluster":"C"}],"filterServerTable":{},'
    '"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
)


@pytest.mark.parametrize(
    ("version", "fields", "addresses"),
    [
        (409, {}, '"0":"1.1.1.1:1","1":"2.2.2.2:1"'),
        (401, {}, '"0":"1.1.1.1:1","1":"2.2.2.2:1"'),
        (400, {}, '0:"1.1.1.1:1",1:"2.2.2.2:1"'),
        (121, {}, '0:"1.1.1.1:1",1:"2.2.2.2:1"'),
        (63, {"acceptStandardJsonOnly": "true"}, '"0":"1.1.1.1:1","1":"2.2.2.2:1"'),
        (63, {"acceptStandardJsonOnly": "1"}, '"0":"1.1.1.1:1","1":"2.2.2.2:1"'),
        (63, {"acceptStandardJsonOnly": "false"}, '0:"1.1.1.1:1",1:"2.2.2.2:1"'),
    ],
)
def test_a_route_in_the_form_that_the_client_wants(
    asked: Asked, version: int, fields: dict[str, str], addresses: str
) -> None:
    asked.register(address="2.2.2.2:1", brokerId="1")
    asked.register()
    reply = asked.ask(105, version=version, topic="T", **fields)
    assert reply == Reply(0, body=(ROUTE % addresses).encode())


@pytest.mark.parametrize("fields", [{"topic": "unknown"}, {"topic": ""}, {}])
def test_no_route_is_17_without_a_body(asked: Asked, fields: dict[str, str]) -> None:
    reply = asked.ask(105, **fields)
    assert (reply.code, reply.body, reply.ext) == (17, b"", None)


def test_a_route_over_two_brokers(asked: Asked) -> None:
    asked.register()
    asked.register("b", "2.2.2.2:1", registration("T", perm=4), clusterName="D")
    route = parse_json(asked.ask(105, topic="T").body)
    assert [(one["brokerName"], one["cluster"]) for one in route["brokerDatas"]] == [("a", "C"), ("b", "D")]
    assert [(one["brokerName"], one["perm"]) for one in route["queueDatas"]] == [("a", 6), ("b", 4)]


def test_filter_servers_are_in_the_route(asked: Asked) -> None:
    document = json.loads(JSON_BODY) | {"filterServerList": ["f:1", "f:2"]}
    asked.register(body=json.dumps(document).encode())
    assert parse_json(asked.ask(105, topic="T").body)["filterServerTable"] == {"1.1.1.1:1": ["f:1", "f:2"]}


def test_the_order_config_is_in_the_route_only_if_enabled(asked: Asked) -> None:
    asked.register()
    asked.ask(100, namespace="ORDER_TOPIC_CONFIG", key="T", value="a:4")
    assert "orderTopicConf" not in parse_json(asked.ask(105, topic="T").body)
    assert asked.ask(318, b"orderMessageEnable=true").code == 0
    assert parse_json(asked.ask(105, topic="T").body)["orderTopicConf"] == "a:4"
    asked.ask(102, namespace="ORDER_TOPIC_CONFIG", key="T")
    assert "orderTopicConf" not in parse_json(asked.ask(105, topic="T").body)


@pytest.mark.parametrize(("version", "key"), [(409, '"0"'), (121, "0")])
def test_cluster_info(asked: Asked, version: int, key: str) -> None:
    asked.register()
    expected = (
        '{"brokerAddrTable":{"a":{"brokerAddrs":{%s:"1.1.1.1:1"},"brokerName":"a","cluster":"C"}},'
        '"clusterAddrTable":{"C":["a"]}}'
    )
    assert asked.ask(106, version=version).body == (expected % key).encode()


def test_cluster_info_without_a_broker(asked: Asked) -> None:
    assert asked.ask(106).body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


# -- 205, 327: write permission ----------------------------------------------------------------------------------


def test_write_permission_of_a_broker(asked: Asked) -> None:
    asked.register(body=registration("T", "U"))
    assert asked.ask(205, brokerName="a").ext == {"wipeTopicCount": "2"}
    assert parse_json(asked.ask(105, topic="T").body)["queueDatas"][0]["perm"] == 4
    assert asked.ask(327, brokerName="a").ext == {"addTopicCount": "2"}
    assert parse_json(asked.ask(105, topic="T").body)["queueDatas"][0]["perm"] == 6
    assert asked.ask(205, brokerName="unknown").ext == {"wipeTopicCount": "0"}
    assert asked.ask(327, brokerName="unknown").ext == {"addTopicCount": "0"}
    assert asked.ask(205).code == 1


# -- 206, 216, 224, 304, 311-313: topics -------------------------------------------------------------------------


def test_topic_lists(asked: Asked) -> None:
    asked.register(body=registration("T", "U"))
    asked.register("b", "2.2.2.2:1", registration("T", "V"), clusterName="D")
    assert topics_of(asked.ask(206)) == ["T", "U", "V"]
    assert topics_of(asked.ask(224, cluster="D")) == ["T", "V"]
    assert topics_of(asked.ask(224, cluster="unknown")) == []
    assert asked.ask(224).code == 1


def test_system_topics(asked: Asked) -> None:
    assert asked.ask(304).body == b'{"topicList":[]}'
    asked.register()
    asked.register("b", "2.2.2.2:1", clusterName="D")
    assert asked.ask(304).body == b'{"brokerAddr":"1.1.1.1:1","topicList":["C","D","a","b"]}'


def test_topics_by_their_flags(asked: Asked) -> None:
    for flags in range(4):
        body = registration(f"F{flags}", topicSysFlag=flags, counter=flags)
        asked.register(body=body)
    assert topics_of(asked.ask(311)) == ["F1", "F3"]
    assert topics_of(asked.ask(312)) == ["F2", "F3"]
    assert topics_of(asked.ask(313)) == ["F2"]


def test_deleting_a_topic(asked: Asked) -> None:
    asked.register(body=registration("T", "U"))
    asked.register("b", "2.2.2.2:1", registration("T"), clusterName="D")
    assert asked.ask(216, topic="T", clusterName="D") == Reply()
    assert [one["brokerName"] for one in parse_json(asked.ask(105, topic="T").body)["queueDatas"]] == ["a"]
    assert asked.ask(216, topic="T") == Reply()
    assert topics_of(asked.ask(206)) == ["U"]
    assert asked.ask(216, topic="unknown").code == 0
    assert asked.ask(216).code == 1


# -- 100-102, 219: KV config -------------------------------------------------------------------------------------


def test_kv_config(asked: Asked) -> None:
    missing = asked.ask(101, namespace="n", key="k")
    assert (missing.code, missing.ext) == (22, {})
    assert asked.ask(219, namespace="n").code == 22
    assert asked.ask(100, namespace="n", key="k", value="v") == Reply()
    assert asked.ask(101, namespace="n", key="k") == Reply(0, ext={"value": "v"})
    assert asked.ask(219, namespace="n") == Reply(0, body=b'{"table":{"k":"v"}}')
    assert asked.ask(102, namespace="n", key="k") == Reply()
    assert asked.ask(102, namespace="n", key="k") == Reply()
    assert asked.ask(101, namespace="n", key="k").code == 22
    assert asked.ask(219, namespace="n").body == b'{"table":{}}'


@pytest.mark.parametrize("code", [100, 101, 102])
@pytest.mark.parametrize("given", [{"namespace": "n"}, {"key": "k"}, {"namespace": "", "key": "k"}, {}])
def test_kv_config_without_namespace_or_key_is_1(asked: Asked, code: int, given: dict[str, str]) -> None:
    assert asked.ask(code, value="v", **given).code == 1


def test_kv_config_over_a_limit_is_2() -> None:
    asked = Asked(SETTINGS.replace(kv_entries_max=1))
    asked.ask(100, namespace="n", key="k", value="v")
    reply = asked.ask(100, namespace="n", key="l", value="v")
    assert (reply.code, reply.remark) == (2, "no room for n l: the limit is 1 (emberMaxKvEntries)")


# -- 318, 319: settings ------------------------------------------------------------------------------------------


def test_settings_are_shown_and_changed(asked: Asked) -> None:
    text = asked.ask(319).body.decode()
    assert "listenPort=9876\n" in text
    assert "orderMessageEnable=false\n" in text
    assert asked.ask(318, b"orderMessageEnable=true").code == 0
    assert "orderMessageEnable=true\n" in asked.ask(319).body.decode()
    assert asked.ask(318).code == 0


@pytest.mark.parametrize("key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome", "listenPort"])
def test_a_black_listed_key_is_16(asked: Asked, key: str) -> None:
    reply = asked.ask(318, f"{key}=/tmp/evil".encode())
    assert reply.code == 16
    assert key in (reply.remark or "")
    assert asked.server.settings == SETTINGS


@pytest.mark.parametrize("body", [b"orderMessageEnabled=true", b"orderMessageEnable=2", b"\xff"])
def test_settings_that_make_no_sense_are_1(asked: Asked, body: bytes) -> None:
    assert asked.ask(318, body).code == 1


# -- all of them -------------------------------------------------------------------------------------------------

ANSWERED = {*range(100, 107), 205, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327}


def test_every_request_of_rocketmqs_name_server_has_a_row(asked: Asked) -> None:
    assert {row.code for row in asked.server.requests} == ANSWERED
    assert all(row.code in RequestCode.__members__.values() for row in asked.server.requests)


def test_what_writes_a_file_does_not_run_on_the_loop(asked: Asked) -> None:
    assert {row.code for row in asked.server.requests if row.blocking} == {100, 102, 318}
