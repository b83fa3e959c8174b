"""A stream's progress as a consumer group's: written on commit only, beside what others have there, never torn."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embermq import Message
from embermq.errors import StorePathInvalid
from embermq.files import RealFiles
from embermq.format.config_json import format_config, parse_config
from embermq.spark.streaming.progress import NAME, GroupProgress
from embermq.testing.builder import StoreBuilder
from embermq.testing.faulty_files import FaultyFiles
from tests.crash import numbered
from tests.spark.stream_drive import Drive
from tests.support import golden

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    builder = StoreBuilder(tmp_path / "store", **numbered.TINY)
    with builder.open() as store:
        store.append_many([Message("t", b"%d" % n, queue_id=n % 2) for n in range(20)])
        store.append_many([Message("u", b"%d" % n) for n in range(5)])
    return builder


def file_of(root: Path) -> Path:
    return root / "config" / NAME


def table_of(root: Path) -> dict[str, dict[int, int]]:
    table: dict[str, dict[int, int]] = parse_config(file_of(root).read_text())["offsetTable"]
    return table


@pytest.fixture
def broker() -> Iterator[Callable[[Path], subprocess.Popen[bytes]]]:
    """`broker(root)`: a process that is not ours has the store open."""
    running: list[subprocess.Popen[bytes]] = []

    def start(root: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", HOLD, str(root / "lock")]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return process

    yield start
    for process in running:
        process.communicate()


# -- with a stream -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"topic": "t,u"}])
def test_progress_moves_on_commit_and_not_before(builder: StoreBuilder, options: dict[str, str]) -> None:
    drive = Drive(builder.root, startingOffsets="earliest", groupId="spark", maxOffsetsPerTrigger=8, **options)
    seen: dict[tuple[str, int], int] = {}
    assert not file_of(builder.root).exists()
    while True:
        before = file_of(builder.root).read_text() if file_of(builder.root).exists() else ""
        end = drive.plan()
        if end == drive.offset:
            break
        for topic, queue_id, queue_offset, _ in drive.read(end):
            seen[topic, queue_id] = max(seen.get((topic, queue_id), 0), queue_offset + 1)
        assert (file_of(builder.root).read_text() if file_of(builder.root).exists() else "") == before
        drive.commit(end)
        table = table_of(builder.root)
        for (topic, queue_id), queue_offset in seen.items():
            assert table[f"{topic}@spark"][queue_id] == queue_offset
    assert table_of(builder.root) == {"t@spark": {0: 10, 1: 10}, "u@spark": {0: 5}}


def test_a_restart_does_not_read_it(builder: StoreBuilder) -> None:
    """The checkpoint counts; the file is for people, and says again what the checkpoint does."""
    drive = Drive(builder.root, startingOffsets="earliest", groupId="spark", topic="t")
    drive.run()
    file_of(builder.root).write_text(format_config({"offsetTable": {"t@spark": {0: 1, 1: 1}}}))
    drive.restart()
    assert drive.step() == 0
    assert table_of(builder.root)["t@spark"] == {0: 10, 1: 10}


@pytest.mark.parametrize("options", [{}, {"topic": "t,u"}])
def test_a_question_for_what_is_next_says_what_is_done(builder: StoreBuilder, options: dict[str, str]) -> None:
    """Spark does not commit the last batch to its source, but it asks for the one after it."""
    drive = Drive(builder.root, startingOffsets="earliest", groupId="spark", maxOffsetsPerTrigger=15, **options)
    first = drive.plan()
    assert drive.plan() == first
    drive.read(first)
    assert not file_of(builder.root).exists(), "planned and read is not yet done"
    drive.restart()
    drive.read(first)
    assert not file_of(builder.root).exists(), "nor is it when a restart reads it again"
    drive.offset = first  # Spark has written it down, and says nothing.
    last = drive.plan()
    done = table_of(builder.root)
    assert 15 <= sum(sum(queues.values()) for queues in done.values()) < 25
    drive.read(last)
    assert table_of(builder.root) == done
    drive.offset = last
    assert drive.plan() == last
    assert table_of(builder.root) == {"t@spark": {0: 10, 1: 10}, "u@spark": {0: 5}}


@pytest.mark.parametrize("options", [{}, {"topic": "t,u"}])
def test_a_stream_that_has_only_begun_has_no_progress(builder: StoreBuilder, options: dict[str, str]) -> None:
    drive = Drive(builder.root, groupId="spark", **options)
    for _ in range(3):
        assert drive.plan() == drive.offset
    assert not file_of(builder.root).exists()


def test_looking_again_and_again_writes_once(builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    drive = Drive(builder.root, startingOffsets="earliest", groupId="spark")
    drive.offset = drive.plan()
    written: list[object] = []
    monkeypatch.setattr(GroupProgress, "write", lambda self, offsets: written.append(offsets))
    for _ in range(5):
        assert drive.plan() == drive.offset
    assert len(written) == 1


@pytest.mark.parametrize("options", [{}, {"topic": "t,u"}])
def test_progress_in_another_store_is_not_shown(builder: StoreBuilder, tmp_path: Path, options: dict[str, str]) -> None:
    drive = Drive(builder.root, startingOffsets="earliest", groupId="spark", failOnDataLoss="false", **options)
    drive.run()
    builder.root.rename(tmp_path / "before")
    with builder.open() as store:
        store.append_many([Message(topic, b"new", queue_id=n) for topic, n in (("t", 0), ("t", 1), ("u", 0))])
    drive.restart()
    end = drive.plan()
    assert not file_of(builder.root).exists()
    assert len(drive.read(end)) == 3
    drive.commit(end)
    assert table_of(builder.root) == {"t@spark": {0: 1, 1: 1}, "u@spark": {0: 1}}


def test_our_own_store_is_written_while_it_runs(builder: StoreBuilder) -> None:
    """A store of ours does not keep consumer offsets: nobody is disturbed."""
    with builder.open() as store:
        drive = Drive(builder.root, startingOffsets="earliest", groupId="spark", topic="u")
        drive.run()
        assert table_of(builder.root) == {"u@spark": {0: 5}}
        store.append(Message("u", b"more"))
        drive.run()
        assert table_of(builder.root) == {"u@spark": {0: 6}}


@pytest.mark.parametrize("has_page", [True, False])
def test_a_broker_owns_its_file_while_it_runs(
    has_page: bool,
    builder: StoreBuilder,
    broker: Callable[[Path], subprocess.Popen[bytes]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    drive = Drive(builder.root, startingOffsets="earliest", groupId="spark", maxOffsetsPerTrigger=4)
    if not has_page:
        (builder.root / "embermq.state").unlink()
    running = broker(builder.root)
    with caplog.at_level(logging.WARNING):
        drive.step()
        drive.step()
    assert not file_of(builder.root).exists()
    assert caplog.text.count("belongs to the broker that is running") == 1
    running.communicate()
    drive.step()
    written = sum(sum(queues.values()) for queues in table_of(builder.root).values())
    assert written == len(drive.rows)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission_is_said_at_once(builder: StoreBuilder) -> None:
    (builder.root / "config").mkdir(exist_ok=True)
    (builder.root / "config").chmod(0o500)
    with pytest.raises(StorePathInvalid):
        Drive(builder.root, groupId="spark").begin()


# -- the file ------------------------------------------------------------------------------------------------


def test_others_keep_their_entries(builder: StoreBuilder) -> None:
    """As RocketMQ writes it, 5.x fields included; quoted and bare numbers."""
    file_of(builder.root).parent.mkdir(exist_ok=True)
    file_of(builder.root).write_text(
        '{\n\t"dataVersion":{"counter":3},\n\t"offsetTable":{\n\t\t"t@other":{0:7,1:2\n\t\t},\n'
        '\t\t"t@spark":{"0":1,9:4\n\t\t}\n\t}\n}'
    )
    before = file_of(builder.root).read_text()
    assert GroupProgress(builder.root, "spark").write({("t", 0): 5, ("t", 1): 6})
    value = parse_config(file_of(builder.root).read_text())
    assert value["dataVersion"] == {"counter": 3}
    assert value["offsetTable"] == {"t@other": {0: 7, 1: 2}, "t@spark": {0: 5, 1: 6, 9: 4}}
    assert file_of(builder.root).with_name(NAME + ".bak").read_text() == before
    assert not list(file_of(builder.root).parent.glob("*.tmp"))


def test_the_text_is_rocketmqs(builder: StoreBuilder) -> None:
    GroupProgress(builder.root, "g").write({("t", 1): 6, ("t", 0): 5, ("u", 0): 1})
    text = file_of(builder.root).read_text()
    assert text == '{\n\t"offsetTable":{\n\t\t"t@g":{0:5,1:6\n\t\t},\n\t\t"u@g":{0:1\n\t\t}\n\t}\n}'


@pytest.mark.parametrize("text", ["{", "[1]", '{"offsetTable": 3}', '{"offsetTable": {"t@g": {"x": 1}}}'])
def test_a_file_that_cannot_be_read_is_left_alone(
    builder: StoreBuilder, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    file_of(builder.root).parent.mkdir(exist_ok=True)
    file_of(builder.root).write_text(text)
    with caplog.at_level(logging.WARNING):
        assert not GroupProgress(builder.root, "g").write({("t", 0): 1})
    assert file_of(builder.root).read_text() == text
    assert "left alone" in caplog.text


def test_nothing_is_written_twice(builder: StoreBuilder) -> None:
    progress = GroupProgress(builder.root, "g")
    assert progress.write({("t", 0): 1})
    before = file_of(builder.root).stat()
    assert progress.write({("t", 0): 1})
    assert GroupProgress(builder.root, "g").write({("t", 0): 1})
    assert file_of(builder.root).stat().st_mtime_ns == before.st_mtime_ns


def test_a_disk_that_fails_does_not_end_the_stream(builder: StoreBuilder, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever call fails: the old file or the new one is there, and the next commit writes it."""
    (builder.root / "config").mkdir(exist_ok=True)
    assert GroupProgress(builder.root, "g").write({("t", 0): 1})
    for kind in ("create", "pwrite", "sync", "rename", "sync_directory"):
        for nth in (1, 2):
            files = FaultyFiles(RealFiles())
            files.fail(kind, nth=nth)
            progress = GroupProgress(builder.root, "g", files)
            with caplog.at_level(logging.WARNING):
                done = progress.write({("t", 0): 2})
            assert table_of(builder.root)["t@g"] in ({0: 1}, {0: 2})
            assert done is ("cannot be written" not in caplog.text)
            caplog.clear()
            assert progress.write({("t", 0): 3})
            assert table_of(builder.root)["t@g"] == {0: 3}
            assert GroupProgress(builder.root, "g").write({("t", 0): 1})


