"""The audit: sound stores have no faults, every planted fault is found where it is, and as `verify` finds it."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from embermq import Message, MessageStore
from embermq.errors import OptionInvalid, StorePathInvalid
from embermq.format.frame import encode
from embermq.format.index import HEADER_BYTES, entry_at
from embermq.format.queue_entry import ENTRY
from embermq.model.hosts import Host
from embermq.repair.verify.store_check import verify
from embermq.settings import FlushDisk
from embermq.spark.jobs import audit_duplicates, audit_pieces
from embermq.spark.jobs.audit import Audit, StoreAudit, audit
from embermq.spark.jobs.audit_findings import SCHEMA
from embermq.spark.jobs.audit_page import audit_report
from embermq.spark.report import render
from embermq.store.compare import log_pieces as verify_log
from embermq.store.services import retention
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from tests.crash import numbered
from tests.spark.conftest import StoreMaker
from tests.support import golden
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 120
SLOTS = 16  # As in numbered.TINY.
START_MS = 1_700_000_000_000


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tasks of several pieces, for a log of some kilobytes."""
    monkeypatch.setattr(verify_log, "PIECE_BYTES", 1500)
    monkeypatch.setattr(audit_pieces, "PIECE_BYTES", 1500)
    monkeypatch.setattr(audit_pieces, "TASK_BYTES_MIN", 6000)
    monkeypatch.setattr(audit_pieces, "TASK_BYTES_MAX", 6000)
    monkeypatch.setattr(audit_duplicates, "KEYS_PER_PART", 16)
    monkeypatch.setattr(audit_duplicates, "KEYS_WORTH_A_TASK", 0)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of all kinds of messages on a real disk, closed cleanly. Copy it before changing anything."""
    plan = StoreBuilder(tmp_path_factory.mktemp("sound") / "store", clock=ManualClock(START_MS), **numbered.TINY)
    with plan.open() as store:
        numbered.append_until(store, 0, COUNT)
    return plan.root


def files_in(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def change(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def flip(path: Path, at: int) -> None:
    change(path, at, bytes([path.read_bytes()[at] ^ 2]))


def record_places(root: Path) -> list[tuple[int, int]]:
    with MessageStore.open(root, read_only=True) as store:
        return [(one.physical_offset, one.size) for one in store.scan()]


def in_log(root: Path, place: int) -> tuple[Path, int]:
    start = max(int(path.name) for path in files_in(root / "commitlog") if int(path.name) <= place)
    return root / "commitlog" / f"{start:020d}", place - start


def change_log(root: Path, place: int, content: bytes) -> None:
    path, at = in_log(root, place)
    change(path, at, content)


# -- planted faults: each a change of a sound store, the kind it is found as, and words that tell it

Plant = Callable[[Path], None]
PLACE = 40  # the record that is damaged


def body_bit(root: Path) -> None:
    path, at = in_log(root, record_places(root)[PLACE][0])
    flip(path, at + 89)


def body_bit_without_queues(root: Path) -> None:
    """As a log-only store has it: nobody but the log knows of a message."""
    body_bit(root)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")


def wrong_place(root: Path) -> None:
    place = record_places(root)[PLACE][0]
    change_log(root, place + 28, (place + 8).to_bytes(8, "big"))


def zeros(root: Path) -> None:
    places = record_places(root)
    first = next(at for at, (place, _) in enumerate(places) if place > 9000)
    start, end = places[first][0], places[first + 5][0]
    assert start // 8192 == (end - 1) // 8192
    change_log(root, start, bytes(end - start))


def missing_file(root: Path) -> None:
    files_in(root / "commitlog")[1].unlink()


def one_of(root: Path, topic: str, queue_id: int, number: int) -> int:
    with MessageStore.open(root, read_only=True) as store:
        return next(
            one.physical_offset
            for one in store.scan()
            if (one.topic, one.queue_id, one.queue_offset, one.sys_flag) == (topic, queue_id, number, 0)
        )


def repeated_offset(root: Path) -> None:
    change_log(root, one_of(root, "Topic0", 1, 3) + 20, (2).to_bytes(8, "big"))


def skipped_offset(root: Path) -> None:
    change_log(root, one_of(root, "Topic0", 1, 3) + 20, (3000).to_bytes(8, "big"))


def wrong_queue_entry(root: Path) -> None:
    flip(files_in(root / "consumequeue/Topic0/1")[0], 7)


def wrong_tag_code(root: Path) -> None:
    flip(files_in(root / "consumequeue/Topic0/1")[0], 19)


def no_entry(root: Path) -> None:
    change(files_in(root / "consumequeue/Topic0/1")[0], 20, bytes(20))


def no_entries(root: Path) -> None:
    shutil.rmtree(root / "consumequeue/Topic0/1")


def orphan_entry(root: Path) -> None:
    path = files_in(root / "consumequeue/Topic0/1")[-1]
    entries = path.read_bytes()
    end = next(at for at in range(0, len(entries), 20) if not entries[at + 8 : at + 12].strip(b"\0"))
    change(path, end, ENTRY.pack(*record_places(root)[-1], 0))


def entry_beyond(root: Path) -> None:
    path = files_in(root / "consumequeue/Topic0/1")[-1]
    entries = path.read_bytes()
    end = next(at for at in range(0, len(entries), 20) if not entries[at + 8 : at + 12].strip(b"\0"))
    change(path, end, ENTRY.pack(10_000_000, 100, 0))


def wrong_index_entry(root: Path) -> None:
    flip(files_in(root / "index")[1], entry_at(7, SLOTS) + 2)


def wrong_slot(root: Path) -> None:
    flip(files_in(root / "index")[0], HEADER_BYTES + 4 * 3 + 3)


def wrong_slot_beside_much_damage(root: Path) -> None:
    """Entries of records that are lost must not crowd out what is wrong with the index itself."""
    for path in files_in(root / "commitlog")[1:3]:
        change(path, 0, bytes(8192))
    wrong_slot(root)


def wrong_header(root: Path) -> None:
    flip(files_in(root / "index")[1], 20)


def missing_index(root: Path) -> None:
    files_in(root / "index")[1].unlink()


def short_index(root: Path) -> None:
    with files_in(root / "index")[1].open("r+b") as file:
        file.truncate(100)


def bad_checkpoint(root: Path) -> None:
    (root / "checkpoint").write_bytes(b"short")


def bad_config(root: Path) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"Topic0@g":{1:3000}}}')


PLANTS: list[tuple[Plant, str, str]] = [
    (body_bit, "log", "bad crc"),
    (body_bit_without_queues, "queue", "of the queue are lost: the log does not have them"),
    (wrong_place, "log", "hold no whole record"),
    (zeros, "log", "zeros where records should be"),
    (missing_file, "log", "log file missing"),
    (repeated_offset, "queue", "given twice"),
    (skipped_offset, "queue", "says queue offset 3000, which its queue had not reached"),
    (wrong_queue_entry, "queue", "leads to"),
    (wrong_tag_code, "queue", "tag code"),
    (no_entry, "queue", "has no entry"),
    (no_entries, "queue", "has no entry"),
    (orphan_entry, "queue", "where no record of it is"),
    (entry_beyond, "queue", "past the end of the log"),
    (wrong_index_entry, "index", "entry 7 is"),
    (wrong_slot, "index", "does not name its newest entry"),
    (wrong_slot_beside_much_damage, "index", "does not name its newest entry"),
    (wrong_header, "index", "header's begin"),
    (missing_index, "index", "have no entry"),
    (short_index, "index", "bytes long"),
    (bad_checkpoint, "state", "5 bytes long"),
    (bad_config, "state", "group g is at offset 3000"),
]


def faults(store: StoreAudit) -> list[str]:
    return [one.fault for one in store.findings if one.is_fault]


def test_planted_faults_are_found_as_verify_finds_them(
    spark: "SparkSession", sound: Path, tmp_path: Path, small_pieces: None
) -> None:
    for plant, _, _ in PLANTS:
        plant(Path(shutil.copytree(sound, tmp_path / plant.__name__)))
    before = golden.content(tmp_path)
    found = audit(spark, [str(tmp_path / "*")])
    assert golden.content(tmp_path) == before  # Nothing is written into a store.
    by_name = {Path(store.path).name: store for store in found.stores}
    assert set(by_name) == {plant.__name__ for plant, _, _ in PLANTS}
    for plant, kind, words in PLANTS:
        store, report = by_name[plant.__name__], verify(tmp_path / plant.__name__)
        assert store.report.flaws == report.flaws, plant.__name__
        assert (store.report.records, store.report.queue_entries, store.report.index_entries) == (
            report.records,
            report.queue_entries,
            report.index_entries,
        )
        reported = [one for one in store.findings if words in one.fault]
        assert reported, (plant.__name__, store.findings)
        assert {one.kind for one in reported} == {kind}
        assert faults(store), plant.__name__
        assert sum(messages for messages, _ in store.totals.topics().values()) == store.report.records


def test_a_damaged_range_has_its_place_and_its_end(
    spark: "SparkSession", sound: Path, tmp_path: Path, small_pieces: None
) -> None:
    root = Path(shutil.copytree(sound, tmp_path / "store"))
    zeros(root)
    start, end = verify(root).flaws[0].physical_offset or 0, 0
    (store,) = audit(spark, [str(root)]).stores
    (damage,) = store.damages
    (one,) = (one for one in store.findings if one.kind == "log")
    assert (damage.start, damage.end) == (one.physical_offset, one.end_offset) == (start, one.end_offset)
    end = damage.end
    assert f"{end - start} bytes" in one.fault
    assert one.file == f"commitlog/{start // 8192 * 8192:020d}"
    page = render(audit_report(Audit([store]), "store", START_MS))
    assert page.count('class="bad"') == 2  # In the strip of the log, and in that of its file.
    assert f"{start:,} to {end:,}: zeros" in page


def test_sound_stores_have_no_faults(
    spark: "SparkSession", sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of RocketMQ as well: what `verify` calls sound, and neither duplicates nor silences."""
    monkeypatch.setattr(verify_log, "PIECE_BYTES", 1500)
    roots = [sound, *(golden.restore(name, tmp_path / name) for name in golden.ALL_STORES)]
    before = golden.content(tmp_path)
    found = audit(spark, [str(root) for root in roots])
    assert golden.content(tmp_path) == before
    assert not {one.kind for one in found.findings} & {"duplicate", "silence"}
    for store, root in zip(found.stores, roots, strict=True):
        report = verify(root)
        assert store.report.flaws == report.flaws, root
        assert store.report.records == report.records
        assert bool(faults(store)) != report.is_sound, root


