"""Runtime info and statistics."""

from pathlib import Path

from embermq.broker.statistics import Figure, Statistics
from embermq.remoting import RequestCode, ResponseCode, parse_json
from embermq.testing import ManualClock
from tests.support.brokers import RunningBroker, play, until

KEYS = [
    "brokerVersionDesc",
    "brokerVersion",
    "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "sendThreadPoolQueueSize",
    "sendThreadPoolQueueCapacity",
    "pullThreadPoolQueueSize",
    "pullThreadPoolQueueCapacity",
    "queryThreadPoolQueueSize",
    "queryThreadPoolQueueCapacity",
    "EndTransactionQueueSize",
    "EndTransactionThreadPoolQueueCapacity",
    "dispatchBehindBytes",
    "pageCacheLockTimeMills",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "queryThreadPoolQueueHeadWaitTimeMills",
    "earliestMessageTimeStamp",
    "startAcceptSendRequestTimeStamp",
    "remainTransientStoreBufferNumbs",
    "remainHowManyDataToFlush",
    "commitLogDirCapacity",
    "putTps",
    "getTransferedTps",
    "getTransferredTps",
    "commitLogDiskRatio",
    "bootTimestamp",
    "runtime",
    "putMessageTimesTotal",
    "putMessageDistributeTime",
    "brokerActive",
]


