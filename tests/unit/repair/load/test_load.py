"""Loading a dump: the same messages again, and what happens to lines that are none."""

import io
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.errors import AppendRefused, InputInvalid, StoreLocked
from embermq.files import RealFiles
from embermq.format.message_json import BodyForm
from embermq.inspect.dump import Dump
from embermq.inspect.snapshot import DamagedRange, Survey
from embermq.inspect.store_shape import found_shape
from embermq.model.properties import SCHEDULE_TOPIC
from embermq.repair.load import load as loading
from embermq.repair.load.load import LoadReport, Source, Times, load_messages, open_source
from embermq.settings import BrokerRole, FlushDisk
from embermq.store.tables import DELAY_OFFSETS, load_entries
from embermq.testing.clock import ManualClock
from tests.support import golden

SMALL = StoreSettings(
    segment_bytes=1 << 16,
    queue_file_bytes=2000,
    index_slots_max=100,
    index_entries_max=400,
    disk_full_percent=100,
    disk_clean_percent=100,
)
# Topics our store takes as well, no batches (they roll as a whole), nothing deleted from the front.
SAME_BYTES = sorted(set(golden.ALL_STORES) - {"odd", "batch", "deleted-segments", "default-size"})
STORE_ASSIGNS = ("physicalOffset", "queueOffset", "msgId")


def dump_bytes(path: Path, form: BodyForm = BodyForm.RAW) -> bytes:
    pieces = Dump(Survey.open(path), form=form).pieces()
    return b"".join(bytes(piece) for piece in pieces if not isinstance(piece, DamagedRange))


def load(path: Path, text: bytes, settings: StoreSettings = SMALL, **options: Any) -> LoadReport:
    source = Source(io.BytesIO(text), "some.jsonl", options.pop("first_line", 1), options.pop("text_bodies", False))
    return load_messages(path, settings, source, **options)


def lines_of(*messages: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def without(text: bytes, *names: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in json.loads(line).items() if key not in names} for line in text.splitlines()]


def log_bytes(path: Path, end: int) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((path / "commitlog").iterdir()))[:end]


@pytest.mark.parametrize("name", SAME_BYTES)
def test_a_raw_dump_gives_the_same_log_byte_for_byte(name: str, tmp_path: Path) -> None:
    source = golden.restore(name, tmp_path / "golden")
    text = dump_bytes(source)
    settings = SMALL.replace(**found_shape(RealFiles(), source).as_settings())
    report = load(tmp_path / "new", text, settings)
    assert report.messages == len(text.splitlines())
    assert report.kept_times
    end = Survey.open(source).log_end
    assert report.end == Survey.open(tmp_path / "new").log_end == end
    assert log_bytes(tmp_path / "new", end) == log_bytes(source, end)
    assert dump_bytes(tmp_path / "new") == text


@pytest.mark.parametrize("name", ["batch", "deleted-segments"])
def test_places_are_given_anew_where_they_have_to_be(name: str, tmp_path: Path) -> None:
    source = golden.restore(name, tmp_path / "golden")
    text = dump_bytes(source)
    load(tmp_path / "new", text)
    assert without(dump_bytes(tmp_path / "new"), *STORE_ASSIGNS) == without(text, *STORE_ASSIGNS)


@pytest.mark.parametrize("form", [BodyForm.BASE64, BodyForm.TEXT])
def test_decompressed_bodies_are_compressed_again(form: BodyForm, tmp_path: Path) -> None:
    source = golden.restore("compressed", tmp_path / "golden")
    text = dump_bytes(source, form)
    load(tmp_path / "new", text, text_bodies=bool(form & BodyForm.TEXT))
    changed = (*STORE_ASSIGNS, "size", "bodyCrc")
    again = dump_bytes(tmp_path / "new", form)
    assert without(again, *changed) == without(text, *changed)
    assert any(line["sysFlag"] & 1 for line in without(text))


def test_the_loaded_store_answers(tmp_path: Path) -> None:
    load(
        tmp_path / "new",
        lines_of(
            {"topic": "orders", "body": "one", "tags": "paid", "keys": "k1", "queueId": 2, "bornTimestamp": 5},
            {"topic": "orders", "body": "two", "queueId": 2},
        ),
        text_bodies=True,
    )
    with MessageStore.open(tmp_path / "new", SMALL, read_only=True) as store:
        outcome = store.fetch("orders", 2, 0)
        assert [message.body for message in outcome.messages] == [b"one", b"two"]
        assert outcome.messages[0].born_timestamp == 5
        assert [message.body for message in store.find("orders", "k1")] == [b"one"]


