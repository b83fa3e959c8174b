"""Statistics: a hand-turned clock, and the text forms of RocketMQ."""

import threading

import pytest

from embermq.store.statistics import PutCounters, StoreStats


class HandClock:
    """A clock that moves by hand."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int((self.seconds - 1000) * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def local_stamp(self, ms: int) -> str:
        return f"{ms:017d}"


class Bench:
    """Statistics whose totals and time the test sets."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.put = PutCounters(0, 0, 0)
        self.stats = StoreStats(self.clock, lambda: self.put)

    def add(self, count: int, size: int = 100, failed: int = 0) -> None:
        put = self.put
        self.put = PutCounters(put.count + count, put.bytes + count * size, put.failed + failed)

    def pass_seconds(self, seconds: int, puts_each: int = 0) -> None:
        for _ in range(seconds):
            self.clock.seconds += 1
            self.add(puts_each)
            self.stats.sample()

    def info(self, key: str) -> str:
        return self.stats.runtime_info()[key]


def test_a_fresh_store_answers_every_key() -> None:
    assert Bench().stats.runtime_info() == {
        "bootTimestamp": "1700000000000",
        "runtime": "[ 0 days, 0 hours, 0 minutes, 0 seconds ]",
        "putMessageEntireTimeMax": "0",
        "getMessageEntireTimeMax": "0",
        "putMessageTimesTotal": "1",
        "putMessageFailedTimes": "0",
        "putMessageSizeTotal": "0",
        "putMessageAverageSize": "0.0",
        "putMessageDistributeTime": "null",
        "dispatchMaxBuffer": "0",
        "putTps": "  ",
        "getFoundTps": "  ",
        "getMissTps": "  ",
        "getTotalTps": "0.0 0.0 0.0",
        "getTransferedTps": "  ",
        "putLatency99": "0.00",
        "putLatency999": "0.00",
    }


def test_totals_and_average() -> None:
    bench = Bench()
    bench.add(4, size=150, failed=2)
    assert bench.info("putMessageTimesTotal") == "4"
    assert bench.info("putMessageSizeTotal") == "600"
    assert bench.info("putMessageAverageSize") == "150.0"
    assert bench.info("putMessageFailedTimes") == "2"


def test_runtime_counts_days() -> None:
    bench = Bench()
    bench.clock.seconds += 2 * 86_400 + 3 * 3600 + 4 * 60 + 5.9
    assert bench.info("runtime") == "[ 2 days, 3 hours, 4 minutes, 5 seconds ]"


def test_a_window_needs_one_sample_more_than_its_seconds() -> None:
    bench = Bench()
    bench.pass_seconds(10, puts_each=5)
    assert bench.info("putTps") == "  "
    bench.pass_seconds(1, puts_each=5)
    assert bench.info("putTps") == "5.0  "
    bench.pass_seconds(50, puts_each=5)
    assert bench.info("putTps") == "5.0 5.0 "
    bench.pass_seconds(540, puts_each=5)
    assert bench.info("putTps") == "5.0 5.0 5.0"


def test_windows_forget_what_is_older() -> None:
    bench = Bench()
    bench.pass_seconds(601, puts_each=6)
    bench.pass_seconds(10)
    assert bench.info("putTps") == "0.0 5.0 5.9"


def test_fetches_are_found_or_missed() -> None:
    bench = Bench()
    bench.stats.sample()
    for _ in range(10):
        bench.stats.record_fetch(32, 0.0004)
        bench.stats.record_fetch(0, 0.0207)
        bench.pass_seconds(1)
    assert bench.info("getFoundTps") == "1.0  "
    assert bench.info("getMissTps") == "1.0  "
    assert bench.info("getTotalTps") == "2.0 0.0 0.0"
    assert bench.info("getTransferedTps") == "32.0  "
    assert bench.info("getMessageEntireTimeMax") == "20"


def test_latency_classes_are_those_of_the_last_full_minute() -> None:
    bench = Bench()
    bench.add(100)
    for ms in (1, 9, 10, 99, 100, 999, 1000, 4999, 9999, 10_000, 70_000):
        bench.stats.record_put(ms / 1000)
    bench.pass_seconds(59)
    assert bench.info("putMessageDistributeTime") == "null"
    bench.pass_seconds(1)
    assert bench.info("putMessageDistributeTime") == (
        "[<=0ms]:89 [0~10ms]:2 [10~50ms]:1 [50~100ms]:1 [100~200ms]:1 [200~500ms]:0 [500ms~1s]:1 [1~2s]:1"
        " [2~3s]:0 [3~4s]:0 [4~5s]:1 [5~10s]:1 [10s~]:2"
    )
    assert bench.info("putMessageEntireTimeMax") == "70000"
    bench.pass_seconds(60, puts_each=1)
    assert bench.info("putMessageDistributeTime").startswith("[<=0ms]:60 [0~10ms]:0 ")
    assert bench.info("putMessageEntireTimeMax") == "70000"


def test_each_message_of_a_batch_took_as_long_as_the_batch() -> None:
    bench = Bench()
    bench.add(300)
    bench.stats.record_put(0.02, messages=256)
    bench.stats.record_put(0.0009)
    bench.pass_seconds(60)
    assert bench.info("putMessageDistributeTime").startswith("[<=0ms]:44 [0~10ms]:0 [10~50ms]:256 ")
    assert bench.info("putMessageEntireTimeMax") == "20"


def test_a_slow_put_is_said(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.stats.record_put(0.5)
    assert caplog.messages == []
    bench.stats.record_put(0.75, messages=3)
    assert caplog.messages == ["slow put elapsed_ms=750 messages=3"]


def test_percentiles_lie_inside_their_bucket() -> None:
    bench = Bench()
    bench.add(1000)
    for _ in range(5):
        bench.stats.record_put(0.0255)  # the bucket of 24 to 26 ms
    bench.pass_seconds(60)
    assert 0 < float(bench.info("putLatency99")) <= 1
    assert 24 < float(bench.info("putLatency999")) <= 26


def test_a_put_beyond_all_buckets_is_shown_as_the_largest() -> None:
    bench = Bench()
    bench.add(1)
    bench.stats.record_put(1000.0)
    bench.pass_seconds(60)
    assert bench.info("putLatency999") == "10000.00"


def test_doubles_read_as_java_prints_them() -> None:
    bench = Bench()
    bench.pass_seconds(1)
    bench.pass_seconds(10, puts_each=12_345_678)
    assert bench.info("putTps") == "1.2345678E7  "
    bench.pass_seconds(11, puts_each=20_000_000)
    assert bench.info("putTps") == "2.0E7  "


def test_a_clock_that_stands_still_gives_no_rate() -> None:
    bench = Bench()
    for _ in range(12):
        bench.add(1)
        bench.stats.sample()
    assert bench.info("putTps") == "0.0  "


def test_counting_from_many_threads_loses_nothing() -> None:
    bench = Bench()
    bench.stats.sample()

    def fetch() -> None:
        for _ in range(2000):
            bench.stats.record_fetch(1, 0.0)

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bench.pass_seconds(10)
    assert bench.info("getFoundTps") == "800.0  "
