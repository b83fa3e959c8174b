"""The scrub: log, queues and index of a running store compared, what is derived repaired, what is not reported."""

import json
import threading
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.format.index import HEADER_BYTES, SLOT_BYTES
from embermq.inspect.rates import Watch
from embermq.repair.verify.store_check import verify
from embermq.store.layout.directory import SCRUB_STATE_FILE
from embermq.store.services import scrub as scrub_module
from embermq.store.services.scrub_state import ScrubState, load_scrub_state
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock

SLOTS, ENTRIES = 500, 1000
COUNT = 2500  # Two full index files and one that grows; two full queue files and one that grows.
TOPIC = "orders"
HOUR_MS = 3_600_000


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(
        tmp_path / "store",
        clock=ManualClock(),
        index_slots_max=SLOTS,
        index_entries_max=ENTRIES,
        segment_bytes=64 << 10,
        queue_file_bytes=20 * 500,
    )


def append(store: MessageStore, start: int, end: int) -> None:
    store.append_many(
        [Message(TOPIC, b"%d" % n, queue_id=n % 2, tags="abc"[n % 3], keys=(f"k{n}",)) for n in range(start, end)]
    )
    assert store.wait_for_dispatch()


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        assert file.read(len(data)) != data
        file.seek(at)
        file.write(data)


def files_of(root: Path, part: str) -> list[Path]:
    return sorted(path for path in (root / part).rglob("*") if path.is_file())


def bodies(store: MessageStore, queue_id: int, tags: str) -> list[bytes]:
    found: list[bytes] = []
    at = store.min_offset(TOPIC, queue_id)
    while at < store.max_offset(TOPIC, queue_id):
        outcome = store.fetch(TOPIC, queue_id, at, 64, tags)
        found += [one.body for one in outcome.messages]
        at = outcome.next_offset
    return found


def expected(queue_id: int, tag: str, count: int = COUNT) -> list[bytes]:
    return [b"%d" % n for n in range(count) if n % 2 == queue_id and "abc"[n % 3] == tag]


def test_a_sound_store_has_no_findings(builder: StoreBuilder) -> None:
    with builder.open() as store:
        append(store, 0, COUNT)
        report = store.scrub()
        assert (report.findings, report.healed, report.is_complete) == ([], 0, True)
        assert report.compared_bytes >= store.max_physical - store.min_physical
        state = store.stats().scrub
        assert state is not None
        assert (state.position, state.rounds, state.finished_ms) == (store.max_physical, 1, builder.clock.now_ms())
        assert store.runtime_info()["emberScrubRounds"] == "1"


@pytest.mark.parametrize("damage", [bytes(4096), bytes(range(256)) * 16], ids=["zeros", "scribble"])
def test_queue_entries_are_mended(builder: StoreBuilder, damage: bytes) -> None:
    with builder.open() as store:
        append(store, 0, COUNT)
        store.engine.services.housekeeping.make_durable()
        overwrite(files_of(builder.root, "consumequeue")[1], 2000, damage)
        overwrite(files_of(builder.root, "consumequeue")[5], 0, damage[:400])
        report = store.scrub()
        assert len(report.findings) == 2, report.findings
        assert report.healed == 2
        assert [bodies(store, queue_id, tag) for queue_id in (0, 1) for tag in "abc"] == [
            expected(queue_id, tag) for queue_id in (0, 1) for tag in "abc"
        ]
        assert store.scrub().findings == []
    assert verify(builder.root).flaws == []


def test_a_wrong_tag_code_is_mended(builder: StoreBuilder) -> None:
    """Nothing else notices it: a fetch by tag would pass the message over."""
    with builder.open() as store:
        append(store, 0, COUNT)
        store.engine.services.housekeeping.make_durable()
        overwrite(files_of(builder.root, "consumequeue")[0], 12 + 20 * 7, b"\0\0\0\0\0\0\0\x7f")
        assert bodies(store, 0, "c") != expected(0, "c")
        assert store.scrub().healed == 1
        assert bodies(store, 0, "c") == expected(0, "c")


@pytest.mark.parametrize("at", [HEADER_BYTES + 400, HEADER_BYTES + SLOTS * SLOT_BYTES + 4000], ids=["slots", "entries"])
@pytest.mark.parametrize("file", [0, 1, 2])
@pytest.mark.slow
def test_index_files_are_made_again(builder: StoreBuilder, at: int, file: int) -> None:
    with builder.open() as store:
        append(store, 0, COUNT)
        store.engine.services.housekeeping.make_durable()
        overwrite(files_of(builder.root, "index")[file], at, bytes(400))
        report = store.scrub()
        assert len(report.findings) == 1
        assert report.healed == 1
        assert [n for n in range(COUNT) if len(store.find(TOPIC, f"k{n}")) != 1] == []
        assert store.scrub().findings == []
        append(store, COUNT, COUNT + 10)
        assert len(store.find(TOPIC, f"k{COUNT + 9}")) == 1
    assert verify(builder.root).flaws == []


