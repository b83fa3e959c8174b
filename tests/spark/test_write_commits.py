"""Commits without Spark: order, recognition, other writers, locks, settings of stores that are there."""

import errno
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from embermq import Message, MessageStore, StoreSettings
from embermq.errors import (
    AppendRefused,
    DataLost,
    DiskFull,
    OptionInvalid,
    SegmentUnavailable,
    StoreError,
    StoreLocked,
    StorePathInvalid,
)
from embermq.files import DirectoryEntry, RealFiles
from embermq.format.config_json import parse_config
from embermq.settings import FlushDisk
from embermq.spark.writing import commits, staging, writer
from embermq.spark.writing.commits import Committer
from embermq.spark.writing.fitted_settings import fit_to_files
from embermq.spark.writing.journal import CommitJournal
from embermq.testing.builder import SMALL, StoreBuilder
from embermq.testing.clock import ManualClock
from tests.crash.sink_batches import TOPIC, Sink, check_queues, check_rows, rows_in
from tests.support import golden

FILES = RealFiles()


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path / "store", FILES, StoreSettings(**SMALL))


class Stopped(BaseException):
    pass


def stop_at(monkeypatch: pytest.MonkeyPatch, chunk: int, error: BaseException | None = None) -> None:
    """Let the append of a later commit end after so many chunks of two rows."""
    whole, count = MessageStore.append_many, [0]

    def append(store: MessageStore, messages: Any) -> Any:
        if count[0] == chunk:
            raise error or Stopped
        count[0] += 1
        return whole(store, messages)

    monkeypatch.setattr(commits, "CHUNK_ROWS", 2)
    monkeypatch.setattr(MessageStore, "append_many", append)


def cut_short(sink: Sink, monkeypatch: pytest.MonkeyPatch, chunk: int, batch: int = 0) -> None:
    with monkeypatch.context() as patched:
        stop_at(patched, chunk)
        with pytest.raises(Stopped):
            sink.run(batch)


def test_batches_come_in_order_of_partition_and_row(sink: Sink) -> None:
    for batch in range(3):
        staged = sink.stage(batch)
        assert sink.commit(batch, list(reversed(staged))) == 9
    check_rows(sink.rows(), 3)
    with sink.open() as store:
        check_queues(store)
        assert store.recovery.clean
        one = next(store.scan())
        assert [found.body for found in store.find("Sink", one.unique_key or "")] == [one.body]
    assert list((sink.root / "embermq.staging" / sink.query).iterdir()) == []
    assert [path.name for path in (sink.root / "embermq.commits").iterdir()] == [f"{sink.query}.json"]


def test_a_batch_that_comes_again_is_recognised(sink: Sink) -> None:
    sink.run(0)
    sink.run(1)
    assert sink.run(0, attempt=1) == 0
    assert sink.run(1, attempt=1) == 0
    check_rows(sink.rows(), 2)


def test_an_empty_batch_changes_nothing(sink: Sink) -> None:
    empty = Sink(sink.root, FILES, sink.settings, partitions=(0, 0))
    assert empty.run(0) == 0
    sink.run(1)
    assert {one.batch for one in sink.rows()} == {1}