def test_times_are_kept_in_an_empty_store_only(tmp_path: Path) -> None:
    line = lines_of({"topic": "t", "storeTimestamp": 1_700_000_000_000})
    assert load(tmp_path / "new", line).kept_times
    assert not load(tmp_path / "new", line).kept_times
    times = [one["storeTimestamp"] for one in without(dump_bytes(tmp_path / "new"))]
    assert times[0] == 1_700_000_000_000
    assert times[1] > 1_750_000_000_000
    assert load(tmp_path / "new", line, times=Times.KEEP).kept_times
    assert without(dump_bytes(tmp_path / "new"))[2]["storeTimestamp"] == 1_700_000_000_000
    assert not load(tmp_path / "other", line, times=Times.NEW).kept_times
    assert without(dump_bytes(tmp_path / "other"))[0]["storeTimestamp"] > 1_750_000_000_000


def test_a_line_without_a_time_gets_the_time_of_loading(tmp_path: Path) -> None:
    load(tmp_path / "new", lines_of({"topic": "t", "storeTimestamp": 1_700_000_000_000}, {"topic": "t"}))
    times = [one["storeTimestamp"] for one in without(dump_bytes(tmp_path / "new"))]
    assert times[0] == 1_700_000_000_000
    assert times[1] > 1_750_000_000_000


def test_what_came_before_a_broken_line_stays(tmp_path: Path) -> None:
    text = lines_of({"topic": "t", "body": "aGk="}, {"topic": "t"}) + b'\n{"topic": }\n' + lines_of({"topic": "t"})
    with pytest.raises(InputInvalid) as caught:
        load(tmp_path / "new", text)
    assert (caught.value.file, caught.value.line, caught.value.column) == ("some.jsonl", 4, 11)
    assert "no JSON: Expecting value; 2 messages before it are loaded" in str(caught.value)
    assert len(without(dump_bytes(tmp_path / "new"))) == 2
    report = load(tmp_path / "new", text.replace(b'{"topic": }', b'{"topic": "t"}'), first_line=4)
    assert report.messages == 2
    assert len(without(dump_bytes(tmp_path / "new"))) == 4


def test_nothing_is_made_when_the_first_line_is_broken(tmp_path: Path) -> None:
    with pytest.raises(InputInvalid, match="nothing was loaded"):
        load(tmp_path / "new", b"rubbish\n")
    assert not (tmp_path / "new").exists()


def test_a_message_the_store_rejects_is_named_by_its_line(tmp_path: Path) -> None:
    with pytest.raises(InputInvalid) as caught:
        load(tmp_path / "new", lines_of({"topic": "t"}, {"topic": "no spaces"}))
    assert caught.value.line == 2
    assert "character ' ' is not allowed" in str(caught.value)
    assert "1 messages before it are loaded" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        ('{"body": "", "topic": "../x"}', 14, "character '.' is not allowed"),
        ('{"topic": "t", "queueId": -1}', 16, "a whole number from 0"),
        ('{"topic": "t", "body": "aGVsbG8="}', 16, "body of 5 bytes is larger"),
        ('{"topic": "t", "bodyBase64": "aGVsbG8="}', 16, "body of 5 bytes is larger"),
        ('{"topic": "t", "properties": {"a": "%s"}}' % ("b" * 40_000), 16, "properties take"),
    ],
)
def test_a_first_line_the_store_rejects_makes_nothing(tmp_path: Path, line: str, column: int, reason: str) -> None:
    settings = SMALL.replace(message_bytes_max=4)
    with pytest.raises(InputInvalid, match="nothing was loaded") as caught:
        load(tmp_path / "new", line.encode(), settings)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert reason in str(caught.value)
    assert not (tmp_path / "new").exists()
    with pytest.raises(InputInvalid, match="1 messages before it") as caught:
        load(tmp_path / "new", b'{"topic": "t"}\n' + line.encode(), settings)
    assert (caught.value.line, caught.value.column) == (2, column)


def test_a_first_record_that_fits_only_the_files_that_are_there(tmp_path: Path) -> None:
    line = lines_of({"topic": "t", "body": "A" * 8000})
    with pytest.raises(InputInvalid, match="does not fit a log file"):
        load(tmp_path / "new", line, SMALL.replace(segment_bytes=4096))
    assert not (tmp_path / "new").exists()
    load(tmp_path / "new", lines_of({"topic": "t"}))
    assert load(tmp_path / "new", line, SMALL.replace(segment_bytes=4096)).messages == 1


def test_a_store_that_takes_no_messages_now_says_how_far_it_came(tmp_path: Path) -> None:
    with pytest.raises(AppendRefused, match=r"SLAVE.*some.jsonl:1; 0 messages"):
        load(tmp_path / "new", lines_of({"topic": "t"}), SMALL.replace(role=BrokerRole.SLAVE))


