"""append_many with kernels and without: the same bytes in the log, the same receipts, the same errors.

Two stores stand side by side, one that never uses kernels and one that always does; whatever is appended goes to both.
"""

import array
import datetime
import enum
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq import Host, Message, MessageStore, Receipt, StoreSettings
from embermq.columns.choosing import WORTH_LOADING
from embermq.settings import KernelUse
from embermq.store.append.runs import (
    ORDINARY_PER_PLAIN_MIN,
    RUN_MESSAGES_MAX,
    RUN_MESSAGES_MIN,
    Receipts,
)
from embermq.testing import ManualClock
from tests.columns.test_messages import messages

SMALL: dict[str, Any] = {
    "segment_bytes": 64 << 10,
    "message_bytes_max": 2000,
    "disk_full_percent": 100,
    "delayed_delivery": False,
}


class Pair:
    """A store without kernels, and one with."""

    def __init__(self, path: Path, **changes: Any) -> None:
        self.clock = ManualClock()
        self.plain, self.fast = (
            self._open(path / use.value, StoreSettings(**{**SMALL, **changes, "kernels": use}))
            for use in (KernelUse.NEVER, KernelUse.ALWAYS)
        )

    def _open(self, path: Path, settings: StoreSettings) -> MessageStore:
        return MessageStore.open(path, settings, clock=self.clock, dispatch="none")

    def close(self) -> None:
        self.plain.close()
        self.fast.close()

    def append(self, some: list[Message]) -> Sequence[Receipt] | Exception:
        """What both stores answer."""
        before = self.plain.max_physical
        outcomes: list[Sequence[Receipt] | Exception] = []
        for store in (self.plain, self.fast):
            try:
                outcomes.append(store.append_many(some))
            except Exception as problem:
                outcomes.append(problem)
        plain, fast = outcomes
        if isinstance(plain, Exception):
            assert (type(fast), str(fast)) == (type(plain), str(plain))
        else:
            assert not isinstance(fast, Exception), fast
            assert list(fast) == list(plain)
        assert self.fast.max_physical == self.plain.max_physical
        assert self.bytes_of(self.fast, before) == self.bytes_of(self.plain, before)
        return fast

    @staticmethod
    def bytes_of(store: MessageStore, start: int) -> bytes:
        files = sorted((store.path / "commitlog").iterdir())
        found = b"".join(file.read_bytes() for file in files if file.stat().st_size)
        return found[start : store.max_physical]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    both = Pair(tmp_path)
    yield both
    both.close()


def order(number: int, **fields: Any) -> Message:
    values = {"topic": "orders", "body": b"order %d" % number, "tags": "paid", "keys": f"o-{number}", **fields}
    return Message(**values)


ORDERS = [order(number, queue_id=number % 3) for number in range(RUN_MESSAGES_MIN)]


@pytest.mark.slow
def test_any_list(pair: Pair) -> None:
    @settings(max_examples=150, deadline=None)
    @given(st.lists(messages(), min_size=1, max_size=12), st.integers(0, 2))
    def check(some: list[Message], step_ms: int) -> None:
        pair.clock.advance(ms=step_ms)
        pair.append([*ORDERS, *some, *ORDERS])

    check()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"body": b""},
        {"tags": None, "keys": ()},
        {"keys": ["a", "b"]},
        {"keys": ("a",)},
        {"tags": "grün", "keys": "钥匙"},
        {"properties": {"region": "eu", "shop": "7"}},
        {"properties": {"Aa": "1", "BB": "2", "C#": "3"}},
        {"properties": {}},
        {"tags": None, "keys": (), "encoded_properties": b"UNIQ_KEY\x01u\x02KEYS\x01k\x02"},
        {"born_timestamp": 0},
        {"born_timestamp": -1},
        {"flag": -1},
        {"sys_flag": 0x301},
        {"sys_flag": 0x30},
        {"reconsume_times": 16},
        {"sys_flag": 4, "prepared_transaction_offset": 77},
        {"sys_flag": 8},
    ],
    ids=str,
)
def test_ordinary_messages_are_one_run(pair: Pair, fields: dict[str, Any]) -> None:
    receipts = pair.append([order(number, **fields) for number in range(RUN_MESSAGES_MIN)])
    assert isinstance(receipts, Receipts)


