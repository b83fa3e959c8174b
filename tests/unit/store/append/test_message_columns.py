"""append_columns: the same bytes as append_many of the same messages, from lists and from Arrow arrays."""

import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq import FlushDisk, Message, MessageStore, PutStatus, StoreSettings
from embermq.columns.compiled.pairs import put_pairs
from embermq.columns.plain import pairs as plain
from embermq.columns.plain.pairs import ALL_PUT, ValueColumn, measure_pairs
from embermq.errors import BodyTooLarge, MessageRejected, PropertyInvalid, StoreReadOnly, TopicNameInvalid
from embermq.settings import KernelUse
from embermq.testing import FaultyFiles, LossyFiles, ManualClock
from tests.columns.guarded import GuardedMemory

SMALL: dict[str, Any] = {
    "segment_bytes": 64 << 10,
    "message_bytes_max": 2000,
    "disk_full_percent": 100,
    "delayed_delivery": False,
}
ROWS = 40
BODIES = [b"order %d" % number for number in range(ROWS)]
KEYS_OF = [f"o-{number}" for number in range(ROWS)]


class Stores:
    """One store that is given messages, and two that are given columns: without kernels, and with."""

    def __init__(self, path: Path) -> None:
        clock = ManualClock()
        uses = {"messages": KernelUse.NEVER, "plain": KernelUse.NEVER, "fast": KernelUse.ALWAYS}
        self.messages, self.plain, self.fast = (
            MessageStore.open(path / name, StoreSettings(**SMALL, kernels=use), clock=clock, dispatch="none")
            for name, use in uses.items()
        )

    def close(self) -> None:
        for store in (self.messages, self.plain, self.fast):
            store.close()

    def check(self, expected: list[Message], topic: Any, bodies: Any, **columns: Any) -> None:
        """Both ways give the same receipts and the same bytes."""
        before = self.messages.max_physical
        receipts = list(self.messages.append_many(expected))
        for store in (self.plain, self.fast):
            assert list(store.append_columns(topic, bodies, **columns)) == receipts
        for store in (self.plain, self.fast):
            assert log_bytes(store)[before:] == log_bytes(self.messages)[before:]


def log_bytes(store: MessageStore) -> bytes:
    files = sorted((store.path / "commitlog").iterdir())
    return b"".join(file.read_bytes() for file in files if file.stat().st_size)[: store.max_physical]


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    three = Stores(tmp_path)
    yield three
    three.close()


def test_lists_and_single_values(stores: Stores) -> None:
    stores.check([Message("orders", body) for body in BODIES], "orders", BODIES)
    stores.check(
        [Message("orders", body, tags="paid", keys=key) for body, key in zip(BODIES, KEYS_OF, strict=True)],
        "orders",
        BODIES,
        tags="paid",
        keys=KEYS_OF,
    )
    stores.check(
        [Message(f"t-{n % 3}", BODIES[n], queue_id=n % 5, born_timestamp=n) for n in range(ROWS)],
        [f"t-{n % 3}" for n in range(ROWS)],
        tuple(BODIES),
        queue_id=np.arange(ROWS) % 5,
        born_timestamp=list(range(ROWS)),
    )
    stores.check([], "orders", [])


def test_bodies_that_are_views(stores: Stores) -> None:
    words = memoryview(array.array("i", [1, 2, 3]))
    stores.check(
        [Message("orders", bytes(words)), Message("orders", b"raw"), Message("orders", b"view")],
        "orders",
        [words, bytearray(b"raw"), memoryview(b"view")],
    )


def test_rows_without_a_tag_or_a_key(stores: Stores) -> None:
    tags = [None, "", "grün", "paid"] * 10
    keys: list[Any] = ["a b", None, ["x", "y"], ()] * 10
    stores.check(
        [Message("orders", BODIES[n], tags=tags[n], keys=keys[n] or ()) for n in range(ROWS)],
        "orders",
        BODIES,
        tags=tags,
        keys=keys,
    )