def test_two_streams_write_at_once(builder: StoreBuilder) -> None:
    """Two groups, two threads: neither loses an entry of the other."""

    def write(group: str) -> None:
        progress = GroupProgress(builder.root, group)
        for n in range(30):
            assert progress.write({("t", 0): n})

    writers = [threading.Thread(target=write, args=(f"g{n}",)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert table_of(builder.root) == {f"t@g{n}": {0: 29} for n in range(3)}


def test_a_group_is_registered_in_a_stopped_brokers_store(tmp_path: Path) -> None:
    """As a heartbeat would do it: `consumerProgress` looks for the retry topic of a group."""
    root = golden.restore("retry-dlq", tmp_path / "store")
    config = root / "config"
    topics, groups = (parse_config((config / name).read_text()) for name in ("topics.json", "subscriptionGroup.json"))
    drive = Drive(root, startingOffsets="earliest", groupId="lake")
    drive.run()
    now, now_groups = (parse_config((config / name).read_text()) for name in ("topics.json", "subscriptionGroup.json"))
    entry = now["topicConfigTable"].pop("%RETRY%lake")
    assert (entry["readQueueNums"], entry["writeQueueNums"], entry["perm"]) == (1, 1, 6)
    assert now["topicConfigTable"] == topics["topicConfigTable"]
    assert now["dataVersion"]["counter"] > topics["dataVersion"]["counter"]
    assert now_groups["subscriptionGroupTable"].pop("lake")["consumeEnable"] is True
    assert now_groups["subscriptionGroupTable"] == groups["subscriptionGroupTable"]


def test_no_group_is_registered_where_no_broker_was(builder: StoreBuilder) -> None:
    Drive(builder.root, startingOffsets="earliest", groupId="lake").run()
    assert file_of(builder.root).exists()
    assert not (builder.root / "config" / "topics.json").exists()
