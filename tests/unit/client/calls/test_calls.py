"""Every request against a broker of ours: values for answers, typed errors for refusals."""

import asyncio
from pathlib import Path

import pytest

from embermq.client.calls import (
    BrokerAddress,
    Caller,
    ConsumerData,
    Decision,
    EndTransaction,
    Heartbeat,
    Pull,
    PullStatus,
    SendBack,
    SendStatus,
    SubscriptionData,
    WireMessage,
    check_subscription,
    cluster_route,
    consumer_ids,
    consumer_offset,
    earliest_store_time,
    end_transaction,
    heartbeat,
    lock_queues,
    max_offset,
    min_offset,
    pull,
    query,
    refused,
    search_offset,
    send,
    send_back,
    send_oneway,
    send_reply,
    topic_route,
    unlock_queues,
    unregister,
    update_consumer_offset,
    view,
)
from embermq.client.credentials import Credentials
from embermq.client.message_queue import MessageQueue
from embermq.client.received import parse_record, parse_records
from embermq.errors import (
    BrokerBusy,
    BrokerReadOnly,
    BrokerUnreachable,
    GroupMissing,
    MessageIllegal,
    PermissionMissing,
    RequestRefused,
    RequestUnsupported,
    SubscriptionRefused,
    TopicMissing,
)
from embermq.format.client_batch import encode_batch_items
from embermq.model.ids import parse_message_id
from embermq.model.message import BatchItem
from embermq.model.properties import encode_properties
from embermq.remoting import Command, Connector, NoHeader, RemotingServer, Reply, RequestCode, RequestTable, Row
from tests.support.brokers import RunningBroker, play, until
from tests.support.clusters import Cluster
from tests.support.clusters import play as play_cluster

S = 10.0


def parts(broker: RunningBroker) -> tuple[Caller, BrokerAddress]:
    return Caller(broker.client), BrokerAddress("b", broker.address)


def message(topic: str = "T", body: bytes = b"x", queue_id: int = 0, **properties: str) -> WireMessage:
    return WireMessage(
        "pg", topic, body, encode_properties(properties).decode(), queue_id=queue_id, born_timestamp=1_700_000_000_000
    )