@pytest.mark.parametrize("names", [["region", "shop"], ["Aa", "BB", "C#"], [f"name-{n}" for n in range(11)]])
def test_properties_in_the_order_of_java(stores: Stores, names: list[str]) -> None:
    columns: dict[str, Any] = {name: [f"{name}-{n}" for n in range(ROWS)] for name in names}
    columns[names[0]] = [None if n % 3 else f"v{n}" for n in range(ROWS)]
    columns[names[1]] = "for all"
    rows = [
        {name: values if isinstance(values, str) else values[n] for name, values in columns.items()}
        for n in range(ROWS)
    ]
    stores.check(
        [
            Message(
                "orders",
                BODIES[n],
                tags="paid",
                keys=KEYS_OF[n],
                properties={name: value for name, value in rows[n].items() if value is not None},
            )
            for n in range(ROWS)
        ],
        "orders",
        BODIES,
        tags="paid",
        keys=KEYS_OF,
        properties=columns,
    )


@pytest.mark.parametrize("size", ["", "large_"])
def test_arrow_arrays_as_they_lie(stores: Stores, size: str) -> None:
    """Sliced ones with nulls, chunked ones, dictionaries, lists of keys."""
    binary, string = getattr(pa, f"{size}binary")(), getattr(pa, f"{size}string")()
    tags = [None if n % 4 == 0 else f"täg-{n}" for n in range(ROWS)]
    keys = [[f"a-{n}", f"b-{n}"] if n % 2 else None for n in range(ROWS)]
    shop = [f"s-{n % 3}" for n in range(ROWS)]
    padded = pa.array([b"before", *BODIES, b"after"], binary).slice(1, ROWS)
    chunked = pa.chunked_array([pa.array(["x", *tags[:7]], string).slice(1), pa.array(tags[7:], string)])
    stores.check(
        [
            Message("orders", BODIES[n], tags=tags[n], keys=keys[n] or (), properties={"shop": shop[n]}, queue_id=n % 2)
            for n in range(ROWS)
        ],
        pa.array(["orders"] * ROWS, string),
        padded,
        tags=chunked,
        keys=pa.array(keys, pa.list_(pa.string())),
        properties={"shop": pa.array(shop).dictionary_encode()},
        queue_id=pa.array([n % 2 for n in range(ROWS)], pa.int32()),
    )


def test_delayed_columns_are_parked(stores: Stores) -> None:
    levels = [None if n % 2 else "3" for n in range(ROWS)]
    stores.check(
        [Message("orders", BODIES[n], delay_level=3 if levels[n] else 0) for n in range(ROWS)],
        "orders",
        BODIES,
        properties={"DELAY": levels},
    )