def test_a_store_that_somebody_has_open(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "new", SMALL) as _, pytest.raises(StoreLocked):
        load(tmp_path / "new", lines_of({"topic": "t"}))


def test_a_line_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "LINE_BYTES_MAX", 1 << 20)
    with pytest.raises(InputInvalid, match="more than 1 MiB"):
        load(tmp_path / "new", b" " * (1 << 20) + b"x")


def test_nothing_to_load_makes_an_empty_store(tmp_path: Path) -> None:
    assert load(tmp_path / "new", b"\n\n").messages == 0
    assert Survey.open(tmp_path / "new").log_end == 0


def test_under_sync_flush_everything_is_durable_in_the_end(tmp_path: Path) -> None:
    settings = SMALL.replace(flush=FlushDisk.SYNC)
    assert load(tmp_path / "new", lines_of(*[{"topic": "t"}] * 100), settings).messages == 100
    assert len(without(dump_bytes(tmp_path / "new"))) == 100


def test_progress_is_told(tmp_path: Path) -> None:
    reported: list[int] = []
    text = lines_of(*[{"topic": "t"}] * 50)
    report = load(tmp_path / "new", text, progress=lambda report: reported.append(report.messages))
    assert reported
    assert report.bytes_read == len(text)


# -- delayed messages ------------------------------------------------------------------------------------------


def delivered_so_far(path: Path) -> dict[int, int]:
    return load_entries(RealFiles(), path, DELAY_OFFSETS)


def test_delivered_messages_do_not_come_again(tmp_path: Path) -> None:
    source = golden.restore("delay", tmp_path / "golden")
    report = load(tmp_path / "new", dump_bytes(source))
    assert report.counted_as_delivered == 18
    assert delivered_so_far(tmp_path / "new") == delivered_so_far(source)
    before = len(without(dump_bytes(tmp_path / "new")))
    # What is parked at level 18 was due years ago, as far as its store time goes.
    with MessageStore.open(tmp_path / "new", SMALL) as store:
        waiting = store.max_offset(SCHEDULE_TOPIC, 17)
        assert waiting > 0
        while sum(store.message_count("DelayTopic", queue) for queue in (0, 1)) < 31:
            assert store.wait_for_dispatch()
        store.flush()
    assert len(without(dump_bytes(tmp_path / "new"))) == before + waiting


def test_a_delayed_message_is_not_parked_twice(tmp_path: Path) -> None:
    line = {"topic": "orders", "properties": {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "0"}}
    load(tmp_path / "new", lines_of(line))
    [found] = without(dump_bytes(tmp_path / "new"))
    assert found["topic"] == "orders"
    assert delivered_so_far(tmp_path / "new") == {}


def test_messages_that_were_waiting_before_are_not_passed_over(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "new", SMALL) as store:
        store.append(Message("t", b"waits", delay_level=18))
    parked = {
        "topic": SCHEDULE_TOPIC,
        "queueId": 17,
        "body": "bmV3",
        "properties": {"DELAY": "18", "REAL_TOPIC": "t", "REAL_QID": "0"},
    }
    report = load(tmp_path / "new", lines_of(parked, parked | {"topic": "t", "queueId": 0}))
    assert report.counted_as_delivered == 0
    assert delivered_so_far(tmp_path / "new").get(18, 0) == 0


def parked(body: str, **changes: Any) -> dict[str, Any]:
    """A message of level 1 as it waits."""
    properties = {"DELAY": "1", "REAL_TOPIC": "t", "REAL_QID": "0"}
    born = {"bornTimestamp": 1_700_000_000_000}
    return {"topic": SCHEDULE_TOPIC, "queueId": 0, "body": body, "properties": properties} | born | changes


def delivered(body: str, **changes: Any) -> dict[str, Any]:
    return parked(body, topic="t", **changes)


def bodies_after_delivery(path: Path, expected: int) -> list[bytes]:
    """What consumers of topic t got once everything that waits was delivered."""
    clock = ManualClock(2_000_000_000_000)
    with MessageStore.open(path, SMALL, clock=clock) as store:
        for _ in range(500):
            assert store.engine.services.delayed is not None
            if store.message_count("t", 0) >= expected and store.engine.services.delayed.first_parked() is None:
                break
            threading.Event().wait(0.01)
        return [message.body for message in store.fetch("t", 0, 0).messages]


def test_twins_are_told_apart_by_their_order(tmp_path: Path) -> None:
    report = load(tmp_path / "new", lines_of(parked("dHdpbg=="), parked("dHdpbg=="), delivered("dHdpbg==")))
    assert report.counted_as_delivered == 1
    assert delivered_so_far(tmp_path / "new") == {1: 1}
    assert bodies_after_delivery(tmp_path / "new", 2) == [b"twin"] * 2