def test_a_message_goes_out_and_comes_back(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        caller, to = parts(broker)
        stored = await send(caller, to, message(TAGS="a", KEYS="k", UNIQ_KEY="u1"), S)
        assert (stored.status, stored.queue_id, stored.queue_offset) == (SendStatus.SEND_OK, 0, 0)
        assert stored.region == "DefaultRegion"
        assert stored.is_traced
        await send_oneway(caller, to, message(body=b"y", TAGS="b"))
        await until(lambda: broker.store.max_offset("T", 0) == 2)

        pulled = await pull(caller, to, Pull("g", "T", 0, 0, expression="*"), S)
        assert (pulled.status, pulled.next_offset, pulled.min_offset) == (PullStatus.FOUND, 2, 0)
        first, second = parse_records(pulled.records, "b")
        assert (first.body, first.message_id, first.offset_message_id) == (b"x", "u1", stored.offset_message_id)
        assert (second.body, second.tags) == (b"y", "b")

        place = parse_message_id(stored.offset_message_id).physical_offset
        assert parse_record(await view(caller, to, place, S) or b"", "b").body == b"x"
        assert await view(caller, to, place + 1, S) is None
        assert [one.body for one in parse_records(await query(caller, to, "T", "k", S), "b")] == [b"x"]
        assert await query(caller, to, "T", "none", S) == b""
        found = parse_records(await query(caller, to, "T", "u1", S, is_unique_key=True), "b")
        assert [one.message_id for one in found] == ["u1"]

    play(scenario, tmp_path)


def test_pulls_say_why_there_is_nothing(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        caller, to = parts(broker)
        await send(caller, to, message(TAGS="a"), S)
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        at_end = await pull(caller, to, Pull("g", "T", 0, 1, expression="*"), S)
        assert (at_end.status, at_end.next_offset, at_end.records) == (PullStatus.NO_NEW, 1, b"")
        filtered = await pull(caller, to, Pull("g", "T", 0, 0, expression="b"), S)
        assert (filtered.status, filtered.next_offset) == (PullStatus.NO_MATCH, 1)
        moved = await pull(caller, to, Pull("g", "T", 0, 99, expression="*"), S)
        assert (moved.status, moved.next_offset, moved.max_offset) == (PullStatus.OFFSET_MOVED, 1, 1)
        committing = Pull("g", "T", 0, 1, expression="*", commit_offset=1)
        await pull(caller, to, committing, S)
        assert await consumer_offset(caller, to, "g", MessageQueue("T", "b", 0), S) == 1

    play(scenario, tmp_path)


def test_a_held_pull_is_answered_by_the_next_message(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        caller, to = parts(broker)
        await send(caller, to, message(), S)
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        held = asyncio.create_task(pull(caller, to, Pull("g", "T", 0, 1, expression="*", hold_ms=15_000), S))
        await asyncio.sleep(0.05)
        assert not held.done()
        await send(caller, to, message(body=b"next"), S)
        assert [one.body for one in parse_records((await held).records, "b")] == [b"next"]

    play(scenario, tmp_path)


def test_batches(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        caller, to = parts(broker)
        batch = message(body=encode_batch_items([BatchItem(b"1"), BatchItem(b"2")]))
        batch.is_batch = True
        stored = await send(caller, to, batch, S)
        assert len(stored.offset_message_id.split(",")) == 2
        assert [one.body for one in await broker.stored("T")] == [b"1", b"2"]

    play(scenario, tmp_path)


def test_offsets(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        caller, to = parts(broker)
        queue = MessageQueue("T", "b", 0)
        assert await earliest_store_time(caller, to, queue, S) is None
        for _ in range(3):
            await send(caller, to, message(), S)
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        assert (await min_offset(caller, to, queue, S), await max_offset(caller, to, queue, S)) == (0, 3)
        stored_at = await earliest_store_time(caller, to, queue, S)
        assert stored_at is not None
        assert await search_offset(caller, to, queue, stored_at, S) == 0
        assert await search_offset(caller, to, queue, stored_at + 10**9, S) == 2
        await update_consumer_offset(caller, to, "g", queue, 2, S)
        assert await consumer_offset(caller, to, "g", queue, S) == 2
        await update_consumer_offset(caller, to, "g", queue, 3, None)
        assert await consumer_offset(caller, to, "g", queue, S) == 3

    play(scenario, tmp_path)


def test_members_and_locks(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        caller, to = parts(broker)
        assert await consumer_ids(caller, to, "g", S) == []
        subscription = SubscriptionData("T", "a || b", version=7)
        said = Heartbeat("c1", ("pg",), (ConsumerData("g", (subscription,)),))
        assert await heartbeat(caller, to, said.body(), S) == 409
        assert await consumer_ids(caller, to, "g", S) == ["c1"]
        group = broker.broker.clients.consumers("g")
        assert group is not None
        assert group.subscriptions["T"].expression == "a || b"
        queues = [MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)]
        assert await lock_queues(caller, to, "g", "c1", queues, S) == set(queues)
        assert await lock_queues(caller, to, "g", "c2", queues, S) == set()
        await unlock_queues(caller, to, "g", "c1", queues[:1], S)
        assert await lock_queues(caller, to, "g", "c2", queues, S) == {queues[0]}
        await unregister(caller, to, "c1", S, consumer_group="g")
        assert await consumer_ids(caller, to, "g", S) == []

    play(scenario, tmp_path)


def test_sql_is_checked_by_the_broker(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        caller, to = parts(broker)
        await check_subscription(caller, to, "g", "c1", SubscriptionData("T", "a > 1", "SQL92"), S)
        with pytest.raises(SubscriptionRefused, match="topic 'T', group 'g'"):
            await check_subscription(caller, to, "g", "c1", SubscriptionData("T", "a >", "SQL92"), S)

    play(scenario, tmp_path, store={"filter_properties": True})


def test_send_back_and_transactions(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        caller, to = parts(broker)
        stored = await send(caller, to, message(UNIQ_KEY="u"), S)
        place = parse_message_id(stored.offset_message_id).physical_offset
        said = Heartbeat("c1", (), (ConsumerData("g", (SubscriptionData("T"),)),))
        await heartbeat(caller, to, said.body(), S)
        await send_back(caller, to, SendBack(place, "g", -1, origin_topic="T"), S)
        assert len(await broker.stored("%DLQ%g")) == 1
        with pytest.raises(RequestRefused, match="broker b"):
            await send_back(caller, to, SendBack(place + 1, "g"), S)

        half = message("T2", b"half", TRAN_MSG="true", PGROUP="pg", UNIQ_KEY="h")
        half.sys_flag = 4
        prepared = await send(caller, to, half, S)
        ended = EndTransaction(
            "pg",
            prepared.queue_offset,
            parse_message_id(prepared.offset_message_id).physical_offset,
            Decision.COMMIT,
            msg_id="h",
        )
        await end_transaction(caller, to, ended, S)
        assert [one.body for one in await broker.stored("T2")] == [b"half"]

    play(scenario, tmp_path)


def test_a_reply_to_nobody_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        caller, to = parts(broker)
        reply = message("DefaultCluster_REPLY_TOPIC", REPLY_TO_CLIENT="nobody", CORRELATION_ID="c")
        with pytest.raises(RequestRefused, match="nobody"):
            await send_reply(caller, to, reply, S)

    play(scenario, tmp_path)


def test_routes(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        caller, names = Caller(cluster.broker.client), BrokerAddress("", cluster.name_server)
        assert await topic_route(caller, names, "none", S) is None
        route = await topic_route(caller, names, "TBW102", S)
        assert route is not None
        assert {queue.broker for queue in route.write_queues()} == {"a", "b"}
        known = await cluster_route(caller, names, S)
        assert known.broker_addr_table["a"].master == cluster.brokers["a"].address

    play_cluster(scenario, tmp_path, brokers=2)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, RequestRefused),
        (2, BrokerBusy),
        (3, RequestUnsupported),
        (13, MessageIllegal),
        (14, BrokerReadOnly),
        (16, PermissionMissing),
        (17, TopicMissing),
        (23, SubscriptionRefused),
        (26, GroupMissing),
        (215, BrokerBusy),
        (1500, BrokerReadOnly),
        (9999, RequestRefused),
    ],
)
def test_refusals_name_broker_topic_group_and_what_to_do(code: int, kind: type[RequestRefused]) -> None:
    to = BrokerAddress("broker-a", "10.0.0.1:10911")
    error = refused(to, 310, Command(code, remark="because"), topic="orders", group="billing")
    assert type(error) is kind
    assert (error.code, error.remark, error.broker, error.topic, error.group) == (
        code,
        "because",
        "broker-a",
        "orders",
        "billing",
    )
    for part in ("SEND_MESSAGE_V2", "broker-a (10.0.0.1:10911)", "'orders'", "'billing'", "because"):
        assert part in str(error)
    assert error.advice in str(error)


def test_a_broker_that_is_not_there_is_named(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        caller = Caller(broker.client)
        with pytest.raises(BrokerUnreachable, match=r"broker gone \(127.0.0.1:1\)") as raised:
            await send(caller, BrokerAddress("gone", "127.0.0.1:1"), message("orders"), S)
        assert not raised.value.is_sent
        assert (raised.value.topic, raised.value.broker) == ("orders", "gone")
        with pytest.raises(BrokerUnreachable, match="check that it runs"):
            await send_oneway(caller, BrokerAddress("gone", "127.0.0.1:1"), message())

    play(scenario, tmp_path)


def test_a_request_without_an_answer_may_have_been_done() -> None:
    async def scenario() -> None:
        server = RemotingServer()
        silent = RequestTable([Row(RequestCode.SEND_MESSAGE_V2, NoHeader, lambda call: None)])
        to = BrokerAddress("b", str(await server.listen("127.0.0.1", 0, silent)))
        connector = Connector()
        try:
            await connector.link(to.address)
            with pytest.raises(BrokerUnreachable, match="may have been done") as raised:
                await send(Caller(connector), to, message(), 0.05)
            assert raised.value.is_sent
        finally:
            await connector.close()
            await server.stop()

    asyncio.run(scenario())


def test_requests_are_signed() -> None:
    seen: list[dict[str, str] | None] = []

    async def scenario() -> None:
        def take(call):  # type: ignore[no-untyped-def]
            seen.append(call.request.ext)
            return Reply(ext={"offset": "5"})

        server = RemotingServer()
        rows = [
            Row(RequestCode.GET_MAX_OFFSET, NoHeader, take),
            Row(RequestCode.UPDATE_CONSUMER_OFFSET, NoHeader, take),
        ]
        to = BrokerAddress("b", str(await server.listen("127.0.0.1", 0, RequestTable(rows))))
        connector = Connector()
        try:
            caller = Caller(connector, Credentials("rocketmq2", "12345678"))
            queue = MessageQueue("T", "b", 3)
            await update_consumer_offset(caller, to, "CG", queue, 1, None)
            assert await max_offset(caller, to, queue, S) == 5
        finally:
            await connector.close()
            await server.stop()

    asyncio.run(scenario())
    assert [{"AccessKey", "Signature"} <= set(ext or {}) for ext in seen] == [True, True]
