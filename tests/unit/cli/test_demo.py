"""The demo: its stream, its check, and the whole of it as a user runs it."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from embermq import MessageStore
from embermq.cli.app import run
from embermq.cli.killed_writer import Acknowledged, KilledWriter
from embermq.cli.order_check import check
from embermq.cli.order_writer import demo_settings
from embermq.cli.orders import TOPICS, event_number, order_events
from embermq.errors import EmberError


def test_the_stream_is_the_same_everywhere_and_has_whole_orders() -> None:
    events = order_events(2000)
    assert order_events(2000) == events
    assert order_events(500) == events[:500]
    assert [event_number(event.body) for event in events] == list(range(2000))
    assert {event.topic for event in events} == set(TOPICS)
    steps: dict[str, list[str]] = {}
    for event in events:
        steps.setdefault(event.order_id, []).append(event.step)
    lives = Counter(tuple(life) for life in steps.values())
    assert lives["created", "paid", "shipped"] > 100
    assert lives["created", "cancelled"] > 10
    assert set(lives) <= {
        ("created",),
        ("created", "paid"),
        ("created", "paid", "shipped"),
        ("created", "cancelled"),
    }


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"event": "x"}', b"\xff"])
def test_a_foreign_body_is_no_event(body: bytes) -> None:
    with pytest.raises(ValueError):
        event_number(body)


@pytest.mark.slow(2)
def test_the_check_finds_what_is_wrong(tmp_path: Path) -> None:
    events = order_events(200)
    with MessageStore.open(tmp_path / "store", demo_settings()) as store:
        sent = [*events[:50], events[10], *events[51:60], events[100], *events[61:70]]
        receipts = store.append_many([event.message() for event in sent])
        promised = {
            event.number: Acknowledged(receipt.message_id, receipt.queue_offset)
            for event, receipt in zip(sent, receipts, strict=True)
        }
        promised[80] = Acknowledged("0" * 32, 0)
        promised[5] = Acknowledged("0" * 32, 0)
        findings = check(store, events, promised)
    assert not findings.good
    assert findings.repeated == [10]
    assert {50, 60, 80} <= set(findings.missing)
    assert 5 in findings.altered
    assert 10 in findings.out_of_order or 10 in findings.altered


def test_a_writer_that_ends_by_itself_is_an_error(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a directory")
    with KilledWriter(in_the_way, 10) as writer, pytest.raises(EmberError, match="ended by itself"):
        writer.listen(5, 60, lambda _done: None)


@pytest.mark.slow
def test_the_whole_demo(tmp_path: Path) -> None:
    root = tmp_path / "kept"
    command = [sys.executable, "-m", "embermq.cli", "demo", "--messages", "3000", "--no-spark", "--output", "json"]
    done = subprocess.run([*command, "--dir", root, "--keep"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["demo"]["good"] is True
    assert shown["recovery"]["clean"] is False
    assert shown["writing"]["acknowledged_messages"] >= 1200
    assert sum(row["messages"] for row in shown["queues"]) == 3000
    assert [row["tags"] for row in shown["order"]] == ["created", "paid", "shipped"]
    assert all(row["seconds"] < 1 for row in shown["queries"])
    with MessageStore.open(root / "store", demo_settings(), read_only=True) as store:
        assert store.recovery.clean


def test_the_demo_as_text_leaves_nothing_behind(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["demo", "--messages", "500", "--no-spark", "--dir", str(tmp_path / "gone")]) == 0
    shown = capsys.readouterr().out
    assert "Every acknowledged message is there" in shown
    assert "\x1b" not in shown
    assert not (tmp_path / "gone").exists()


def test_the_demo_does_not_touch_a_directory_in_use(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    assert run(["demo", "--dir", str(tmp_path)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert (tmp_path / "precious").read_text() == "mine"
