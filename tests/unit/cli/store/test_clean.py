"""`embermq store clean` and `embermq store drop`."""

import time
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.cli.store import clean as clean_verb
from embermq.store.retention import OldSegment
from tests.support import golden
from tests.unit.cli.store.conftest import Command, Ran

NOW = ("--set", "fileReservedTime=0")


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """A store of some ten log files: 200 messages in each of two queues."""
    root = tmp_path / "long"
    settings = StoreSettings(segment_bytes=1 << 16, queue_file_bytes=400, index_slots_max=20, index_entries_max=40)
    with MessageStore.open(root, settings) as store:
        for n in range(400):
            store.append(Message("orders", b"%d|" % n + bytes(1500), keys=[f"k{n}"], queue_id=n % 2))
    return root


def segments(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "commitlog").iterdir())


def max_offset(command: Command, root: Path, topic: str) -> int:
    document = command("fetch", root, topic, "0", "--output", "json").document
    return int(document["queue"]["max_offset"])


def assert_usage(ran: Ran, part: str) -> None:
    assert ran.code == 2
    assert part in ran.err


def test_a_dry_run_tells_and_touches_nothing(command: Command, long: Path) -> None:
    before = golden.tree_state(long)
    ran = command("clean", long, "--dry-run", *NOW)
    assert ran.code == 0
    assert "would be deleted" in ran.out
    document = command("clean", long, "--dry-run", *NOW, "--output", "json").document
    assert document["cleaned"]["segments"] == len(document["files"]) == len(segments(long)) - 1
    assert document["cleaned"]["log_bytes"] == sum(one["size_bytes"] for one in document["files"])
    assert command("clean", long, "--dry-run", "--output", "json").document["files"] == []  # Three days are not over.
    assert golden.tree_state(long) == before


def test_what_a_dry_run_told_goes_and_the_rest_stays(command: Command, long: Path) -> None:
    told = command("clean", long, "--dry-run", *NOW, "--output", "json").document
    document = command("clean", long, *NOW, "--output", "json").document
    assert document["files"] == told["files"]
    assert document["cleaned"]["segments"] == told["cleaned"]["segments"]
    assert document["cleaned"]["queue_files"] > 0
    assert document["cleaned"]["index_files"] > 0
    assert document["cleaned"]["held_by"] is None
    assert len(segments(long)) == 1
    assert command("verify", long).code == 0
    assert command("append", long, "orders", "next").code == 0
    assert max_offset(command, long, "orders") == 201
    assert command("clean", long, *NOW, "--output", "json").document["cleaned"]["segments"] == 0


def test_by_the_time_of_messages(command: Command, long: Path) -> None:
    with MessageStore.open(long, read_only=True) as reader:
        first = reader.earliest_time()
    assert command("clean", long, "--all-before", str(first), "--output", "json").document["files"] == []
    later = str(time.time_ns() // 1_000_000 + 1000)
    ran = command("clean", long, "--all-before", later)
    assert ran.code == 0
    assert len(segments(long)) == 1


def test_nothing_goes_because_the_disk_is_full(command: Command, long: Path) -> None:
    """Only what was asked for, whatever the marks are."""
    marks = [f"--set={name}=1" for name in ("diskMaxUsedSpaceRatio", "emberDiskCleanPercent", "emberDiskFullPercent")]
    ran = command("clean", long, *marks, "--output", "json")
    if ran.code == 0:  # Marks may be refused as nonsense.
        assert ran.document["cleaned"]["segments"] == 0
    assert len(segments(long)) > 5


def test_a_delayed_message_holds_its_file(command: Command, long: Path) -> None:
    assert command("append", long, "later", "x", "--delay-level", "18").code == 0
    settings = StoreSettings(segment_bytes=1 << 16, queue_file_bytes=400, index_slots_max=20, index_entries_max=40)
    with MessageStore.open(long, settings) as store:
        for _ in range(100):
            store.append(Message("orders", bytes(1500)))
    document = command("clean", long, *NOW, "--output", "json").document
    assert "delayed" in document["cleaned"]["held_by"]
    assert len(segments(long)) > 1


def test_the_archive_is_asked(command: Command, long: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[OldSegment] = []

    def guard(old: OldSegment) -> bool:
        asked.append(old)
        return old.start < 3 << 16

    monkeypatch.setattr(clean_verb, "_archive_guard", lambda lake, broker: guard)
    assert_usage(command("clean", long, "--archived-in", "lake"), "go together")
    words = ("clean", long, *NOW, "--archived-in", "lake", "--broker", "b", "--output", "json")
    assert len(command(*words, "--dry-run").document["files"]) == 3
    document = command(*words).document
    assert (document["cleaned"]["segments"], document["cleaned"]["held_by"]) == (3, "the archive guard")
    assert asked


def test_bad_input(command: Command, long: Path, tmp_path: Path) -> None:
    command("clean", tmp_path / "nothing").assert_one_line(2, "no such directory")
    assert not (tmp_path / "nothing").exists()
    assert_usage(command("clean", long, "--all-before", "1700000000"), "looks like seconds")
    assert_usage(command("clean", long, "--expired", "--all-before", "2024-01-31"), "either")
    command("drop", long, "never").assert_one_line(1, "never", "did you mean orders")
    command("drop", long, "SCHEDULE_TOPIC_XXXX").assert_one_line(2, "belongs to the store")
    settings = StoreSettings(segment_bytes=1 << 16, queue_file_bytes=400, index_slots_max=20, index_entries_max=40)
    with MessageStore.open(long, settings):
        command("clean", long).assert_one_line(2, "delete_expired()")
        command("drop", long, "orders").assert_one_line(2, "delete_topic('orders')")
        assert command("clean", long, "--dry-run", *NOW).code == 0


def test_a_topic_is_dropped(command: Command, long: Path) -> None:
    assert command("append", long, "other", "stays").code == 0
    before = golden.tree_state(long)
    document = command("drop", long, "orders", "--dry-run", "--output", "json").document
    assert (document["dropped"]["queues"], document["dropped"]["messages"]) == (2, 400)
    assert golden.tree_state(long) == before
    assert command("drop", long, "orders").code == 0
    assert not (long / "consumequeue" / "orders").exists()
    ran = command("append", long, "orders", "new", "--output", "json")
    assert ran.document["receipts"][0]["queue_offset"] == 0
    assert max_offset(command, long, "other") == 1