def test_a_record_inside_a_body_is_no_record(spark: "SparkSession", tmp_path: Path, small_pieces: None) -> None:
    """A task may begin inside a body that holds a whole record with the right place and a key that is known."""
    host = Host("127.0.0.1", 10911)
    plan = StoreBuilder(tmp_path / "store", **numbered.TINY | {"segment_bytes": 1 << 16})
    with plan.open() as store:
        store.append(Message("Bait", b"!", properties={"UNIQ_KEY": "K"}))
        while store.max_physical < 5200:
            store.append(Message("T", b"x" * 100))
        place = store.max_physical + 88 + 900  # Where the bait will lie: behind the first border of tasks, 6000.
        bait = encode(
            physical_offset=place,
            queue_id=0,
            queue_offset=77,
            topic="Bait",
            body=b"!",
            properties=b"UNIQ_KEY\x01K",
            born_timestamp=1,
            born_host=host,
            store_timestamp=1,
            store_host=host,
        )
        store.append(Message("T", bytes(900) + bait + bytes(900)))
        assert store.engine.log.read(place, len(bait)) == bait
        for _ in range(100):
            store.append(Message("T", b"y" * 100))
    assert place > 6000
    found = audit(spark, [str(plan.root)])
    assert found.findings == []
    assert found.stores[0].totals.topics()["Bait"][0] == 1