@pytest.mark.parametrize(
    "fields",
    [
        {"delay_level": 3},
        {"properties": {"DELAY": "2"}},
        {"wait_for_store": False},
        {"properties": {"WAIT": "false"}},
        {"born_host": Host("10.0.0.1", 1)},
        {"born_host": Host("::1", 1)},
        {"store_host": Host("2001:db8::1", 5)},
        {"properties": dict.fromkeys("abcdefghijklmn", "1")},
        {"properties": {"TAGS": "paid"}},
        {"properties": {"n": "x"}, "encoded_properties": b"a\x01b", "tags": None, "keys": ()},
        {"encoded_properties": b"a\x01b"},
        {"tags": 5},
    ],
    ids=str,
)
def test_others_keep_their_place_between_runs(pair: Pair, fields: dict[str, Any]) -> None:
    some = [*ORDERS, order(77, **fields), *ORDERS, order(78, **fields), order(79)]
    receipts = pair.append(some)
    assert not isinstance(receipts, Exception)
    assert len(receipts) == len(some)
    if "store_host" in fields:
        assert [index for index, receipt in enumerate(receipts) if receipt.store_host != receipts[0].store_host] == [
            RUN_MESSAGES_MIN,
            2 * RUN_MESSAGES_MIN + 1,
        ]


class Tag(str, enum.Enum):  # noqa: UP042 - shows itself as Tag.PAID where a StrEnum shows its value
    PAID = "paid"


class Shop(enum.IntEnum):
    FIRST = 1


class Loud(Message, frozen=True):
    """Sees to its properties itself."""

    def property_bytes(self) -> bytes:
        return b"loud\x01yes"


class Text(str):
    """A text of somebody's own."""


ODD: list[dict[str, Any]] = [
    {"body": "text"},
    {"body": bytearray(b"raw")},
    {"body": memoryview(b"view")},
    {"body": None},
    {"body": 5},
    {"body": memoryview(b"abcdef")[::2]},
    {"topic": Tag.PAID},
    {"topic": b"orders"},
    {"topic": None},
    {"topic": Text("orders")},
    {"tags": Tag.PAID},
    {"tags": Text("paid")},
    {"tags": datetime.date(2024, 1, 1)},
    {"tags": b"paid"},
    {"tags": 0},
    {"tags": "\ud800"},
    {"tags": "a\x02"},
    {"tags": np.str_("paid")},
    {"keys": Tag.PAID},
    {"keys": [Tag.PAID]},
    {"keys": {"a"}},
    {"keys": None},
    {"keys": 5},
    {"keys": [5]},
    {"keys": ["a b"]},
    {"keys": ""},
    {"keys": []},
    {"keys": [""]},
    {"keys": [b"a"]},
    {"keys": {"a": 1}},
    {"keys": datetime.timedelta(1)},
    {"queue_id": Shop.FIRST},
    {"queue_id": True},
    {"queue_id": np.int64(1)},
    {"queue_id": 2**31},
    {"queue_id": -1},
    {"queue_id": 1.0},
    {"queue_id": None},
    {"properties": {"a": 5}},
    {"properties": {"a": Tag.PAID}},
    {"properties": {5: "a"}},
    {"properties": OrderedDict(a="b")},
    {"properties": {"a": ""}},
    {"properties": {"": "a"}},
    {"properties": {"TAGS": "sent"}},
    {"properties": None},
    {"properties": {"DELAY": "soon"}},
    {"encoded_properties": "text", "tags": None, "keys": ()},
    {"encoded_properties": bytearray(b"a\x01b"), "tags": None, "keys": ()},
    {"born_timestamp": 2**63},
    {"born_timestamp": 1.5},
    {"born_timestamp": Shop.FIRST},
    {"flag": 2**31},
    {"flag": True},
    {"flag": None},
    {"flag": Shop.FIRST},
    {"sys_flag": 2**40},
    {"sys_flag": -1},
    {"reconsume_times": "1"},
    {"wait_for_store": 1},
    {"prepared_transaction_offset": 2**63},
    {"delay_level": "1"},
    {"topic": "no/slash"},
    {"topic": ""},
    {"topic": "t" * 128},
    {"body": bytes(2001)},
    {"properties": {"a": "x" * 40_000}},
    {"body": memoryview(array.array("i", [1, 2]))},
]


@pytest.mark.parametrize("fields", ODD, ids=[f"{number}-{next(iter(fields))}" for number, fields in enumerate(ODD)])
@pytest.mark.slow
def test_odd_values_are_taken_or_refused_alike(pair: Pair, fields: dict[str, Any]) -> None:
    pair.append([*ORDERS, order(1, **fields), *ORDERS])
    pair.append(ORDERS)