def test_what_was_cut_short_is_completed_by_the_same_batch(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    for batch, chunk in enumerate((0, 1, 3)):
        cut_short(sink, monkeypatch, chunk, batch)
        assert (sink.root / "embermq.commits" / "append.json").exists()
        assert sink.run(batch, attempt=1) == 0
        assert {one.attempt for one in sink.rows()} == {0}
    check_rows(sink.rows(), 3)


def test_what_was_cut_short_can_be_completed_alone(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_short(sink, monkeypatch, 2)
    with sink.open() as store:
        assert len(rows_in(store)) == 4
    sink.committer.finish()
    check_rows(sink.rows(), 1)
    sink.committer.finish()
    check_rows(sink.rows(), 1)


def test_staged_rows_that_are_gone_are_not_forgotten(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next commit refuses, until the rest is given up explicitly."""
    cut_short(sink, monkeypatch, 2)
    (file, *_) = sorted((sink.root / "embermq.staging" / sink.query / "0").iterdir())
    content = file.read_bytes()
    file.unlink()
    for _ in range(2):
        with pytest.raises(StoreError, match=r"is gone, with .* bring the file back, or remove .*append\.json"):
            sink.run(0, attempt=1)
    file.write_bytes(content)
    sink.run(0, attempt=1)
    check_rows(sink.rows(), 1)


def test_a_staged_file_that_is_missing_or_damaged_stops_the_commit_before_anything_is_appended(sink: Sink) -> None:
    sink.run(0)
    staged = sink.stage(1)
    (sink.root / "embermq.staging" / sink.query / "1" / staged[-1].name).unlink()
    with pytest.raises(StoreError, match="is gone"):
        sink.commit(1, staged)
    check_rows(sink.rows(), 1)
    assert CommitJournal(FILES, sink.root).load_append() is None


def test_a_damaged_journal_is_an_error(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_short(sink, monkeypatch, 2)
    path = sink.root / "embermq.commits" / "append.json"
    good = path.read_bytes()
    later = good.replace(b'"version":1', b'"version":2')
    for bad in (b"", b"{}", good[:-1], good.replace(b'"done":0', b'"done":1'), later):
        path.write_bytes(bad)
        with pytest.raises(StoreError, match=r"append\.json (is damaged|was written by a newer)"):
            sink.run(0, attempt=1)
    path.write_bytes(good)
    sink.run(0, attempt=1)
    check_rows(sink.rows(), 1)


def test_a_log_that_has_lost_its_beginning_cannot_tell(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Sink(sink.root, FILES, StoreSettings(**(SMALL | {"segment_bytes": 4096})), partitions=(30, 30))
    cut_short(tiny, monkeypatch, 25)
    (first, second, *_) = sorted((sink.root / "commitlog").iterdir())
    assert second.stat().st_size == 4096
    first.unlink()
    with pytest.raises(DataLost, match="can no longer be seen"):
        tiny.run(0, attempt=1)
    (sink.root / "embermq.commits" / "append.json").unlink()
    tiny.run(1)
    with tiny.open() as store:
        assert sum(one.batch == 1 for one in rows_in(store)) == 60


def test_delayed_rows_are_found_again_where_they_are_parked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink(tmp_path / "store", FILES, StoreSettings(**SMALL), delay_level=3)
    cut_short(sink, monkeypatch, 2)
    sink.run(0, attempt=1)
    with sink.open() as store:
        parked = [one for one in store.scan() if one.topic == "SCHEDULE_TOPIC_XXXX"]
        assert [one.properties["REAL_TOPIC"] for one in parked] == ["Sink"] * 9
        assert {one.queue_id for one in parked} == {2}


def test_what_was_forgotten_goes_after_a_while(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not what was touched since, what an append still needs, or what is not ours."""
    cut_short(sink, monkeypatch, 2)
    staged = f"0-0-{'0' * 16}.arrow"
    for name in ("job-old", "job-touched", "somebody"):
        (sink.staging / name / "0").mkdir(parents=True)
        (sink.staging / name / "0" / staged).touch()
    for path in [*sink.staging.rglob("*"), *sink.staging.iterdir()]:
        FILES.set_mtime(path, 1_000_000_000)
    FILES.set_mtime(sink.staging / "job-touched" / "0" / staged, 9_000_000_000)
    for name in ("job-1.json", "job-2.json", "query-1.json"):
        (sink.root / "embermq.commits" / name).touch()
        FILES.set_mtime(sink.root / "embermq.commits" / name, 1_000_000_000 * (5 if "2" in name else 1))
    sink.committer.clear_forgotten(sink.staging, before_ms=4_000)
    assert sorted(path.name for path in sink.staging.iterdir()) == ["job-touched", sink.query, "somebody"]
    left = sorted(path.name for path in (sink.root / "embermq.commits").iterdir())
    assert left == ["append.json", "job-2.json", "query-1.json"]
    (sink.root / "embermq.commits" / "query-1.json").unlink()
    sink.run(0, attempt=1)
    check_rows(sink.rows(), 1)


def test_a_full_disk_half_way_says_what_becomes_of_the_rest(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        stop_at(patched, 2, DiskFull("the disk is full", "SERVICE_NOT_AVAILABLE"))
        with pytest.raises(AppendRefused, match=r"the disk is full\. What is left of .* is kept in .*/0 and app"):
            sink.run(0)
    sink.committer.finish()
    check_rows(sink.rows(), 1)


@pytest.mark.parametrize("refusals", [1, 2, 3])
def test_a_disk_that_does_not_keep_up_is_tried_again(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    whole, count = MessageStore.append_many, [0]

    def append(store: MessageStore, messages: Any) -> Any:
        count[0] += 1
        receipts = whole(store, messages)
        if count[0] <= refusals:
            raise SegmentUnavailable("not ready")  # As it does: some are stored, and nobody has a receipt.
        return receipts

    monkeypatch.setattr(commits, "CHUNK_ROWS", 2)
    monkeypatch.setattr(MessageStore, "append_many", append)
    if refusals < 3:
        sink.run(0)
    else:
        with pytest.raises(AppendRefused, match="not ready"):
            sink.run(0)
        sink.run(0, attempt=1)
    check_rows(sink.rows(), 1)


# -- other processes -------------------------------------------------------------------------------------------


def test_a_store_that_somebody_has_is_waited_for_and_then_refused(sink: Sink) -> None:
    sink.run(0)
    script = (
        "import sys; from embermq import MessageStore, StoreSettings\n"
        f"store = MessageStore.open({str(sink.root)!r}, StoreSettings(**{SMALL!r}))\n"
        "print('open', flush=True); sys.stdin.readline(); store.close(); print('closed', flush=True)\n"
    )
    broker = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert broker.stdin is not None
    assert broker.stdout is not None
    try:
        assert broker.stdout.readline() == "open\n"
        staged = sink.stage(1)
        with pytest.raises(StoreLocked) as caught:
            sink.commit(1, staged)
        assert caught.value.holder_pid == broker.pid
        assert str(broker.pid) in str(caught.value)

        def wait(seconds: float) -> None:
            broker.communicate("\n", timeout=60)

        sink.committer = Committer(sink.root, sink.settings, lock_timeout_ms=60_000, sleep=wait)
        assert sink.commit(1, staged) == 9
    finally:
        broker.kill()
        broker.communicate()
    check_rows(sink.rows(), 2)


def test_waiting_ends_by_the_clock(sink: Sink) -> None:
    sink.run(0)
    clock = ManualClock()
    pauses: list[float] = []

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(ms=round(seconds * 1000))

    with sink.open():
        patient = Committer(sink.root, sink.settings, lock_timeout_ms=2_000, clock=clock, sleep=wait)
        sink.committer = patient
        with pytest.raises(StoreLocked):
            sink.run(1)
    assert 1.9 < sum(pauses) < 2.2


# -- settings --------------------------------------------------------------------------------------------------


def test_the_settings_make_the_store(tmp_path: Path) -> None:
    settings = StoreSettings(**(SMALL | {"flush": FlushDisk.SYNC, "segment_bytes": 65536}))
    sink = Sink(tmp_path / "store", FILES, settings)
    sink.run(0)
    assert {path.stat().st_size for path in (sink.root / "commitlog").iterdir()} == {65536}
    check_rows(sink.rows(), 1)


def test_sizes_of_files_that_are_there_are_kept(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", queue_file_bytes=20 * 77, index_slots_max=123, index_entries_max=456)
    with builder.open() as store:
        store.append(Message("Other", b"x", keys="k"))
    sink = Sink(tmp_path / "store", FILES, StoreSettings())
    fitted = fit_to_files(sink.settings, frozenset(), sink.root, FILES)
    assert fitted.segment_bytes == SMALL["segment_bytes"]
    assert (fitted.queue_file_bytes, fitted.index_slots_max, fitted.index_entries_max) == (20 * 77, 123, 456)
    sink.run(0)
    sizes = {path.stat().st_size for path in (sink.root / "consumequeue").rglob("0*") if path.is_file()}
    assert sizes == {20 * 77}
    with builder.open(read_only=True) as store:
        assert store.recovery.clean
        assert not store.recovery.findings
        check_rows(rows_in(store), 1)
        assert [one.body for one in store.find("Other", "k")] == [b"x"]


def test_sizes_that_contradict_the_files_are_refused(tmp_path: Path) -> None:
    with StoreBuilder(tmp_path / "store").open() as store:
        store.append(Message("Other", b"x", keys="k"))
    said = frozenset({"queue_file_bytes"})
    with pytest.raises(OptionInvalid, match="mappedFileSizeConsumeQueue"):
        fit_to_files(StoreSettings(queue_file_bytes=2000), said, tmp_path / "store", FILES)
    for name in ("embermq.index.json", "embermq.inventory.json"):
        (tmp_path / "store" / name).unlink()
    # The content of the index still tells its sizes.
    fitted = fit_to_files(StoreSettings(), frozenset(), tmp_path / "store", FILES)
    assert (fitted.index_slots_max, fitted.index_entries_max) == (SMALL["index_slots_max"], SMALL["index_entries_max"])
    said = frozenset({"index_slots_max"})
    with pytest.raises(OptionInvalid, match="give maxHashSlotNum and maxIndexNum"):
        fit_to_files(StoreSettings(), said, tmp_path / "store", FILES)
    (index,) = (tmp_path / "store" / "index").iterdir()
    index.write_bytes(b"\x7f" * index.stat().st_size)
    with pytest.raises(OptionInvalid, match="give maxHashSlotNum and maxIndexNum"):
        fit_to_files(StoreSettings(), frozenset(), tmp_path / "store", FILES)
    kept = StoreSettings(index=False)
    assert fit_to_files(kept, frozenset(), tmp_path / "store", FILES).index is False


def test_a_directory_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(StorePathInvalid, match="not a message store"):
        fit_to_files(StoreSettings(), frozenset(), tmp_path / "photos", FILES)
    with pytest.raises(StorePathInvalid, match="this is a file"):
        fit_to_files(StoreSettings(), frozenset(), tmp_path / "photos" / "cat.jpg", FILES)
    assert fit_to_files(StoreSettings(), frozenset(), tmp_path / "new", FILES) == StoreSettings()


# -- what comes after a commit ---------------------------------------------------------------------------------


class ClearedMeanwhile(RealFiles):
    """Somebody else clears his own staged files just when they are looked at."""

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        if path.name.startswith("job-other"):
            shutil.rmtree(path)
        return super().list_directory(path)


@pytest.mark.parametrize("error", [None, PermissionError(errno.EACCES, "not yours")])
def test_tidying_up_never_fails_a_commit(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, error: PermissionError | None
) -> None:
    sink.run(0)
    other = sink.staging / "job-other" / "0"
    other.mkdir(parents=True)
    if error is not None:
        monkeypatch.setattr(staging, "_newest_change_ms", lambda *given: (_ for _ in ()).throw(error))
    staging.clear_forgotten(ClearedMeanwhile(), sink.staging, None, before_ms=1 << 50)
    assert other.exists() is (error is not None), "what cannot be looked at stays"


QUERY = "11111111-2222-3333-4444-555555555555"


def test_a_batch_that_is_empty_when_it_comes_again_keeps_what_was_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source has lost its rows meanwhile, or the query was changed."""

    class Task:
        def partitionId(self) -> int:  # noqa: N802
            return 0

        def taskAttemptId(self) -> int:  # noqa: N802
            return 1

        def getLocalProperty(self, name: str) -> str:  # noqa: N802
            return str(number) if "batch" in name else QUERY

    number = 5
    monkeypatch.setattr("embermq.spark.writing.writer.TaskContext.get", lambda: Task())
    options = {"path": str(tmp_path / "store"), "topic": "T", "settings.mappedFileSizeCommitLog": "1048576"}

    def stream_writer() -> writer.StreamWriter:
        schema = StructType([StructField("body", BinaryType())])
        return writer.stream_writer(schema, {**options, "checkpointLocation": str(tmp_path / "ck")}, False)

    def staged(bodies: list[bytes]) -> Any:
        batch = pa.RecordBatch.from_arrays([pa.array(bodies, pa.binary())], ["body"])
        return stream_writer().write(iter([batch] if bodies else []))

    bodies = [b"%d" % n for n in range(10)]
    with monkeypatch.context() as patched:
        message = staged(bodies)
        stop_at(patched, 2)
        with pytest.raises(Stopped):
            stream_writer().commit([message], 5)
    stream_writer().commit([staged([])], 5)
    number = 6
    stream_writer().commit([staged([b"next"])], 6)
    with MessageStore.open(tmp_path / "store", read_only=True) as store:
        assert [one.body for one in store.scan()] == [*bodies, b"next"]


def test_topics_are_entered_into_the_table_of_a_stopped_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an entry the broker would have the messages and give no client a route to them."""
    root = golden.restore("retry-dlq", tmp_path / "store")
    file = root / "config" / "topics.json"
    before = parse_config(file.read_text())
    sink = Sink(root, FILES, StoreSettings())
    cut_short(sink, monkeypatch, 1)
    entry = parse_config(file.read_text())["topicConfigTable"][TOPIC]  # What is in the log is known.
    assert (entry["readQueueNums"], entry["writeQueueNums"], entry["perm"]) == (4, 4, 6)
    sink.run(0)
    after = parse_config(file.read_text())
    assert after["topicConfigTable"].pop(TOPIC) == entry
    assert after["topicConfigTable"] == before["topicConfigTable"]
    assert after["dataVersion"]["counter"] == before["dataVersion"]["counter"] + 1


def test_a_store_without_a_broker_gets_no_table_of_topics(sink: Sink) -> None:
    sink.run(0)
    assert not (sink.root / "config" / "topics.json").exists()
