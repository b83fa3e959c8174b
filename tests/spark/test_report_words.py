"""What pages say: legends, lag by group with system groups apart, findings that repeat as one row. No Spark."""

from pathlib import Path

from embermq.errors import StoreLocked
from embermq.model.names import is_system_group
from embermq.spark.jobs import Stats, stats_report
from embermq.spark.jobs.audit_page import _aggregated
from embermq.spark.jobs.lag import Lag
from embermq.spark.jobs.stats import OTHER_TOPICS, TopicStats
from embermq.spark.report import Percentiles, ReportPage, Section, Spread, StackedSeries, Table, render


def page(*figures: Percentiles | StackedSeries) -> str:
    return render(ReportPage("T", "s", 0, [], [Section("S", figures)]))


def test_a_delay_chart_has_a_legend() -> None:
    text = page(Percentiles("delay", [Spread("orders", 1, 2, 3, 400)]))
    for said in ("p50 (median)", "p50 to p99", "p90, and maximum", "logarithmic scale", "max 400 ms"):
        assert said in text


def test_parts_are_stacked_and_named() -> None:
    parts = [("orders", [1, 3]), ("returns <b>", [1, 0])]
    text = page(StackedSeries("volume", 0, 60_000, parts))
    assert text.count("<rect") == 3
    assert "1970-01-01 00:00, returns &lt;b&gt;: 1" in text
    assert '<i class="key p0"></i>orders 4' in text
    assert 'y="106.67" width="500.00" height="53.33"' in text  # 1 of 3, at the bottom.
    assert 'y="53.33" width="500.00" height="53.33"' in text  # The other one above it.
    assert "nothing to show" in page(StackedSeries("volume", 0, 1000, [("a", [0, 0])]))
    assert "nothing to show" in page(StackedSeries("volume", 0, 1000, []))


def test_lag_by_group() -> None:
    lags = [Lag("a", "shop", "orders", queue, 5, 10 + queue) for queue in range(2)]
    lags += [Lag("a", "mail", "orders", 0, 9, 10), Lag("a", "CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, 900)]
    topics = [TopicStats("orders", 3, 30, 1, 1, 2, 3, 4)]
    found = Stats(messages=3, bytes=30, end_ms=1000, topics=topics, volume=[3], volume_bytes=[30], lags=lags)
    found.volume_by_topic = {"orders": [2], OTHER_TOPICS: [1]}
    made = stats_report(found, "store", 0)
    facts = {fact.label: fact for fact in made.facts}
    assert facts["Consumer lag"].value == "12"
    assert facts["Consumer lag"].note == "messages, 2 consumer groups"
    sections = {section.title: section for section in made.sections}
    [table] = sections["System groups"].figures
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["CID_RMQ_SYS_TRANS"]
    shown = render(made)
    assert "Messages over time by topic" in shown
    assert "Messages behind by consumer group" in shown
    found.lags = lags[:3]
    assert "System groups" not in render(stats_report(found, "store", 0))
    assert is_system_group("TOOLS_CONSUMER")
    assert not is_system_group("shop")


def test_findings_that_repeat_are_one_row() -> None:
    rows: list[list[object]] = [
        ["fault", "queue", "consumequeue/orders/0/0", "100", 1, "entry 7 has no record at 1,234", "rebuild"],
        ["fault", "queue", "consumequeue/orders/1/0", "300", 2, "entry 9 has no record at 5,678", "rebuild"],
        ["fault", "log", "commitlog/0", "300", 1, "wrong checksum", "salvage"],
        ["note", "queue", "consumequeue/orders/1/0", "300", 4, "entry 9 has no record at 5,678", "rebuild"],
    ]
    found = _aggregated(rows)
    assert [(row[0], row[1], row[3], row[4]) for row in found] == [
        ("fault", "queue", "100", 3),
        ("fault", "log", "300", 1),
        ("note", "queue", "300", 4),
    ]
    assert rows[0][4] == 1  # What was given stays as it is.


def test_a_locked_store_is_told_in_a_short_line() -> None:
    options = "-Xmx8g -XX:+UseG1GC " * 30
    java = f"/usr/lib/jvm/bin/java -server {options} org.apache.rocketmq.broker.BrokerStartup -c b.conf"
    for command, said in [
        (java, "java BrokerStartup"),
        ("/usr/bin/python3 -m embermq.cli broker --store /data", "python3 -m embermq.cli"),
        ("/usr/bin/python3 /opt/app/service.py --port 1", "python3 service.py"),
        ("/opt/venv/bin/embermq broker", "embermq"),
    ]:
        told = str(StoreLocked(Path("/data/store"), 17, command))
        assert f"by process 17 ({said});" in told
        assert len(told) < 160
    assert "by process 17;" in str(StoreLocked(Path("/data/store"), 17, ""))