@pytest.mark.parametrize(
    ("columns", "kind", "reason"),
    [
        ({"bodies": b"raw"}, MessageRejected, "bodies: a list or an Arrow array is expected, not bytes"),
        ({"bodies": [b"a", "b"]}, MessageRejected, "bodies: row 1 is of type str; bytes are expected"),
        ({"bodies": pa.array([b"a", None])}, MessageRejected, "bodies: row 1 is null"),
        ({"bodies": pa.array([1, 2])}, MessageRejected, "bodies: an Arrow array of int64; cast it to binary"),
        ({"bodies": [b"a", bytes(2001)]}, BodyTooLarge, "2,?001"),
        ({"topic": "no/slash"}, TopicNameInvalid, "'/' is not allowed"),
        ({"topic": ["orders", None]}, MessageRejected, "topic: a row has none"),
        ({"topic": 5}, MessageRejected, "topic: a list or an Arrow array is expected, not int"),
        ({"tags": ["a"]}, MessageRejected, "tags: 1 rows, where there are 2 bodies"),
        ({"tags": ["a", 5]}, MessageRejected, "tags: a row is of type int; texts are expected"),
        ({"tags": ["a", "b\x01"]}, PropertyInvalid, "'TAGS': the value holds the control character"),
        ({"tags": ["a", "\ud800"]}, PropertyInvalid, "tags: a text holds a lone surrogate"),
        ({"keys": [["a b"], ["c"]]}, PropertyInvalid, "key 'a b'"),
        ({"properties": {"a": ["x", ""]}}, PropertyInvalid, "'a': the value is empty"),
        ({"properties": {"": "x"}}, PropertyInvalid, "the name is empty"),
        ({"properties": {5: "x"}}, PropertyInvalid, "property 5: a name is a text"),
        ({"properties": ["x", "y"]}, MessageRejected, "a mapping of names to columns"),
        ({"properties": {"TAGS": "x"}, "tags": "y"}, PropertyInvalid, "property TAGS is given twice"),
        ({"queue_id": -1}, MessageRejected, "queue_id -1"),
        ({"queue_id": [0]}, MessageRejected, "queue_id: a whole number, or one for each of the 2 rows"),
        ({"queue_id": [0, 0.5]}, MessageRejected, "queue_id: a whole number"),
        ({"queue_id": "0"}, MessageRejected, "queue_id: a whole number"),
        ({"born_timestamp": 1 << 63}, MessageRejected, "is not a 64-bit number"),
        ({"born_timestamp": np.array([1, 1 << 63], np.uint64)}, MessageRejected, "born_timestamp: a whole number"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_stored_leaves_nothing_behind(
    stores: Stores, columns: dict[str, Any], kind: type[Exception], reason: str
) -> None:
    values: dict[str, Any] = {"topic": "orders", "bodies": [b"a", b"b"], **columns}
    for store in (stores.plain, stores.fast):
        with pytest.raises(kind, match=reason):
            store.append_columns(**values)
        assert store.max_physical == 0


def test_under_sync_flush_it_waits_for_the_disk() -> None:
    files = FaultyFiles(LossyFiles())
    sync = StoreSettings(**SMALL, flush=FlushDisk.SYNC, kernels=KernelUse.ALWAYS)
    with MessageStore.open(Path("/s"), sync, files=files, dispatch="none") as store:
        receipts = store.append_columns("orders", BODIES, tags="paid")
        assert {receipt.status for receipt in receipts} == {PutStatus.PUT_OK}
        assert store.flushed_offset >= receipts[-1].physical_offset + receipts[-1].size
    with MessageStore.open(Path("/s"), sync, files=files, read_only=True) as reader:
        assert [message.body for message in reader.scan()] == BODIES
        with pytest.raises(StoreReadOnly):
            reader.append_columns("orders", BODIES)


# -- property strings column by column ---------------------------------------------------------------------------------

MEMORY = [GuardedMemory(1 << 12) for _ in range(2)]
TEXTS = st.one_of(st.none(), st.sampled_from(["", "paid", "a\x01", "b\x02", "x" * 20]), st.text(max_size=9))


def column_of(texts: list[str | None]) -> ValueColumn:
    raw = [b"" if text is None else text.encode("utf-8", "replace") for text in texts]
    lengths = np.array([-1 if text is None else len(part) for text, part in zip(texts, raw, strict=True)], np.int64)
    starts = np.cumsum([0, *map(len, raw)], dtype=np.int64)[:-1]
    return ValueColumn(b"".join(raw), starts, lengths)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=6), st.integers(-2, 2), st.data())
def test_the_kernel_puts_the_same_pairs(rows: list[tuple[Any, Any]], room: int, data: st.DataObject) -> None:
    """Also where there is too little room, and where positions and lengths are wrong."""
    columns = [(b"KEYS", column_of([row[0] for row in rows])), (b"n", column_of([row[1] for row in rows]))]
    sizes = measure_pairs(columns, len(rows))
    starts = np.cumsum(sizes) - sizes
    if rows and room:
        column, row = columns[0][1], data.draw(st.integers(0, len(rows) - 1))
        wrong = data.draw(st.sampled_from([-5, 1, 1 << 40, (1 << 63) - 1]))
        (column.starts if room > 0 else column.lengths)[row] = wrong
    outcomes = []
    for kernel in (True, False):
        out = np.zeros(max(0, int(sizes.sum()) + room), np.uint8)
        ends, answers = starts.copy(), []
        for name, column in columns:
            if kernel:
                held = ValueColumn(MEMORY[0].hold(column.data), column.starts, column.lengths)
                target = MEMORY[1].hold(out)
                answers.append(put_pairs(target, starts, ends, name, held))
                out = target.copy()
            else:
                answers.append(plain.put_pairs(out, starts, ends, name, column))
        outcomes.append((answers, ends.tolist(), out.tobytes()))
    assert outcomes[0] == outcomes[1]
    assert ALL_PUT == -1