def test_runtime_info_has_every_key_as_text(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.send("T")
        await broker.pull("T", 0)
        table = parse_json((await broker.call(28)).body)["table"]
        assert set(KEYS) <= table.keys()
        assert all(isinstance(value, str) for value in table.values())
        assert (table["brokerVersionDesc"], table["brokerVersion"]) == ("V4_9_8", "409")
        assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("1", "1")
        assert table["remainTransientStoreBufferNumbs"] == "2147483647"
        assert table["commitLogDirCapacity"].startswith("Total : ")

    play(scenario, tmp_path)


async def figure(broker: RunningBroker, name: str, key: str) -> tuple[int, float, float]:
    answer = await broker.call(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
    assert answer.code == 0, (name, key, answer.remark)
    document = parse_json(answer.body)
    assert document.keys() == {"statsDay", "statsHour", "statsMinute"}
    for window in document.values():
        assert window.keys() == {"avgpt", "sum", "tps"}
    minute = document["statsMinute"]
    assert document["statsDay"]["sum"] == minute["sum"]
    return minute["sum"], minute["tps"], minute["avgpt"]


def test_sends_pulls_and_messages_given_back_are_counted(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        for queue_id in (0, 0, 1):
            await broker.send("T", bytes(10), e=queue_id)
        await broker.pull("T", 0, maxMsgNums=1)
        stored = await broker.stored("T")
        await broker.call(36, {"offset": stored[0].physical_offset, "group": "g", "delayLevel": 5})
        size = stored[0].size
        assert (await figure(broker, "TOPIC_PUT_NUMS", "T"))[0] == 3
        assert (await figure(broker, "TOPIC_PUT_SIZE", "T"))[::2] == (3 * size, size)
        assert (await figure(broker, "QUEUE_PUT_NUMS", "T@0"))[0] == 2
        assert (await figure(broker, "QUEUE_PUT_SIZE", "T@1"))[0] == size
        assert (await figure(broker, "GROUP_GET_NUMS", "T@g"))[0] == 1
        assert (await figure(broker, "GROUP_GET_SIZE", "T@g"))[0] == size
        assert (await figure(broker, "QUEUE_GET_NUMS", "T@0@g"))[0] == 1
        assert (await figure(broker, "QUEUE_GET_SIZE", "T@0@g"))[0] == size
        assert (await figure(broker, "GROUP_GET_LATENCY", "0@T@g"))[0] >= 0
        assert (await figure(broker, "GROUP_GET_FALL_SIZE", "0@T@g"))[0] >= size
        assert (await figure(broker, "GROUP_GET_FALL_TIME", "0@T@g"))[0] >= 0
        await broker.pull("T", 1)
        assert (await figure(broker, "GROUP_GET_FALL_SIZE", "0@T@g"))[0] == 0
        assert (await figure(broker, "BROKER_PUT_NUMS", "DefaultCluster"))[0] == 3
        assert (await figure(broker, "BROKER_GET_NUMS", "DefaultCluster"))[0] == 2
        await until(lambda: broker.broker.statistics.figure("SNDBCK_PUT_NUMS", "T@g") is not None)
        assert (await figure(broker, "SNDBCK_PUT_NUMS", "T@g"))[0] == 1
        for name, key in (
            ("TOPIC_PUT_NUMS", "none"),
            ("TOPIC_PUT_NUMS", "T@0"),
            ("QUEUE_PUT_NUMS", "T@x"),
            ("GROUP_GET_NUMS", "T@other"),
            ("NO_SUCH_NAME", "T"),
            ("BROKER_PUT_NUMS", "T"),
        ):
            answer = await broker.call(315, {"statsName": name, "statsKey": key})
            assert (answer.code, f"<{name}> <{key}>" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        await broker.call(215, {"topic": "T"})
        assert (await broker.call(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"})).code == 1

    play(scenario, tmp_path)


# -- the counters themselves -----------------------------------------------------------------------------------


def advance(clock: ManualClock, statistics: Statistics, seconds: int) -> None:
    """Time passes, with a sample every ten seconds."""
    for _ in range(seconds // 10):
        clock.advance(s=10)
        for _step in statistics.sample():
            pass


def sums(figure: Figure | None) -> tuple[int, int, int]:
    assert figure is not None
    return figure.minute.sum, figure.hour.sum, figure.day.sum


def test_windows_of_a_minute_an_hour_and_a_day() -> None:
    clock = ManualClock()
    statistics = Statistics(clock, "c")
    statistics.put("T", 0, 100, 1000)
    assert sums(statistics.figure("TOPIC_PUT_NUMS", "T")) == (100, 100, 100)
    advance(clock, statistics, 120)
    assert sums(statistics.figure("TOPIC_PUT_NUMS", "T")) == (0, 100, 100)
    statistics.put("T", 0, 6, 6)
    advance(clock, statistics, 30)
    found = statistics.figure("TOPIC_PUT_NUMS", "T")
    assert sums(found) == (6, 106, 106)
    assert found is not None
    assert 6 / 60 <= found.minute.tps <= 6 / 30
    advance(clock, statistics, 3 * 3600)
    assert sums(statistics.figure("TOPIC_PUT_NUMS", "T")) == (0, 0, 106)


def test_what_is_quiet_for_a_day_is_forgotten() -> None:
    clock = ManualClock()
    statistics = Statistics(clock, "c", series_max=1)
    statistics.put("T", 0, 1, 1)
    statistics.put("U", 0, 1, 1)
    assert statistics.figure("TOPIC_PUT_NUMS", "U") is None
    assert sums(statistics.figure("BROKER_PUT_NUMS", "c"))[0] == 2
    advance(clock, statistics, 26 * 3600)
    assert statistics.figure("TOPIC_PUT_NUMS", "T") is None
    statistics.put("U", 0, 1, 1)
    assert sums(statistics.figure("TOPIC_PUT_NUMS", "U"))[0] == 1


def test_the_number_of_series_is_bounded() -> None:
    statistics = Statistics(ManualClock(), "c", series_max=3)
    for number in range(1000):
        statistics.put(f"T{number}", number, 1, 1)
        statistics.got(f"T{number}", "g", number, 1, 1, 0)
        statistics.given_back(f"T{number}", "g")
    known = [number for number in range(1000) if statistics.figure("TOPIC_PUT_NUMS", f"T{number}")]
    assert known == [0]
    assert statistics.figure("GROUP_GET_NUMS", "T0@g") is not None
    assert statistics.figure("SNDBCK_PUT_NUMS", "T0@g") is not None
    statistics.forget_group("g")
    assert statistics.figure("GROUP_GET_NUMS", "T0@g") is None
    statistics.got("new", "g", 0, 1, 1, 0)
    assert statistics.figure("GROUP_GET_NUMS", "new@g") is not None
    assert (statistics.put_total, statistics.got_total) == (1000, 1001)


def test_totals_of_days() -> None:
    clock = ManualClock()
    statistics = Statistics(clock, "c")
    statistics.put("T", 0, 5, 5)
    advance(clock, statistics, 24 * 3600)
    mornings = statistics.mornings
    assert (mornings.put_yesterday_morning, mornings.put_today_morning, statistics.put_total) == (0, 5, 5)
    statistics.put("T", 0, 2, 2)
    statistics.got("T", "g", 0, 1, 1, 0)
    advance(clock, statistics, 24 * 3600)
    assert (mornings.put_yesterday_morning, mornings.put_today_morning, mornings.got_today_morning) == (5, 7, 1)
