"""The demo: its stream, its check, and the whole of it as a user runs it."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from embermq import MessageStore
from embermq.cli.app import run
from embermq.cli.demo.check import Findings, check
from embermq.cli.demo.children import BrokerChild
from embermq.cli.demo.orders import TOPICS, OrderEvent, event_number, order_events, part_of
from embermq.cli.demo.settings import demo_settings
from embermq.cli.demo.traffic import Acknowledged, Consumed
from embermq.errors import EmberError
from tests.support.waiting import wait_until


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


class Sent:
    """Events in a store, and what producers and consumers would have said of them."""

    def __init__(self, root: Path, sent: Sequence[OrderEvent]) -> None:
        self.root, self.acknowledged, self.consumed = root, dict[int, Acknowledged](), list[Consumed]()
        with MessageStore.open(root, demo_settings()) as store:
            receipts = store.append_many([event.message() for event in sent])
        for event, receipt in zip(sent, receipts, strict=True):
            self.acknowledged[event.number] = Acknowledged(receipt.message_id, receipt.queue_offset)
            self.consumed.append(Consumed(event.number, event.topic, event.queue_id, receipt.queue_offset))

    def check(self, events: Sequence[OrderEvent]) -> Findings:
        with MessageStore.open(self.root, demo_settings(), read_only=True) as store:
            return check(store, events, self.acknowledged, self.consumed)


def test_what_was_sent_and_consumed_in_order_is_good_and_twice_is_allowed(tmp_path: Path) -> None:
    events = order_events(200)
    sent = Sent(tmp_path / "store", [*events[:100], *events[90:100], *events[100:]])
    found = sent.check(events)
    assert found.good
    assert (found.acknowledged, found.stored, found.consumed) == (200, 200, 200)
    assert sorted(found.again) == list(range(90, 100))
    sent.consumed.append(sent.consumed[-1])
    assert sent.check(events).consumed_again == 1


def test_the_check_finds_what_is_wrong(tmp_path: Path) -> None:
    events = order_events(200)
    late = events[20]
    sent = Sent(tmp_path / "store", [*events[:20], *events[21:100], late, events[100]._replace(body=b"other")])
    sent.acknowledged[150] = Acknowledged("0" * 32, 0)
    sent.acknowledged[5] = Acknowledged("0" * 32, 0)
    sent.consumed = [one for one in sent.consumed if one.number != 7]
    found = sent.check(events)
    assert not found.good
    assert found.missing == [100, 150]
    assert found.foreign == 1
    assert found.altered == [5]
    assert found.out_of_order == [20]
    assert found.unconsumed == [7]
    assert found.consumed_out_of_order == 0


def test_the_check_sees_consumers_that_go_back(tmp_path: Path) -> None:
    events = order_events(50)
    sent = Sent(tmp_path / "store", events)
    first, second = [n for n, one in enumerate(sent.consumed) if (one.topic, one.queue_id) == ("orders", 0)][:2]
    sent.consumed[first], sent.consumed[second] = sent.consumed[second], sent.consumed[first]
    assert sent.check(events).consumed_out_of_order == 1


def test_all_steps_of_an_order_are_sent_by_one_producer() -> None:
    parts: dict[str, set[int]] = {}
    for event in order_events(1000):
        parts.setdefault(event.order_id, set()).add(part_of(event, 2))
    assert {len(one) for one in parts.values()} == {1}
    assert Counter(part for one in parts.values() for part in one).keys() == {0, 1}


def test_a_process_that_ends_by_itself_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a directory")
    broker = BrokerChild(in_the_way, tmp_path / "log")
    try:
        with pytest.raises(EmberError, match=r"ended by itself with code 2: embermq: .*a file, where a store is"):
            wait_until(broker.is_ready)
    finally:
        broker.kill()


@pytest.mark.slow(seconds=15)
def test_the_whole_demo(tmp_path: Path) -> None:
    root = tmp_path / "kept"
    command = [sys.executable, "-m", "embermq.cli", "demo", "--messages", "600", "--no-spark", "--output", "json"]
    done = subprocess.run([*command, "--fast", "--dir", root, "--keep"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["demo"]["good"] is True
    assert shown["kill"]["acknowledged_messages"] >= 240
    assert shown["kill"]["recovery"]["clean"] is False
    assert shown["kill"]["recovery"]["records"] >= 240
    found = {row["what"]: row["messages"] for row in shown["check"]}
    assert (found["acknowledged"], found["consumed"], found["missing in the store"]) == (600, 600, 0)
    events = [line["event"] for line in shown["timeline"] if line["event"]]
    assert [event.split()[0] for event in events] == ["SIGKILL", "the", "everything"]
    assert shown["timeline"][-1]["lag"] == 0
    assert list(dict.fromkeys(row["tags"] for row in shown["order"])) == ["created", "paid", "shipped"]
    assert len(shown["queries"]) == 6
    assert "consumed/s" in done.stderr
    with MessageStore.open(root / "store", demo_settings(), read_only=True) as store:
        assert store.recovery.clean


@pytest.mark.slow(seconds=10)
def test_the_demo_as_text_leaves_nothing_behind(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["demo", "--messages", "200", "--fast", "--no-spark", "--dir", str(tmp_path / "gone")]) == 0
    shown = capsys.readouterr().out
    assert "Every acknowledged message is there" in shown
    assert "SIGKILL to the broker" in shown
    assert "\x1b" not in shown
    assert not (tmp_path / "gone").exists()


def test_the_demo_does_not_touch_a_directory_in_use(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    assert run(["demo", "--dir", str(tmp_path)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert (tmp_path / "precious").read_text() == "mine"