# -- what only the audit looks at ------------------------------------------------------------------


def keyed(topic: str, key: str, queue_id: int = 0) -> Message:
    return Message(topic, b"x" * 40, queue_id=queue_id, properties={"UNIQ_KEY": key})


def test_duplicates_by_unique_key(
    spark: "SparkSession", make_store: StoreMaker, small_pieces: None, tmp_path: Path
) -> None:
    messages = [keyed("orders", f"key-{n}", n % 3) for n in range(300)]
    messages[250:250] = [keyed("orders", "key-7", 1)]
    messages += [keyed("orders", "key-7", 2), keyed("orders", "key-100")]
    messages += [keyed("returns", "key-7")]  # Another topic.
    messages += [keyed(topic, "key-8") for topic in ("%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX") for _ in range(3)]
    root = make_store(messages)
    found = audit(spark, [str(root)])
    assert {one.kind for one in found.findings} == {"duplicate"}
    with MessageStore.open(root, read_only=True) as store:
        places: dict[str, list[int]] = {}
        for one in store.scan():
            if one.topic == "orders":
                places.setdefault(one.properties["UNIQ_KEY"], []).append(one.physical_offset)
    reported = {one.physical_offset: one for one in found.findings}
    assert set(reported) == {places["key-7"][1], places["key-100"][1]}
    seven = reported[places["key-7"][1]]
    assert (seven.topic, seven.queue_id, seven.times, seven.severity) == ("orders", 1, 2, "fault")
    assert "key-7 is there 3 times: at " + ", ".join(f"{place:,}" for place in places["key-7"]) in seven.fault
    assert reported[places["key-100"][1]].times == 1


