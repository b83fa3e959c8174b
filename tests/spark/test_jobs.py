"""Statistics, consumer lag, replay and dead letters over small stores whose answers can be counted by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from embermq import Message, MessageStore
from embermq.errors import OptionInvalid, StoreError, TopicUnknown
from embermq.inspect.snapshot import Survey
from embermq.spark.jobs.archive import archive
from embermq.spark.jobs.dead_letters import dead_letters, resend
from embermq.spark.jobs.lag import find_lags
from embermq.spark.jobs.replay import RateLimit, ReplayWindow, replay
from embermq.spark.jobs.replay_marks import ORIGIN_PLACE, ORIGIN_TOPIC, REPLAY_ID
from embermq.spark.jobs.stats import STEPS_MAX, stats
from embermq.spark.jobs.stats_page import stats_report
from embermq.spark.planning.stores import StorePlace
from embermq.spark.report import render
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_MS = 1_700_000_000_000


def orders(builder: StoreBuilder, count: int = 40) -> None:
    """One order a second, each born 5 ms before it is stored; every fourth is paid."""
    clock = builder.clock
    assert isinstance(clock, ManualClock)
    with builder.open() as store:
        for number in range(count):
            now = START_MS + 1000 * number
            clock.set(now)
            store.append(
                Message(
                    "orders",
                    b"x" * (100 if number % 2 else 2000),
                    tags="paid" if number % 4 == 0 else "new",
                    keys=[f"o-{number}", "hot"],
                    properties={"n": str(number)},
                    queue_id=number % 3,
                    born_timestamp=now - 5,
                )
            )
        store.append(Message("returns", b"r", born_timestamp=START_MS))


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "broker-a", clock=ManualClock())


def test_statistics(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    orders(builder)
    config = builder.root / "config"
    config.mkdir(exist_ok=True)
    (config / "consumerOffset.json").write_text('{"offsetTable":{"orders@shop":{0:10,1:13}}}')
    found = stats(spark, [str(builder.root)])
    with builder.open(read_only=True) as store:
        sizes = dict.fromkeys(("orders", "returns"), 0)
        for message in store.scan():
            sizes[message.topic] += message.size
    assert found.messages == 41
    assert found.bytes == sum(sizes.values())
    assert {one.topic: (one.messages, one.bytes, one.queues) for one in found.topics} == {
        "orders": (40, sizes["orders"], 3),
        "returns": (1, sizes["returns"], 1),
    }
    assert found.topics[0].delay_p50_ms == found.topics[0].delay_max_ms == 5
    assert (found.start_ms, found.steps_from_ms, found.step_ms) == (START_MS, START_MS, 1000)
    assert found.volume == [1] * 39 + [2]
    assert sum(found.volume_bytes) == found.bytes
    tags = {one.name: one.messages for one in found.tags}
    assert tags == {"orders new": 30, "orders paid": 10, "returns (no tag)": 1}
    assert (found.hot_keys[0].name, found.hot_keys[0].messages) == ("hot", 40)
    assert {one.name: one.messages for one in found.sizes} == {"up to 128 B": 1, "up to 256 B": 20, "up to 4,096 B": 20}
    assert [(lag.group, lag.queue_id, lag.behind) for lag in found.lags] == [("shop", 0, 4), ("shop", 1, 0)]
    page = render(stats_report(found, "broker-a", START_MS))
    assert page.index("up to 128 B") < page.index("up to 256 B") < page.index("up to 4,096 B")
    for said in ("orders", "hot", "shop", "2023-11-14"):
        assert said in page
    only = stats(spark, [str(builder.root)], topics=["returns"])
    assert only.messages == 1
    assert only.lags == []
    archive(spark, [str(builder.root)], str(tmp_path / "lake"))
    again = stats(spark, [str(builder.root)], lake=str(tmp_path / "lake"))
    again.lags = found.lags
    assert again == found


def test_statistics_have_so_many_steps(spark: "SparkSession", builder: StoreBuilder) -> None:
    """Also if somebody's clock stood at 1970."""
    clock = builder.clock
    assert isinstance(clock, ManualClock)
    with builder.open() as store:
        for now in (1, START_MS, START_MS + 1):
            clock.set(now)
            store.append(Message("orders", b"1"))
    found = stats(spark, [str(builder.root)])
    assert 100 < len(found.volume) <= STEPS_MAX
    assert (found.volume[0], found.volume[-1], sum(found.volume)) == (1, 2, 3)


