"""Corners of the public API: what is rarely asked for, and has to be right all the same."""

import asyncio
import shutil
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embermq import BatchItem, FlushDisk, Host, Message, MessageBatch, MessageStore, StoreSettings, errors
from embermq.testing import ManualClock

SMALL = StoreSettings(
    segment_bytes=1 << 20, queue_file_bytes=200, index_slots_max=100, index_entries_max=400, disk_full_percent=100
)
START_MS = 1_704_067_200_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, SMALL) as opened:
        opened.append(Message("t", b"first"))  # A queue that is known is appended to by a shorter way.
        yield opened


# -- by key and time -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps_s", [[0, 100, 200, 300, 400, 500, 600], [0, 100, 50, 200, 20, 300, 10]])
@pytest.mark.parametrize("entries_max", [4, 400])
def test_a_search_by_time_is_exact_in_any_order_of_times(tmp_path: Path, steps_s: list[int], entries_max: int) -> None:
    clock = ManualClock(START_MS)
    with MessageStore.open(tmp_path, SMALL.replace(index_entries_max=entries_max), clock=clock) as store:
        for second in steps_s:
            clock.jump(ms=START_MS + 1000 * second + 7 - clock.now_ms())
            store.append(Message("t", str(second).encode(), keys=["k"]))
        for begin in range(0, 610, 10):
            for end in (begin, begin + 45, begin + 200, 1000):
                found = store.find("t", "k", START_MS + 1000 * begin, START_MS + 1000 * end)
                expected = [str(second).encode() for second in steps_s if begin <= second < end]
                assert [message.body for message in found] == expected, (begin, end)


@pytest.mark.parametrize("gone", ["all", "first", "last"])
def test_a_reader_makes_up_for_index_files_that_are_gone(tmp_path: Path, gone: str) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        store.append_many(Message("t", b"%d" % n, keys=["k"]) for n in range(900))
    files = sorted((tmp_path / "index").iterdir())
    assert len(files) > 2
    if gone == "all":
        shutil.rmtree(tmp_path / "index")
    else:
        files[0 if gone == "first" else -1].unlink()
    with MessageStore.open(tmp_path, SMALL, read_only=True) as reader:
        assert [int(message.body) for message in reader.find("t", "k")] == list(range(900))


def test_an_id_of_another_host_is_nobodys(store: MessageStore) -> None:
    receipt = store.append(Message("t", b"x"))
    assert store.get("0A000001" + receipt.message_id[8:]) is None
    found = store.get(receipt.message_id)
    assert found is not None
    assert found.message_id == receipt.message_id


def test_all_tags(store: MessageStore) -> None:
    store.append(Message("t", b"x", tags="a"))
    assert len(store.fetch("t", 0, 0, tags=None).messages) == 2


# -- what may be appended --------------------------------------------------------------------------------------


@pytest.mark.parametrize("body_bytes", [10, 40_000])
@pytest.mark.parametrize("properties", [{}, {"a": "b"}, {"DELAY": "0"}])
def test_keys_may_come_from_an_iterator(store: MessageStore, body_bytes: int, properties: dict[str, str]) -> None:
    keys = (key for key in ("k1", "k2"))
    receipt = store.append(Message("t", bytes(body_bytes), keys=keys, properties=properties))
    message = store.get(receipt.message_id)
    assert message is not None
    assert message.keys == ["k1", "k2"]


def test_keys_of_a_batch_may_come_from_an_iterator(store: MessageStore) -> None:
    header = Message("t", keys=(key for key in ("k1", "k2")))
    store.append_batch(MessageBatch(header, [BatchItem(b"one"), BatchItem(b"two")]))
    assert [message.body for message in store.find("t", "k2")] == [b"one", b"two"]


@pytest.mark.parametrize("body", [b"abc", bytearray(b"abc"), memoryview(b"abc"), memoryview(b"a.b.c")[::2]])
def test_a_body_is_anything_that_is_bytes(store: MessageStore, body: Any) -> None:
    for receipt in (store.append(Message("t", body)), *store.append_many([Message("t", body)] * 2)):
        message = store.get(receipt.message_id)
        assert message is not None
        assert message.body == b"abc"


WRONG = [
    ({"body": "text"}, "the body is of type str"),
    ({"body": None}, "the body is of type NoneType"),
    ({"body": array("i", [1])}, "the body is of type array"),
    ({"flag": None}, "flag None"),
    ({"sys_flag": None}, "sys_flag None"),
    ({"reconsume_times": None}, "reconsume_times None"),
    ({"prepared_transaction_offset": None}, "prepared_transaction_offset None"),
    ({"properties": {"a": None}}, "a value is None"),
]