def test_a_silence(spark: "SparkSession", tmp_path: Path) -> None:
    """A message a second, an hour without one, and none since; another topic has one an hour, which is its rhythm."""
    clock = ManualClock(START_MS)
    plan = StoreBuilder(tmp_path / "store", clock=clock)
    with plan.open() as store:
        for n in range(200):
            clock.set(START_MS + 1000 * n + (3_600_000 if n >= 120 else 0))
            store.append(Message("orders", b"x", tags="paid"))
        for n in range(60):
            clock.set(START_MS + 4_000_000 + n * 3_600_000)
            store.append(Message("hourly", b"x"))
    found = audit(spark, [str(plan.root)])
    assert found.is_sound
    current, one = found.findings
    assert current.fault == "no message for 2.5 d, and none since; usual are gaps of up to 1.0 s"
    assert {(each.kind, each.severity, each.topic) for each in found.findings} == {("silence", "note", "orders")}
    assert (one.start_ms, one.end_ms) == (START_MS + 119_000, START_MS + 3_720_000)
    assert one.physical_offset == record_places(plan.root)[120][0]
    assert one.fault == "no message for 60.0 min; usual are gaps of up to 1.0 s"
    counts = found.counts().to_pydict()
    assert sum(counts["messages"]) == 260
    by_topic = [(topic, tag) for topic, tag in zip(counts["topic"], counts["tags"], strict=True)]
    assert by_topic == [("hourly", "")] * 60 + [("orders", "paid")] * 2


# -- a store that is being written -----------------------------------------------------------------


@contextmanager
def busy(store: MessageStore, bytes_max: int) -> Iterator[None]:
    """Somebody appends, as long as the log is not longer than that."""
    stop = threading.Event()

    def append() -> None:
        n = 0
        while not stop.is_set():
            store.append(
                Message(
                    f"T{n % 5}",
                    b"%d" % n * 20,
                    keys=[f"k{n}", "all"],
                    tags="t",
                    queue_id=n % 3,
                    properties={"UNIQ_KEY": f"unique-{n}"},
                )
            )
            n += 1
            while n % 20 == 0 and not stop.wait(0.005) and store.max_physical - store.min_physical > bytes_max:
                pass

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_no_false_finding_while_somebody_writes(spark: "SparkSession", tmp_path: Path) -> None:
    plan = StoreBuilder(
        tmp_path / "store",
        flush=FlushDisk.ASYNC,
        segment_bytes=1 << 18,
        queue_file_bytes=20 * 500,
        index_slots_max=500,
        index_entries_max=2000,
    )
    with plan.open() as store, busy(store, 1 << 40):
        wait_until(lambda: store.max_physical > 1 << 19)
        for _ in range(2):
            end = store.max_physical
            found = audit(spark, [str(plan.root)])
            wait_until(lambda: store.max_physical > end)  # noqa: B023
            assert found.stores[0].report.is_live
            assert found.findings == []
            assert found.records > 1000
    assert audit(spark, [str(plan.root)]).findings == []