def test_statistics_of_nothing(spark: "SparkSession", builder: StoreBuilder) -> None:
    with builder.open() as store:
        assert store.topics() == {}
    found = stats(spark, [str(builder.root)])
    assert found.messages == 0
    page = render(stats_report(found, "empty", START_MS))
    assert "nothing to show" in page
    assert "to -" in page
    assert "1970" not in page


@pytest.mark.parametrize("text", ["", "{", '{"offsetTable": 3}', "{}"])
def test_consumer_offsets_that_cannot_be_read(builder: StoreBuilder, text: str) -> None:
    orders(builder, 3)
    place, survey = StorePlace(builder.root, "a"), Survey.open(builder.root)
    assert find_lags(place, survey) == []
    (builder.root / "config").mkdir(exist_ok=True)
    path = builder.root / "config" / "consumerOffset.json"
    path.write_text(text)
    with pytest.raises(StoreError, match=path.name):
        find_lags(place, survey)


def stored(root: Path, topic: str) -> list[Any]:
    with MessageStore.open(root, read_only=True) as store:
        return [message for message in store.scan() if message.topic == topic]


def test_a_window_goes_again(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    orders(builder)
    source, target = [str(builder.root)], tmp_path / "target"
    window = ReplayWindow("orders", START_MS + 10_000, START_MS + 30_000, "paid", "properties['n'] <> '12'")
    planned = replay(spark, source, window, target, to_topic="again", dry_run=True)
    assert (planned.found, planned.appended, planned.dry_run) == (4, 0, True)
    assert not target.exists()
    done = replay(spark, source, window, target, to_topic="again")
    assert (done.found, done.appended, done.skipped) == (4, 4, 0)
    messages = stored(target, "again")
    assert [message.properties["n"] for message in messages] == ["16", "20", "24", "28"]
    first, original = messages[0], stored(builder.root, "orders")[16]
    assert (first.body, first.tags, first.keys) == (original.body, original.tags, original.keys)
    assert first.properties[ORIGIN_TOPIC] == "orders"
    assert first.properties[ORIGIN_PLACE] == f"broker-a@{original.physical_offset}"
    assert first.properties[REPLAY_ID] == "replay"
    wider = ReplayWindow("orders", START_MS + 10_000, START_MS + 35_000, "paid")
    more = replay(spark, source, wider, target, to_topic="again")
    assert (more.found, more.skipped, more.appended) == (6, 4, 2)
    other = replay(spark, source, window, target, to_topic="again", replay_id="second")
    assert other.appended == 4


def test_only_what_consumers_see_goes_again(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    """Nothing that was prepared or rolled back, nothing of a topic's deleted life; and a broker without the topic."""
    with builder.open() as store:
        for topic in ("orders", "%DLQ%shop", "%RETRY%shop"):
            store.append(Message(topic, b"old", properties={"RETRY_TOPIC": "orders"}))
            store.delete_topic(topic)
            for sys_flag in (0x0, 0x4, 0xC):
                store.append(Message(topic, b"%d" % sys_flag, sys_flag=sys_flag, properties={"RETRY_TOPIC": "orders"}))
        store.append(Message("orders", b"later", delay_level=18))
    other = StoreBuilder(tmp_path / "broker-b", clock=ManualClock())
    with other.open() as store:
        store.append(Message("returns", b"0"))
    paths, target = [str(builder.root), str(other.root)], tmp_path / "target"
    assert replay(spark, paths, ReplayWindow("orders"), target, to_topic="again").appended == 1
    assert [message.body for message in stored(target, "again")] == [b"0"]
    assert replay(spark, paths, ReplayWindow("SCHEDULE_TOPIC_XXXX"), target, to_topic="parked").appended == 1
    assert len(dead_letters(spark, paths, "shop")) == 1
    assert resend(spark, paths, "shop", target)["orders"].appended == 1


def test_a_replay_keeps_its_rate(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    orders(builder, 8)
    at, pauses = 1000.0, list[float]()
    reported: list[tuple[int, int]] = []

    def sleep(seconds: float) -> None:
        nonlocal at
        at += seconds
        pauses.append(seconds)

    done = replay(
        spark,
        [str(builder.root)],
        ReplayWindow("orders"),
        tmp_path / "target",
        to_topic="again",
        rate=0.01,
        sleep=sleep,
        now=lambda: at,
        on_progress=lambda *numbers: reported.append(numbers),
    )
    assert done.appended == 8
    assert pauses == pytest.approx([100.0] * 7)
    assert reported == [(count, 8) for count in range(1, 9)]


@pytest.mark.parametrize(("rate", "batch"), [(0.5, 1), (10, 1), (100, 10), (2000, 200), (1e6, 256), (None, 256)])
def test_a_pace_has_no_bursts(rate: float | None, batch: int) -> None:
    """In no second more than the rate, and a tenth of it for the clock's sake; also after a second was lost."""
    at, sent = 0.0, list[tuple[float, int]]()

    def sleep(seconds: float) -> None:
        nonlocal at
        at += seconds

    pace = RateLimit(rate, sleep, lambda: at)
    assert pace.batch == batch
    for number in range(100):
        at += 1.0 if number == 50 else 0.0
        pace.wait(batch)
        sent.append((at, batch))
    for start, _ in sent if rate is not None and rate <= 2560 else ():
        count = sum(count for when, count in sent if start <= when < start + 0.999)
        assert count <= max(rate or 0, 1) + 2 * batch, start


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_a_pace_that_is_none(rate: float) -> None:
    with pytest.raises(OptionInvalid, match="a number above 0"):
        RateLimit(rate)


def test_a_replay_leaves_out_what_it_brought(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    """Back into its own topic, and on from there into another store; what a dry run says is what happens then."""
    orders(builder, 5)
    own, other = [str(builder.root)], tmp_path / "other"
    for skipped in (0, 5):
        planned = replay(spark, own, ReplayWindow("orders"), builder.root, to_topic="orders", dry_run=True)
        assert (planned.found, planned.skipped, planned.appended) == (5, skipped, 0)
        done = replay(spark, own, ReplayWindow("orders"), builder.root, to_topic="orders")
        assert (done.found, done.skipped, done.appended) == (5, skipped, 5 - skipped)
    assert len(stored(builder.root, "orders")) == 10
    further = replay(spark, own, ReplayWindow("orders"), builder.root, to_topic="orders", replay_id="second")
    assert (further.found, further.appended) == (10, 10)
    other.mkdir()
    assert replay(spark, own, ReplayWindow("orders"), other, to_topic="orders", dry_run=True).skipped == 0
    assert replay(spark, own, ReplayWindow("orders"), other, to_topic="orders").appended == 20
    (tmp_path / "file").write_text("no store")
    with pytest.raises(StoreError, match="file"):
        replay(spark, own, ReplayWindow("orders"), tmp_path / "file", to_topic="orders", dry_run=True)


@pytest.mark.parametrize(
    ("window", "more", "error"),
    [
        (ReplayWindow("order"), {}, TopicUnknown),
        (ReplayWindow("orders", where="nonsense("), {}, OptionInvalid),
        (ReplayWindow("orders", where="nothing = 1"), {}, OptionInvalid),
        (ReplayWindow("orders", where="cast(tags as int) = 1"), {}, OptionInvalid),
        (ReplayWindow("orders"), {"rate": 0}, OptionInvalid),
        (ReplayWindow("orders"), {"rate": float("nan")}, OptionInvalid),
        (ReplayWindow("orders"), {"to_topic": "o 2"}, OptionInvalid),
    ],
)
def test_a_replay_that_cannot_be(
    spark: "SparkSession",
    builder: StoreBuilder,
    tmp_path: Path,
    window: ReplayWindow,
    more: dict[str, Any],
    error: type[Exception],
) -> None:
    orders(builder, 3)
    with pytest.raises(error) as refused:
        replay(spark, [str(builder.root)], window, tmp_path / "target", **{"to_topic": "again", **more})
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "target").exists()


@pytest.fixture
def with_dead_letters(builder: StoreBuilder) -> Path:
    """Two orders and a return that group `shop` failed on, three times each; the return is still being retried."""
    with builder.open() as store:
        for number, topic in enumerate(["orders", "orders", "returns"]):
            origin = store.append(Message(topic, f"b{number}".encode(), keys=[f"k{number}"])).message_id
            properties = {"ORIGIN_MESSAGE_ID": origin, "RETRY_TOPIC": topic}
            for attempt in range(1, 4):
                store.append(
                    Message(
                        "%RETRY%shop",
                        f"b{number}".encode(),
                        keys=[f"k{number}"],
                        properties=properties,
                        reconsume_times=attempt,
                    )
                )
            if topic == "orders":
                store.append(
                    Message(
                        "%DLQ%shop",
                        f"b{number}".encode(),
                        keys=[f"k{number}"],
                        properties=properties,
                        reconsume_times=4,
                    )
                )
    return builder.root


def test_dead_letters(spark: "SparkSession", with_dead_letters: Path) -> None:
    first, second = dead_letters(spark, [str(with_dead_letters)], "shop")
    assert (first.topic, first.keys, first.attempts) == ("orders", "k0", 4)
    assert (second.topic, second.keys, second.attempts) == ("orders", "k1", 4)
    origin = stored(with_dead_letters, "orders")[0]
    assert first.origin_id == origin.message_id
    assert first.first_retry_ms == stored(with_dead_letters, "%RETRY%shop")[0].store_timestamp
    assert first.dead_ms == stored(with_dead_letters, "%DLQ%shop")[0].store_timestamp
    retries = stored(with_dead_letters, "%RETRY%shop")[:3]
    assert [(one.msg_id, one.attempt, one.stored_ms) for one in first.retries] == [
        (message.message_id, number, message.store_timestamp) for number, message in enumerate(retries, 1)
    ]
    assert (first.body, first.properties["ORIGIN_MESSAGE_ID"]) == (b"b0", origin.message_id)
    assert len(dead_letters(spark, [str(with_dead_letters)], "shop", where="keys = 'k1'")) == 1


def test_dead_letters_without_a_way_back(spark: "SparkSession", builder: StoreBuilder, tmp_path: Path) -> None:
    """One that names no topic, one that names its own, and one that names what can be none: said before any goes."""
    target = tmp_path / "target"
    with builder.open() as store:
        for origin in ("orders", None, "%DLQ%shop", "zo'rders"):
            properties = {"REASON": f"no {origin}"} | ({"RETRY_TOPIC": origin} if origin is not None else {})
            store.append(Message("%DLQ%shop", b"\xff", keys=[str(origin)], properties=properties))
    paths = [str(builder.root)]
    found = dead_letters(spark, paths, "shop")
    assert [letter.topic for letter in found] == ["orders", None, None, "zo'rders"]
    assert [letter.properties["REASON"] for letter in found][:2] == ["no orders", "no None"]
    assert (found[0].retries, found[0].record()["body"]) == ([], "/w==")
    with pytest.raises(OptionInvalid, match=r"zo'rders.*not allowed"):
        resend(spark, paths, "shop", target)
    assert not target.exists()
    done = resend(spark, paths, "shop", target, where="properties['RETRY_TOPIC'] is null or keys not like 'zo%'")
    assert {topic: one.appended for topic, one in done.items()} == {"orders": 1}
    assert len(stored(target, "orders")) == 1
    with MessageStore.open(target, read_only=True) as opened:
        assert list(opened.topics()) == ["orders"]


def test_dead_letters_go_back_once(spark: "SparkSession", with_dead_letters: Path, tmp_path: Path) -> None:
    ask: Callable[..., Any] = lambda **more: resend(  # noqa: E731
        spark, [str(with_dead_letters)], "shop", tmp_path / "target", **more
    )
    assert ask(dry_run=True)["orders"].found == 2
    assert ask(where="keys = 'k0'")["orders"].appended == 1
    planned = ask(dry_run=True)["orders"]
    assert (planned.found, planned.skipped, planned.appended) == (2, 1, 0)
    assert ask()["orders"].appended == 1
    assert ask()["orders"].skipped == 2
    assert sorted(message.body for message in stored(tmp_path / "target", "orders")) == [b"b0", b"b1"]


def test_a_group_without_dead_letters(spark: "SparkSession", with_dead_letters: Path) -> None:
    with pytest.raises(OptionInvalid, match="groups with dead letters: shop"):
        dead_letters(spark, [str(with_dead_letters)], "shp")


@pytest.mark.parametrize("where", ["nonsense(", "nothing = 1", "cast(keys as int) = 1"])
def test_a_condition_on_dead_letters_that_is_none(spark: "SparkSession", with_dead_letters: Path, where: str) -> None:
    with pytest.raises(OptionInvalid, match="option where") as refused:
        dead_letters(spark, [str(with_dead_letters)], "shop", where=where)
    assert "\n" not in str(refused.value)
