"""SQL92 filters of a broker: pulls by expression, registrations and their lives, bits, held pulls, retries."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from embermq.broker import ConsumerFilters
from embermq.broker.members.consumer_filters import CHARACTERS_MAX, FILTERS_MAX
from embermq.broker.members.subscriptions import Subscription
from embermq.format.config_json import parse_config
from embermq.model.properties import encode_properties
from embermq.remoting import Command, Reply, RequestCode, ResponseCode, parse_json, write_json
from embermq.settings import StoreSettings
from embermq.store import GroupFilter, PropertyFilter, TagFilter
from embermq.testing import ManualClock
from tests.support.brokers import RunningBroker, consumer, play, pull_fields, running, subscription, until

ON = {"filter_properties": True}
BITS = ON | {"filter_bits": True, "queue_extension": True}
DAY_MS = 86_400_000
REGISTERED: dict[str, Any] = {"subscription": "", "sysFlag": 0}


def sql(topic: str, expression: str, version: int = 100) -> dict[str, Any]:
    return subscription(topic, expression, version, "SQL92")


async def fill(broker: RunningBroker, topic: str = "T", count: int = 10) -> None:
    for number in range(count):
        properties = encode_properties({"n": str(number), "kind": "even" if number % 2 == 0 else "odd"}).decode()
        await broker.send(topic, b"%d" % number, properties)


async def bodies(broker: RunningBroker, answer: Command) -> list[bytes]:
    """The bodies of a pull's records."""
    found = {one.physical_offset: one.body for one in await broker.stored("T")}
    view, at, names = memoryview(answer.body), 0, []
    while at < len(view):
        names.append(found[int.from_bytes(view[at + 28 : at + 36])])
        at += int.from_bytes(view[at : at + 4])
    return names


class Counting:
    """A filter, and how many records it was asked about."""

    def __init__(self, inner: GroupFilter) -> None:
        self._inner, self.looked = inner, 0
        self.matches_entry = inner.matches_entry

    def matches_record(self, properties: bytes) -> bool:
        self.looked += 1
        return self._inner.matches_record(properties)


# -- pulls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("n > 7", [b"8", b"9"]),
        ("kind = 'odd' AND n BETWEEN 2 AND 6", [b"3", b"5"]),
        ("kind IN ('none')", []),
        ("missing IS NULL AND n = 4", [b"4"]),
        ("kind > 5", []),
    ],
)
@pytest.mark.parametrize("store", [ON, BITS], ids=["plain", "bits"])
def test_an_expression_in_the_pull(
    tmp_path: Path, store: dict[str, Any], expression: str, expected: list[bytes]
) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await fill(broker)
        answer = await broker.pull("T", 0, subscription=expression, expressionType="SQL92")
        assert answer.code == (0 if expected else ResponseCode.PULL_RETRY_IMMEDIATELY)
        assert await bodies(broker, answer) == expected
        assert answer.ext is not None
        assert answer.ext["nextBeginOffset"] == "10"

    play(scenario, tmp_path, store=store)