def test_index_files_of_an_earlier_version_get_checksums_once_compared(builder: StoreBuilder) -> None:
    with builder.open() as store:
        append(store, 0, COUNT)
    path = builder.root / "embermq.index.json"
    proof = json.loads(path.read_bytes())
    del proof["checksums"], proof["checksums_crc"]
    path.write_text(json.dumps(proof))
    with builder.open() as store:
        assert store.recovery.clean
        store.engine.services.housekeeping.make_durable()
        assert json.loads(path.read_bytes())["checksums"] == {}
        assert store.scrub().findings == []
        store.engine.services.housekeeping.make_durable()
        assert len(json.loads(path.read_bytes())["checksums"]) == 2


def test_damage_in_the_log_is_copied_and_reported_once(builder: StoreBuilder) -> None:
    with builder.open() as store:
        append(store, 0, COUNT)
        store.flush()
        place = next(one.physical_offset for one in store.scan() if one.body == b"100")
        overwrite(files_of(builder.root, "commitlog")[0], place, bytes(60))
        report = store.scrub()
        assert [finding.split(":")[0] for finding in report.findings] == ["commitlog"]
        assert report.healed == 0
        lines = (builder.root / "quarantine" / "report.jsonl").read_bytes().splitlines()
        reported = json.loads(lines[0])
        assert (len(lines), reported["physical_offset"], reported["filled"]) == (1, place, False)
        assert (builder.root / reported["kept_in"]).exists()
        assert store.scrub().findings == []
        append(store, COUNT, COUNT + 10)
    with builder.open() as store:
        assert not [one for one in store.scrub().findings if one.startswith("commitlog")]  # Known across openings.


def test_a_round_goes_on_after_a_restart(builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub_module, "STRETCH_BYTES", 32 << 10)
    with builder.open() as store:
        append(store, 0, COUNT)
        store.engine.services.scrub._background_step()
        store.engine.services.scrub._background_step()
        position = store.engine.services.scrub.state.position
        assert 0 < position < store.max_physical
    assert load_scrub_state(builder.files, builder.root).position == position
    with builder.open() as store:
        scrub = store.engine.services.scrub
        assert scrub.check_queue_files(1 << 30).findings == []  # These come first after an opening.
        scrub._background_step()
        assert position < scrub.state.position
        assert scrub.state.rounds == 0
        while scrub.state.rounds == 0:
            scrub._background_step()
        assert scrub.state.position == store.max_physical
        began = scrub.state.finished_ms
        assert scrub._background_step() > 3600  # The next one is not due yet.
        assert isinstance(builder.clock, ManualClock)
        builder.clock.advance(ms=169 * HOUR_MS)
        scrub._background_step()
        assert scrub.state.round_began_ms > began


def test_a_place_that_is_no_record_begins_at_its_file(builder: StoreBuilder) -> None:
    with builder.open() as store:
        append(store, 0, COUNT)
        store.engine.services.scrub._state = ScrubState(position=70_001, round_began_ms=1)
        store.engine.services.scrub._background_step()
        assert store.engine.services.scrub.state.findings == 0
    (builder.root / SCRUB_STATE_FILE).write_bytes(b"{")
    with builder.open() as store:
        assert store.engine.services.scrub.state == ScrubState()


def test_appends_deletions_and_dispatch_go_on_meanwhile(builder: StoreBuilder) -> None:
    with builder.open() as store:
        append(store, 0, COUNT)
        ended = threading.Event()
        problems: list[str] = []

        def rounds() -> None:
            while not ended.is_set():
                problems.extend(store.scrub().findings)

        thread = threading.Thread(target=rounds)
        thread.start()
        try:
            for n in range(8):
                append(store, COUNT + n * 200, COUNT + n * 200 + 200)
                store.append_many([Message("other", b"x", keys=(f"o{n}",)) for _ in range(50)])
                store.delete_topic("other")
                if n == 4:
                    store.delete_expired(before_ms=builder.clock.now_ms() + 1)
        finally:
            ended.set()
            thread.join()
        assert problems == []
        assert store.scrub().findings == []


def test_off(builder: StoreBuilder) -> None:
    with builder.changed(scrub_interval_hours=0).open() as store:
        append(store, 0, 10)
        assert store.runtime_info()["emberScrubBytesPerSecond"] == "0"
        assert store.scrub().is_complete  # When asked for, it does it all the same.
    assert load_scrub_state(builder.files, builder.root).rounds == 1


def test_a_store_without_queues(builder: StoreBuilder) -> None:
    with MessageStore.open(builder.root, builder.settings, dispatch="none") as store:
        store.append_many([Message(TOPIC, b"%d" % n) for n in range(500)])
        store.flush()
        assert store.scrub().findings == []
        overwrite(files_of(builder.root, "commitlog")[0], 300, bytes(60))
        assert len(store.scrub().findings) == 1


def test_the_rate_makes_a_round_take_most_of_the_interval(builder: StoreBuilder) -> None:
    with builder.open() as store:
        assert store.engine.services.scrub.bytes_per_second == scrub_module.BYTES_PER_SECOND_MIN
    with builder.changed(scrub_bytes_per_second=1000).open() as store:
        assert store.engine.services.scrub.bytes_per_second == 1000


def test_seen_from_outside(builder: StoreBuilder) -> None:
    with builder.open() as store:
        append(store, 0, 50)
        store.scrub()
        glance = Watch(builder.root).look()
        assert (glance.scrub.rounds, glance.scrub.finished_ms) == (1, builder.clock.now_ms())