def test_no_false_finding_while_old_files_go(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "FIRST_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(audit_pieces, "TASK_BYTES_MIN", 1 << 17)
    monkeypatch.setattr(audit_pieces, "TASK_BYTES_MAX", 1 << 17)
    plan = StoreBuilder(
        tmp_path / "store",
        segment_bytes=1 << 16,
        queue_file_bytes=20 * 50,
        index_slots_max=100,
        index_entries_max=400,
        retention_hours=0,
        clean_interval_ms=20,
        delete_segment_pause_ms=1,
        delete_queue_pause_ms=0,
        delete_when=";".join(str(hour) for hour in range(24)),
    )
    with plan.open() as store, busy(store, 1 << 20):
        wait_until(lambda: store.min_physical > 1 << 18)
        for _ in range(3):
            gone = store.min_physical
            found = audit(spark, [str(plan.root)])
            wait_until(lambda: store.min_physical > gone)  # noqa: B023
            assert found.is_sound, found.findings
            assert {one.kind for one in found.findings} <= {"queue", "state"}, found.findings


def test_a_fault_in_a_running_store_is_found(spark: "SparkSession", tmp_path: Path) -> None:
    plan = StoreBuilder(tmp_path / "store", queue_file_bytes=20 * 50)
    with plan.open() as store:
        for n in range(200):
            store.append(Message("T", b"%d" % n))
        store.flush()
        store.wait_for_dispatch()
        store.engine.services.housekeeping.make_durable()
        flip(files_in(plan.root / "consumequeue/T/0")[1], 105)
        found = [one for one in audit(spark, [str(plan.root)]).findings if one.is_fault]
    assert [(one.topic, one.queue_id, one.queue_offset, one.byte_offset) for one in found] == [("T", 0, 55, 100)]


# -- answers ---------------------------------------------------------------------------------------


def test_findings_are_a_table_that_can_be_saved(
    spark: "SparkSession", sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(shutil.copytree(sound, tmp_path / "broker-a"))
    body_bit(root)
    wrong_slot(root)
    reported: list[tuple[str, int, int]] = []
    found = audit(spark, [str(root), str(sound)], on_progress=lambda *numbers: reported.append(numbers))
    assert reported[-1][1] == reported[-1][2] > 1
    assert found.stores[0].broker_name == "broker-a"
    rows = found.frame(spark).where("severity = 'fault'").select("kind", "physicalOffset").collect()
    assert {row["kind"] for row in rows} == {"log", "index"}
    assert len(rows) == found.faults
    (parquet,) = found.save(str(tmp_path / "f.parquet"))
    (lines,) = found.save(str(tmp_path / "f.jsonl"))
    saved = pq.read_table(parquet)
    assert saved.schema.equals(SCHEMA)
    records = [json.loads(line) for line in Path(lines).read_text().splitlines()]
    assert records == [{**row} for row in saved.to_pylist()]
    first, second = found.save(str(tmp_path / "saved"))
    assert pq.read_table(first).num_rows == len(found.findings)
    assert sum(pq.read_table(second)["messages"].to_pylist()) == found.records
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == ["findings.parquet", "records.parquet"]


def test_nothing_to_audit(spark: "SparkSession", make_store: StoreMaker, tmp_path: Path) -> None:
    found = audit(spark, [str(make_store([]))])
    assert (found.findings, found.records, found.is_sound) == ([], 0, True)
    assert found.counts().num_rows == 0
    assert "nothing to show" in render(audit_report(found, "empty", START_MS))
    (path,) = found.save(str(tmp_path / "none.parquet"))
    assert pq.read_table(path).num_rows == 0


def test_what_cannot_be_audited_or_saved(spark: "SparkSession", make_store: StoreMaker, tmp_path: Path) -> None:
    with pytest.raises(StorePathInvalid, match="no such directory"):
        audit(spark, [str(tmp_path / "nowhere")])
    found = audit(spark, [str(make_store([Message("T", b"x")]))])
    (tmp_path / "file").write_text("mine")
    for place, words in [("f.csv", "parquet"), ("no/f.parquet", "no directory"), ("file", "there is a file")]:
        with pytest.raises(OptionInvalid, match=words):
            found.save(str(tmp_path / place))
    assert (tmp_path / "file").read_text() == "mine"