def test_a_bad_expression_in_the_pull_is_refused(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await fill(broker, count=1)
        answer = await broker.pull("T", 0, subscription="n in (5)", expressionType="SQL92")
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "line 1, column 7: found 5 where a string is expected" in (answer.remark or "")
        answer = await broker.pull("T", 0, subscription="n = 5", expressionType="SQL2003")
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "SQL2003 is no kind of expression" in (answer.remark or "")

    play(scenario, tmp_path, store=ON)


@pytest.mark.parametrize("store", [ON, BITS], ids=["plain", "bits"])
def test_a_registered_expression(tmp_path: Path, store: dict[str, Any]) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await fill(broker, count=4)
        await broker.heartbeat(consumers=[consumer("g", sql("T", "kind = 'odd'"))])
        await fill(broker, count=6)
        answer = await broker.pull("T", 0, **REGISTERED)
        assert await bodies(broker, answer) == [b"1", b"3", b"1", b"3", b"5"]

    play(scenario, tmp_path, store=store)


def test_bits_pass_over_messages_that_were_evaluated_before(tmp_path: Path) -> None:
    """With bits, no property is looked at again for a message without them."""

    async def scenario(broker: RunningBroker) -> None:
        broker.broker.topics.ensure("T", 1)
        await broker.heartbeat(consumers=[consumer("g", sql("T", "n = 3"))])
        await asyncio.sleep(0.005)  # Bits of messages of the same millisecond are not trusted.
        await fill(broker)
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        found = broker.broker.filters.find("T", "g")
        assert found is not None
        counting = Counting(found)
        read = broker.store.read_raw("T", 0, 0, 32, filter=counting)
        assert (read.count, counting.looked) == (1, 1)

    play(scenario, tmp_path, store=BITS)


@pytest.mark.parametrize(
    ("registered", "version", "code", "remark"),
    [
        (sql("T", "n ="), 100, ResponseCode.FILTER_DATA_NOT_EXIST, "Your expression may be wrong"),
        (sql("T", "n = 1"), 101, ResponseCode.SUBSCRIPTION_NOT_LATEST, "not latest"),
        (sql("T", "n = 1"), 100, 0, "FOUND"),
    ],
)
def test_what_a_pull_by_registration_is_answered(
    tmp_path: Path, registered: dict[str, Any], version: int, code: int, remark: str
) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await fill(broker, count=2)
        await broker.heartbeat(consumers=[consumer("g", registered)])
        answer = await broker.pull("T", 0, subVersion=version, **REGISTERED)
        assert (answer.code, remark in (answer.remark or "")) == (code, True)

    play(scenario, tmp_path, store=ON)


def test_a_newer_expression_that_does_not_compile_ends_the_old_one(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await fill(broker, count=2)
        await broker.heartbeat(consumers=[consumer("g", sql("T", "n = 1", 100))])
        assert (await broker.pull("T", 0, **REGISTERED)).code == 0
        await broker.heartbeat(consumers=[consumer("g", sql("T", "n = = 1", 101))])
        assert (await broker.pull("T", 0, **REGISTERED)).code == ResponseCode.FILTER_DATA_NOT_EXIST
        await broker.heartbeat(consumers=[consumer("g", sql("T", "n = 0", 102))])
        assert await bodies(broker, await broker.pull("T", 0, **REGISTERED)) == [b"0"]

    play(scenario, tmp_path, store=ON)


def test_filters_are_refused_where_they_are_switched_off(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await fill(broker, count=1)
        await broker.heartbeat(consumers=[consumer("g", sql("T", "n = 1"))])
        for answer in (
            await broker.pull("T", 0, **REGISTERED),
            await broker.pull("T", 0, subscription="n = = 1", expressionType="SQL92"),
            await check(broker, "n = 1"),
        ):
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == "The broker does not support consumer to filter message by SQL92"

    play(scenario, tmp_path)


async def check(broker: RunningBroker, expression: str, kind: str = "SQL92") -> Command:
    body = {"clientId": "c", "group": "g", "subscriptionData": subscription("T", expression, 1, kind)}
    return await broker.call(RequestCode.CHECK_CLIENT_CONFIG, None, write_json(body))


@pytest.mark.parametrize(
    ("expression", "kind", "code"),
    [("n > 1", "SQL92", 0), ("n >", "SQL92", 23), ("a || b", "TAG", 0), ("n > 1", "SQL", 23), ("", "SQL92", 23)],
)
def test_a_consumer_asks_before_it_starts(tmp_path: Path, expression: str, kind: str, code: int) -> None:
    async def scenario(broker: RunningBroker) -> None:
        answer = await check(broker, expression, kind)
        assert answer.code == code
        assert len(broker.broker.filters) == 0

    play(scenario, tmp_path, store=ON)


# -- held pulls ------------------------------------------------------------------------------------------------------


def test_a_held_pull_waits_for_a_message_that_matches(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await fill(broker, count=1)
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        fields = pull_fields("T", 1, sys_flag=6) | {"subscription": "n = 3", "expressionType": "SQL92"}
        pull = asyncio.ensure_future(broker.call(RequestCode.PULL_MESSAGE, fields))
        await until(lambda: len(broker.broker.held) == 1)
        await fill(broker, count=2)
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        await broker.call(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})
        assert len(broker.broker.held) == 1
        await broker.send("T", b"match", "n\x013")
        answer = await pull
        assert await bodies(broker, answer) == [b"match"]
        assert answer.ext is not None
        assert answer.ext["nextBeginOffset"] == "4"

    play(scenario, tmp_path, store=ON)


# -- retries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("is_filtered", "expected"), [(False, [b"1", b"2", b"3"]), (True, [b"2", b"3"])])
def test_messages_given_back(tmp_path: Path, is_filtered: bool, expected: list[bytes]) -> None:
    """Filtered by the expression of the topic they came from only if filterSupportRetry says so."""

    async def scenario(broker: RunningBroker) -> None:
        await broker.heartbeat(consumers=[consumer("g", sql("T", "n = 5"), subscription("%RETRY%g"))])
        for body, properties in (
            (b"1", "RETRY_TOPIC\x01T\x02n\x014"),
            (b"2", "RETRY_TOPIC\x01T\x02n\x015"),
            (b"3", "RETRY_TOPIC\x01other\x02n\x014"),
        ):
            await broker.send("%RETRY%g", body, properties)
        answer = await broker.pull("%RETRY%g", 0)
        names = {one.physical_offset: one.body for one in await broker.stored("%RETRY%g")}
        seen, at = [], 0
        while at < len(answer.body):
            seen.append(names[int.from_bytes(answer.body[at + 28 : at + 36])])
            at += int.from_bytes(answer.body[at : at + 4])
        assert seen == expected

    play(scenario, tmp_path, store=ON | {"filter_retries": is_filtered})


# -- registrations ---------------------------------------------------------------------------------------------------


def filters_at(path: Path, clock: ManualClock, **settings: Any) -> ConsumerFilters:
    return ConsumerFilters.load(path, StoreSettings(**(ON | settings)), clock)


def wants(*subscriptions: Subscription) -> dict[str, Subscription]:
    return {one.topic: one for one in subscriptions}


def by_sql(expression: str, version: int = 1, topic: str = "T") -> Subscription:
    return Subscription(topic, expression, "SQL92", version)


def entry(path: Path, topic: str = "T", group: str = "g") -> dict[str, Any]:
    document: Any = parse_config((path / "config" / "consumerFilter.json").read_text())
    found: dict[str, Any] = document["filterDataByTopic"][topic]["groupFilterData"][group]
    return found


def test_the_file_is_rocketmqs(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    filters = filters_at(tmp_path, clock)
    filters.register("GroupA", wants(by_sql("n > 5", 42, "TopicTest")))
    assert filters.save()
    assert entry(tmp_path, "TopicTest", "GroupA") == {
        "bloomFilterData": {"bitNum": 112, "bitPos": [105, 17, 70]},
        "bornTime": 1_700_000_000_000,
        "clientVersion": 42,
        "consumerGroup": "GroupA",
        "dead": False,
        "deadTime": 0,
        "expression": "n > 5",
        "expressionType": "SQL92",
        "topic": "TopicTest",
    }


def test_death_and_revival(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    filters = filters_at(tmp_path, clock)
    filters.register("g", wants(by_sql("n > 5", 7)))
    clock.advance(ms=1000)
    filters.unregister("g")
    filters.save()
    assert entry(tmp_path)["dead"]
    assert entry(tmp_path)["deadTime"] == 1_700_000_001_000
    clock.advance(ms=DAY_MS - 1)
    filters.clean()
    assert len(filters) == 1
    filters.register("g", wants(by_sql("n > 5", 6)))  # Older: it says nothing.
    filters.save()
    assert entry(tmp_path)["dead"]
    filters.register("g", wants(by_sql("n > 5", 7)))
    filters.save()
    assert (entry(tmp_path)["dead"], entry(tmp_path)["bornTime"]) == (False, 1_700_000_000_000)
    filters.unregister("g")
    clock.advance(ms=DAY_MS)
    filters.clean()
    assert (len(filters), filters.find("T", "g")) == (0, None)


def test_a_newer_version(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    filters = filters_at(tmp_path, clock)
    filters.register("g", wants(by_sql("n > 5", 1)))
    first = filters.find("T", "g")
    clock.advance(ms=1)
    filters.register("g", wants(by_sql("n > 5", 2)))
    assert filters.find("T", "g") is first
    filters.register("g", wants(by_sql("n > 6", 2)))  # The same version again: it says nothing.
    assert filters.find("T", "g") is first
    filters.register("g", wants(by_sql("n > 6", 3)))
    second = filters.find("T", "g")
    assert second is not None
    assert second is not first
    assert second.matches_record(b"n\x017")
    assert not second.matches_record(b"n\x016")
    filters.save()
    assert (entry(tmp_path)["bornTime"], entry(tmp_path)["clientVersion"]) == (1_700_000_000_001, 3)


def test_a_topic_that_is_not_wanted_any_more(tmp_path: Path) -> None:
    filters = filters_at(tmp_path, ManualClock(1_700_000_000_000))
    filters.register("g", wants(by_sql("n > 5"), by_sql("n > 5", topic="U"), by_sql("n > 5", topic="V")))
    filters.register("g", wants(by_sql("n > 5"), Subscription("V", "*", "TAG", 2)))
    filters.save()
    assert [entry(tmp_path, topic)["dead"] for topic in ("T", "U", "V")] == [False, True, True]


def test_after_a_restart(tmp_path: Path) -> None:
    """Every filter is dead until its group comes back; what cannot be compiled is dropped."""
    clock = ManualClock(1_700_000_000_000)
    filters = filters_at(tmp_path, clock)
    filters.register("g", wants(by_sql("n > 5", 3)))
    filters.register("broken", wants(by_sql("n > 6", 3)))
    filters.save()
    path = tmp_path / "config" / "consumerFilter.json"
    path.write_text(path.read_text().replace("n > 6", "n >"))
    clock.advance(ms=3_600_000)
    again = filters_at(tmp_path, clock)
    assert (len(again), again.find("T", "broken")) == (1, None)
    again.save()
    assert entry(tmp_path)["deadTime"] == clock.now_ms() - 30_000
    again.register("g", wants(by_sql("n > 5", 3)))
    again.save()
    assert (entry(tmp_path)["dead"], entry(tmp_path)["bornTime"]) == (False, 1_700_000_000_000)


def test_bits_of_another_size_are_computed_again(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    filters = filters_at(tmp_path, clock)
    filters.register("g", wants(by_sql("n > 5")))
    filters.save()
    clock.advance(ms=5)
    larger = filters_at(tmp_path, clock, filter_consumers=100)
    larger.save()
    assert entry(tmp_path)["bloomFilterData"]["bitNum"] == larger.bits.bloom.bits > 112
    assert entry(tmp_path)["bornTime"] == 1_700_000_000_005


def test_a_filter_is_born_after_every_message_that_has_no_bits_for_it(tmp_path: Path) -> None:
    filters = filters_at(tmp_path, ManualClock(1_700_000_000_000))
    filters.bits.newest_ms = 1_700_000_009_000  # The clock was set back meanwhile.
    filters.register("g", wants(by_sql("n > 5")))
    filters.save()
    assert entry(tmp_path)["bornTime"] == 1_700_000_009_000


def test_there_is_a_bound(tmp_path: Path) -> None:
    filters = filters_at(tmp_path, ManualClock(1_700_000_000_000))
    for number in range(FILTERS_MAX // 1000):
        filters.register(f"g{number}", {f"T{n}": by_sql("TRUE", topic=f"T{n}") for n in range(1000)})
    filters.register("late", wants(by_sql("n > 5")))
    assert (len(filters), filters.find("T", "late")) == (FILTERS_MAX, None)


def test_all_expressions_together_have_a_bound(tmp_path: Path) -> None:
    filters = filters_at(tmp_path, ManualClock(1_700_000_000_000))
    long = "n = '" + "x" * 30_000 + "'"
    for number in range(CHARACTERS_MAX // len(long) + 5):
        filters.register(f"g{number}", wants(by_sql(long)))
    assert len(filters) == CHARACTERS_MAX // len(long)
    filters.register("g0", wants(by_sql("n = 1", 2)))
    filters.register("late", wants(by_sql(long)))
    assert filters.find("T", "late") is not None


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (Subscription("T", "a", "TAG", 1, ("a",)), TagFilter),
        (by_sql("n > 5"), GroupFilter),
        (by_sql("n > 6"), PropertyFilter),
        (by_sql("n >"), Reply),
    ],
)
def test_the_filter_of_a_pull(tmp_path: Path, given: Subscription, kind: type) -> None:
    """An expression that is the registered one uses its bits."""
    filters = filters_at(tmp_path, ManualClock(1_700_000_000_000))
    filters.register("g", wants(by_sql("n > 5")))
    assert isinstance(filters.wanted(given, "g", 0, is_inline=True), kind)


def test_a_group_without_members_lets_its_filters_die(tmp_path: Path) -> None:
    async def whole() -> None:
        async with running(tmp_path, store=ON) as broker:
            await broker.heartbeat(consumers=[consumer("g", sql("T", "n = 1"))])
            await broker.call(RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "g"})
        assert entry(tmp_path / "store")["dead"]
        async with running(tmp_path, store=ON) as broker:
            await broker.heartbeat(consumers=[consumer("g", sql("T", "n = 1"))])
        assert entry(tmp_path / "store")["expression"] == "n = 1"

    asyncio.run(whole())


@pytest.mark.parametrize("store", [ON, BITS], ids=["no bits", "bits"])
def test_entries_say_which_messages_a_group_gets(tmp_path: Path, store: dict[str, Any]) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await fill(broker)
        await broker.heartbeat("c", [consumer("g", sql("T", "n BETWEEN 3 AND 5"))])
        await asyncio.to_thread(broker.store.wait_for_dispatch)
        fields = {"topic": "T", "queueId": 0, "index": 0, "count": 10, "consumerGroup": "g"}
        document = parse_json((await broker.call(RequestCode.QUERY_CONSUME_QUEUE, fields)).body)
        assert [one["eval"] for one in document["queueData"]] == [3 <= n <= 5 for n in range(10)]
        assert document["filterData"] == "n BETWEEN 3 AND 5"
        assert document["subscriptionData"]["expressionType"] == "SQL92"
        await broker.heartbeat("c", [consumer("g", sql("T", "n BETWEEN", 101))])
        document = parse_json((await broker.call(RequestCode.QUERY_CONSUME_QUEUE, fields)).body)
        assert not any(one["eval"] for one in document["queueData"])

    play(scenario, tmp_path, store=store)
