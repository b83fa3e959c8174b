"""`embermq store clean` and `embermq store drop`."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.cli.store import clean as clean_verb
from embermq.store.services.retention import OldSegment
from embermq.testing.clock import ManualClock
from tests.support import golden
from tests.unit.cli.store.conftest import Command, Ran

NOW = ("--set", "fileReservedTime=0")
ROOMY = StoreSettings(
    segment_bytes=1 << 16,
    queue_file_bytes=400,
    index_slots_max=20,
    index_entries_max=40,
    disk_full_percent=100,
    disk_clean_percent=100,
)


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
    reported = command("clean", long, "--dry-run", *NOW, "--output", "json").document
    document = command("clean", long, *NOW, "--output", "json").document
    assert document["files"] == reported["files"]
    assert document["cleaned"]["segments"] == reported["cleaned"]["segments"]
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


def test_a_dry_run_knows_of_delayed_messages(command: Command, tmp_path: Path) -> None:
    root = tmp_path / "waits"
    with MessageStore.open(root, ROOMY) as store:
        store.append(Message("t", b"first"))
        store.append(Message("later", b"x", delay_level=18))
        for _ in range(100):
            store.append(Message("t", bytes(1500)))
    words = ("clean", root, "--all-before", "2099-01-01", "--output", "json")
    reported = command(*words, "--dry-run").document
    assert (reported["files"], reported["cleaned"]["segments"]) == ([], 0)
    assert reported["cleaned"]["held_by"] == "a delayed message that is not delivered yet"
    cleaned = command(*words).document["cleaned"]
    assert (cleaned["segments"], cleaned["held_by"]) == (0, reported["cleaned"]["held_by"])
    assert "needed by  a delayed message" in command("clean", root, *NOW, "--dry-run").out
    never = ("--set", "emberDelayedDelivery=false")  # Then they hold nothing, in neither of the two.
    reported = command(*words, "--dry-run", *never).document
    assert reported["cleaned"]["segments"] == len(segments(root)) - 1
    assert command(*words, *never).document["files"] == reported["files"]


def test_a_dry_run_knows_how_far_delayed_messages_are_delivered(command: Command, tmp_path: Path) -> None:
    root, clock = tmp_path / "waits", ManualClock()
    with MessageStore.open(root, ROOMY, clock=clock) as store:
        store.append(Message("later", b"x", delay_level=1))
        clock.advance(s=1)
        while not store.message_count("later", 0):
            assert store.wait_for_dispatch()
        for _ in range(100):
            store.append(Message("t", bytes(1500)))
        store.append(Message("later", b"y", delay_level=1))  # In the last file, which stays anyway.
    words = ("clean", root, *NOW, "--output", "json")
    reported = command(*words, "--dry-run").document
    assert reported["cleaned"]["segments"] == len(segments(root)) - 1
    assert command(*words).document["files"] == reported["files"]


def test_a_dry_run_reads_every_message_of_a_file(command: Command, tmp_path: Path) -> None:
    """Three to a file; in the first one the clock was two hours ahead for a message."""
    root, clock = tmp_path / "back", ManualClock()
    start_ms = clock.now_ms()
    with MessageStore.open(root, ROOMY.replace(segment_bytes=1600), clock=clock) as store:
        for number in range(9):
            clock.set(start_ms + (7_200_000 if number == 2 else 1000 * number))
            store.append(Message("t", bytes(400)))
    for after_s, count in ((3600, 0), (7200, 0), (7201, 2)):
        words = ("clean", root, "--all-before", str(start_ms + 1000 * after_s), "--output", "json")
        assert command(*words, "--dry-run").document["cleaned"]["segments"] == count
        assert command(*words).document["cleaned"]["segments"] == count


@pytest.mark.parametrize("words", [("clean",), ("clean", *NOW), ("drop", "DelayTopic")])
def test_nothing_is_delivered_by_the_way(
    command: Command, restored: Callable[[str], Path], words: tuple[str, ...]
) -> None:
    """Messages of the golden store were due long ago."""
    root = restored("delay")
    before, progress = command("dump", root).out, (root / "config" / "delayOffset.json").read_bytes()
    assert command(words[0], root, *words[1:]).code == 0
    assert command("dump", root).out == before
    assert (root / "config" / "delayOffset.json").read_bytes() == progress


def test_nothing_that_needs_a_file_is_one_word(command: Command, long: Path) -> None:
    assert "the next one is needed by  nothing\n" in command("clean", long).out
    assert "the next one is needed by  nothing\n" in command("clean", long, "--dry-run").out


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
    command("clean", long, "--all-before", "1700000000").assert_one_line(2, "--all-before: ", "looks like seconds")
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
