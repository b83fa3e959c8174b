"""The property screen: raw reads by a condition answer what fetches do, and pass over records without copying them."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq import Message, MessageStore, StoreSettings
from embermq.model.hosts import Host
from embermq.sql92 import compile_expression
from embermq.store import GroupFilter, PropertyFilter
from embermq.store.queues import raw_read

SETTINGS: dict[str, Any] = {
    "segment_bytes": 64 << 10,
    "queue_file_bytes": 20 * 1000,
    "index_slots_max": 10,
    "index_entries_max": 1000,
    "disk_full_percent": 100,
    "prefault_bytes_max": 0,
}
COUNT = 900


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Several log files, hosts of both kinds, records without properties."""
    path = tmp_path_factory.mktemp("screened")
    with MessageStore.open(path, StoreSettings(**SETTINGS)) as opened:
        for n in range(COUNT):
            properties = {"n": str(n), "kind": "rare" if n % 100 == 7 else "usual"} if n % 9 else {}
            born = Host("::1" if n % 50 == 3 else "127.0.0.1", 1000)
            opened.append(Message("orders", b"x" * (n % 700), queue_id=n % 2, properties=properties, born_host=born))
        opened.wait_for_dispatch()
        yield opened


def swept(store: MessageStore, wanted: Any, limit: int, *, raw: bool) -> list[tuple[int, int, str]]:
    """Where each read went on, with how much, to the end of the queue."""
    found, at = [], 0
    while True:
        if raw:
            read = store.read_raw("orders", 1, at, limit, filter=wanted)
            found.append((read.next_offset, read.count, str(read.status)))
            next_offset = read.next_offset
        else:
            fetched = store.fetch("orders", 1, at, limit, wanted)
            found.append((fetched.next_offset, len(fetched.messages), str(fetched.status)))
            next_offset = fetched.next_offset
        if next_offset == at:
            return found
        at = next_offset


@pytest.mark.parametrize("portion", [1, 7, 256])
@pytest.mark.parametrize(
    "expression", ["kind = 'rare'", "n > 800", "n IS NULL", "NOT (kind = 'rare')", "kind = 'none'", "kind > 5"]
)
def test_the_same_as_fetches(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch, expression: str, portion: int
) -> None:
    monkeypatch.setattr(raw_read, "SCREENED_PORTION", portion)
    wanted = PropertyFilter(compile_expression(expression).matches)
    assert swept(store, wanted, 32, raw=True) == swept(store, wanted, 32, raw=False)


@settings(max_examples=20, deadline=None)
@given(st.sets(st.integers(0, COUNT - 1), max_size=60), st.integers(1, 40))
def test_whatever_is_wanted(store: MessageStore, numbers: set[int], limit: int) -> None:
    texts = {str(n).encode() for n in numbers}
    wanted = GroupFilter(
        "orders", "g", lambda properties: any(b"n\x01" + t in properties.split(b"\x02") for t in texts)
    )
    assert swept(store, wanted, limit, raw=True) == swept(store, wanted, limit, raw=False)


def test_a_condition_that_fails_is_not_met(store: MessageStore) -> None:
    def condition(properties: bytes) -> bool:
        raise ValueError("no value")

    assert sum(count for _, count, _ in swept(store, GroupFilter("orders", "g", condition), 32, raw=True)) == 0


def test_records_with_damage_are_left_to_the_reader(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, StoreSettings(**SETTINGS)) as opened:
        receipts = [opened.append(Message("orders", b"body", properties={"n": str(n)})) for n in range(40)]
        opened.wait_for_dispatch()
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(receipts[20].physical_offset + 20)  # The queue offset: no longer the record of its entry.
        file.write(b"\x7f")
    with MessageStore.open(tmp_path, read_only=True) as opened:
        wanted = PropertyFilter(compile_expression("n = 30").matches)
        raw = opened.read_raw("orders", 0, 0, 32, filter=wanted)
        fetched = opened.fetch("orders", 0, 0, 32, wanted)
    assert (raw.count, raw.next_offset, raw.status) == (1, 40, fetched.status)