def test_twins_born_at_different_times_are_told_apart_by_these(tmp_path: Path) -> None:
    """The first one's parked record has left the log, so that its delivery must not count for the second one."""
    second = 1_700_000_000_700
    load(tmp_path / "new", lines_of(parked("dHdpbg==", bornTimestamp=second), delivered("dHdpbg==")))
    assert delivered_so_far(tmp_path / "new") == {}
    assert bodies_after_delivery(tmp_path / "new", 2) == [b"twin"] * 2


def test_a_copy_of_a_store_with_twins_delivers_what_the_store_would(tmp_path: Path) -> None:
    clock = ManualClock()
    with MessageStore.open(tmp_path / "old", SMALL, clock=clock) as store:
        store.append(Message("t", b"tick", delay_level=1))
        clock.advance(ms=700)
        store.append(Message("t", b"tick", delay_level=1))
        clock.advance(ms=400)
        while store.message_count("t", 0) < 1:
            assert store.wait_for_dispatch()
    load(tmp_path / "new", dump_bytes(tmp_path / "old"))
    assert delivered_so_far(tmp_path / "new") == delivered_so_far(tmp_path / "old") == {1: 1}
    assert bodies_after_delivery(tmp_path / "new", 2) == [b"tick"] * 2


THREE = [parked("bTA="), parked("bTE="), parked("bTI=")]
ALL_THREE = [b"m0", b"m1", b"m2"]


def test_a_broken_line_after_deliveries_does_not_repeat_them(tmp_path: Path) -> None:
    text = lines_of(*THREE, delivered("bTA="), delivered("bTE="), delivered("bTI="))
    with pytest.raises(InputInvalid, match="6 messages before it are loaded"):
        load(tmp_path / "new", text + b"broken\n" + lines_of({"topic": "t", "body": "eA=="}))
    assert delivered_so_far(tmp_path / "new") == {1: 3}
    load(tmp_path / "new", text + b"broken\n" + lines_of({"topic": "t", "body": "eA=="}), first_line=8)
    assert delivered_so_far(tmp_path / "new") == {1: 3}
    assert bodies_after_delivery(tmp_path / "new", 4) == [*ALL_THREE, b"x"]


@pytest.mark.parametrize("delivered_before", [0, 1, 2])
def test_a_broken_line_before_deliveries_does_not_repeat_them(tmp_path: Path, delivered_before: int) -> None:
    """The rest is loaded with --start-line: its deliveries are of messages that wait since the first call."""
    rest = [delivered("bTA="), delivered("bTE="), delivered("bTI=")]
    text = lines_of(*THREE, *rest[:delivered_before]) + b"broken\n" + lines_of(*rest[delivered_before:])
    with pytest.raises(InputInvalid):
        load(tmp_path / "new", text)
    assert delivered_so_far(tmp_path / "new") == ({1: delivered_before} if delivered_before else {})
    report = load(tmp_path / "new", text, first_line=5 + delivered_before)
    assert report.counted_as_delivered == 3 - delivered_before
    assert delivered_so_far(tmp_path / "new") == {1: 3}
    assert bodies_after_delivery(tmp_path / "new", 3) == ALL_THREE


def test_going_on_does_not_pass_over_what_waited_for_itself(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "new", SMALL.replace(delayed_delivery=False)) as store:
        store.append(Message("t", b"own", delay_level=1))
    text = b"broken\n" + lines_of(parked("bTA="), delivered("bTA="))
    report = load(tmp_path / "new", text, first_line=2)
    assert report.counted_as_delivered == 0
    assert delivered_so_far(tmp_path / "new").get(1, 0) == 0
    assert sorted(bodies_after_delivery(tmp_path / "new", 3)) == [b"m0", b"m0", b"own"]  # Twice rather than never.


def test_nothing_counts_as_delivered_that_may_not_be_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embermq.repair.load.load.was_closed_cleanly", lambda files, root: False)
    load(tmp_path / "new", lines_of(parked("bTA="), delivered("bTA=")))
    assert delivered_so_far(tmp_path / "new") == {}


# -- where lines come from -------------------------------------------------------------------------------------


def test_a_file_and_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_bytes(b"123\n")
    opened, size = open_source(str(file), io.BytesIO())
    with opened:
        assert (opened.read(), size) == (b"123\n", 4)
    stdin = io.BytesIO(b"456")
    assert open_source("-", stdin) == (stdin, None)
    with pytest.raises(FileNotFoundError):
        open_source(str(tmp_path / "missing"), stdin)
