"""Routes as name servers answer them."""

import pytest

from embermq.client.message_queue import MessageQueue, parse_queue
from embermq.client.topic_route import parse_cluster, parse_route

TWO_BROKERS = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"1.1.1.1:10911",1:"1.1.1.2:10911"},"brokerName":"b","cluster":"C"},'
    b'{"brokerAddrs":{0:"2.2.2.2:10911"},"brokerName":"a","cluster":"C"}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":1},'
    b'{"brokerName":"a","perm":4,"readQueueNums":1,"topicSynFlag":0,"writeQueueNums":1}]}'
)


@pytest.mark.parametrize("body", [TWO_BROKERS, TWO_BROKERS.replace(b"{0:", b'{"0":').replace(b",1:", b',"1":')])
def test_both_forms_of_broker_ids_are_read(body: bytes) -> None:
    route = parse_route("T", body)
    assert route.brokers["b"].broker_addrs == {0: "1.1.1.1:10911", 1: "1.1.1.2:10911"}
    assert route.brokers["b"].cluster == "C"
    assert [data.broker_name for data in route.queues] == ["a", "b"]


def test_queues_follow_permissions() -> None:
    route = parse_route("T", TWO_BROKERS)
    assert route.write_queues() == [MessageQueue("T", "b", 0)]
    assert route.read_queues() == [MessageQueue("T", "a", 0), MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)]


def test_a_broker_without_a_master_takes_no_messages() -> None:
    route = parse_route("T", TWO_BROKERS.replace(b"{0:", b"{2:", 1))
    assert route.write_queues() == []
    assert route.address("b") == "1.1.1.2:10911"
    assert route.address("b", 2) == "1.1.1.1:10911"
    assert route.address("x") is None


def test_ordered_topics_have_the_queues_of_their_configuration() -> None:
    body = b'{"orderTopicConf":"b:2;a:1;bad","brokerDatas":[],"queueDatas":[]}'
    queues = parse_route("T", body).write_queues()
    assert queues == [MessageQueue("T", "b", 0), MessageQueue("T", "b", 1), MessageQueue("T", "a", 0)]


def test_fields_of_later_releases_are_passed_over() -> None:
    body = (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"1.1.1.1:1"},"brokerName":"a","cluster":"C","enableActingMaster":false,'
        b'"zoneName":null}],"queueDatas":[],"topicQueueMappingByBroker":null}'
    )
    assert parse_route("T", body).address("a") == "1.1.1.1:1"


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"queueDatas":[{}]}', b'{"brokerDatas":{"a":1}}'])
def test_what_is_no_route_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_route("T", body)


def test_a_cluster() -> None:
    cluster = parse_cluster(
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:10911"},"brokerName":"broker-a",'
        b'"cluster":"D"}},"clusterAddrTable":{"D":["broker-a"]}}'
    )
    assert cluster.broker_addr_table["broker-a"].master == "127.0.0.1:10911"
    assert cluster.cluster_addr_table == {"D": ["broker-a"]}


def test_queues_sort_by_topic_broker_and_id_and_go_through_json() -> None:
    queues = [
        MessageQueue("T", "b", 0),
        MessageQueue("T", "a", 10),
        MessageQueue("S", "z", 1),
        MessageQueue("T", "a", 9),
    ]
    assert [str(queue) for queue in sorted(queues)] == ["S@z:1", "T@a:9", "T@a:10", "T@b:0"]
    assert [parse_queue(queue.document()) for queue in queues] == queues
    with pytest.raises(ValueError, match="no message queue"):
        parse_queue({"topic": "T"})