@pytest.mark.parametrize("before", [0, 1, 300])
@pytest.mark.parametrize(("fields", "words"), WRONG)
def test_what_cannot_be_stored_stores_nothing(
    store: MessageStore, fields: dict[str, Any], words: str, before: int
) -> None:
    wrong = Message(**{"topic": "t", "body": b"x", **fields})
    end = store.max_physical
    with pytest.raises(errors.MessageRejected, match=words):
        store.append_many([*[Message("t", b"x")] * before, wrong])
    with pytest.raises(errors.MessageRejected, match=words):
        store.append(wrong)
    assert store.max_physical == end
    assert store.append(Message("t", b"x")).queue_offset == 1


@pytest.mark.parametrize("names", ["../../evil", "a\0b", "x" * 300, "good,../evil", "good,,other"])
def test_names_of_further_queues_are_looked_at(tmp_path: Path, names: str) -> None:
    with MessageStore.open(tmp_path, SMALL.replace(multi_dispatch=True, light_queues=True)) as store:
        with pytest.raises(errors.PropertyInvalid, match="cannot be the name of a queue"):
            store.append(Message("t", b"x", properties={"INNER_MULTI_DISPATCH": names}))
        assert store.max_physical == 0


def test_offsets_of_further_queues_count_for_the_limits(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL.replace(multi_dispatch=True, light_queues=True)) as store:
        many = ",".join(f"%LMQ%{n}" for n in range(3000))
        with pytest.raises(errors.PropertiesTooLarge):
            store.append(Message("t", b"x", properties={"INNER_MULTI_DISPATCH": many}))
        assert store.append(Message("t", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"})).ok
        fixed = len(b"INNER_MULTI_DISPATCH\x01%LMQ%a") + 91 + len("t") + 8
        end = store.max_physical
        with pytest.raises(errors.RecordTooLarge):
            store.append(Message("t", bytes((1 << 20) - fixed), properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}))
        assert store.max_physical == end, "it has not gone on to the next file for nothing"
        assert store.max_offset("%LMQ%a", 0) == 1


# -- futures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_what_is_stored_cannot_be_cancelled(tmp_path: Path, flush: FlushDisk) -> None:
    with MessageStore.open(tmp_path, SMALL.replace(flush=flush)) as store:
        futures = [store.append_async(Message("t", b"x")) for _ in range(50)]
        assert not any(future.cancel() for future in futures)
        assert all(future.result(30).ok for future in futures)
        assert store.append(Message("t", b"x")).ok


def test_a_coroutine_that_gives_up_waiting_hurts_nobody(tmp_path: Path) -> None:
    async def give_up(store: MessageStore) -> None:
        for _ in range(20):
            try:
                await asyncio.wait_for(asyncio.wrap_future(store.append_async(Message("t", b"x"))), 0)
            except TimeoutError:
                pass

    with MessageStore.open(tmp_path, SMALL.replace(flush=FlushDisk.SYNC)) as store:
        asyncio.run(give_up(store))
        assert store.append(Message("t", b"x")).ok
        assert store.max_offset("t", 0) == 21


# -- figures and filters ---------------------------------------------------------------------------------------


def test_ratios_of_all_log_directories(tmp_path: Path) -> None:
    places = (tmp_path / "one", tmp_path / "two")
    with MessageStore.open(tmp_path / "store", SMALL.replace(commit_log_paths=places)) as store:
        info = store.runtime_info()
    assert all(0 < float(info[f"commitLogDiskRatio_{place}"]) <= 1 for place in places)
    assert float(info["commitLogDiskRatio"]) == min(float(info[f"commitLogDiskRatio_{place}"]) for place in places)


def test_filter_bits_that_fail_cost_only_themselves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(batch: Any, row: int) -> bytes:
        raise ValueError("no bits today")

    settings = SMALL.replace(queue_extension=True)
    for round_number in (1, 2):
        with MessageStore.open(tmp_path, settings, bit_map_for=fail) as store:
            store.append(Message("t", b"x", tags="a"))
            assert len(store.fetch("t", 0, 0, tags="a").messages) == round_number
    reported = [record.getMessage() for record in caplog.records if "filter bits failed" in record.getMessage()]
    assert len(reported) == 2, "once for each run"


@pytest.mark.parametrize("value", [65536, "65536", " 65536 "])
def test_numbers_among_properties(value: Any) -> None:
    properties = {"mappedFileSizeCommitLog": value, "messageIndexEnable": False}
    settings = StoreSettings.from_properties(properties)
    assert (settings.segment_bytes, settings.index) == (65536, False)


@pytest.mark.parametrize("value", [None, 1.5, ["65536"]])
def test_properties_that_are_no_text(value: Any) -> None:
    with pytest.raises(errors.SettingsError, match="mappedFileSizeCommitLog"):
        StoreSettings.from_properties({"mappedFileSizeCommitLog": value})


def test_hosts_of_both_kinds_make_ids_that_are_found(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        for host in (Host("10.0.0.1", 1), Host("2001:db8::1", 2)):
            receipt = store.append(Message("t", b"x", store_host=host))
            found = store.get(receipt.message_id)
            assert found is not None
            assert found.store_host == host