def test_what_is_no_message_and_what_is_more_than_one(pair: Pair) -> None:
    pair.append([*ORDERS, Loud("orders", b"loud", tags="quiet")])
    for stranger in (None, {"topic": "orders"}, "orders", b"orders"):
        assert isinstance(pair.append([*ORDERS, stranger]), Exception)  # type: ignore[list-item]


def test_keys_that_can_be_read_only_once(pair: Pair) -> None:
    for store in (pair.plain, pair.fast):
        some = [order(number, keys=(key for key in ("a", f"b{number}"))) for number in range(RUN_MESSAGES_MIN)]
        store.append_many(some)
    assert pair.bytes_of(pair.fast, 0) == pair.bytes_of(pair.plain, 0)


def test_a_bad_one_leaves_nothing_behind(pair: Pair) -> None:
    for bad in (order(1, topic="no/slash"), order(1, body=bytes(2001)), order(1, keys=["a b"])):
        assert isinstance(pair.append([*ORDERS, bad, *ORDERS]), Exception)
    assert pair.fast.max_physical == 0
    assert pair.fast.stats().put_count == 0


def test_runs_go_on_in_the_next_file(pair: Pair) -> None:
    some = [order(number, body=bytes(number % 1500), queue_id=number % 5) for number in range(500)]
    for _ in range(3):
        assert isinstance(pair.append(some), Receipts)
    assert len(sorted((pair.fast.path / "commitlog").iterdir())) > 8
    assert pair.fast.stats().put_count == 1500


def test_more_than_is_packed_at_a_time(tmp_path: Path) -> None:
    pair = Pair(tmp_path, segment_bytes=4 << 20)
    some = [order(number, topic=f"topic-{number % 300}") for number in range(2 * RUN_MESSAGES_MAX + 5)]
    some[RUN_MESSAGES_MAX] = order(1, delay_level=1)
    assert len(pair.append(some)) == len(some)  # type: ignore[arg-type]
    pair.close()


def test_mostly_unusual_messages_go_the_plain_way_together(pair: Pair) -> None:
    few = len(ORDERS) // ORDINARY_PER_PLAIN_MIN
    assert len(pair.append([*ORDERS[few:], *(order(n, delay_level=1) for n in range(few))])) == len(ORDERS)  # type: ignore[arg-type]
    delayed = [order(number, delay_level=1 + number % 18) for number in range(RUN_MESSAGES_MIN)]
    assert not isinstance(pair.append(delayed), Receipts)


def test_a_store_with_an_ipv6_address(tmp_path: Path) -> None:
    pair = Pair(tmp_path, broker_ip="2001:db8::7")
    assert isinstance(pair.append(ORDERS), Receipts)
    pair.close()


def test_kernels_are_used_when_they_have_become_worth_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("embermq.columns.choosing.is_loaded", lambda name: False)
    few = [order(number) for number in range(1000)]
    with MessageStore.open(tmp_path / "store", StoreSettings(segment_bytes=16 << 20), dispatch="none") as store:
        answers = [isinstance(store.append_many(few), Receipts) for _ in range(WORTH_LOADING["messages"] // 1000 + 2)]
        assert [(worth, len(list(same))) for worth, same in groupby(answers)] == [(False, 19), (True, 3)]
        assert not isinstance(store.append_many(ORDERS[1:]), Receipts)


def test_threads_that_meet_new_queues_together(tmp_path: Path) -> None:
    """Each queue's offsets are given out once, whoever makes the queue."""
    pair = Pair(tmp_path, segment_bytes=4 << 20)
    receipts: list[tuple[str, int]] = []

    def work(worker: int) -> None:
        for round_number in range(5):
            some = [order(n, topic=f"t-{round_number}-{n % 50}", keys=f"{worker}") for n in range(200)]
            answers = pair.fast.append_many(some)
            receipts.extend((message.topic, answer.queue_offset) for message, answer in zip(some, answers, strict=True))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    topics = [f"t-{round_number}-{number}" for round_number in range(5) for number in range(50)]
    assert sorted(receipts) == sorted((topic, offset) for topic in topics for offset in range(16))
    pair.close()


def test_receipts_are_made_when_looked_at(pair: Pair) -> None:
    receipts = pair.append(ORDERS)
    assert isinstance(receipts, Receipts)
    as_list = list(receipts)
    assert len(receipts) == len(as_list) == RUN_MESSAGES_MIN
    assert receipts[-1] == as_list[-1]
    assert list(receipts[3:5]) == as_list[3:5]
    assert receipts == as_list
    assert receipts[0] in receipts
    assert repr(receipts[:1]) == f"Receipts([{as_list[0]!r}])"
