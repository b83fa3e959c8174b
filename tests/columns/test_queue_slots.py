"""Slots of queues: dense, kept, and the same whether rows are looked up by the kernel or one by one."""

import pytest

from embermq.columns import NO_SLOT, QueueSlots, RecordColumns
from tests.support.records import LogOfRecords


@pytest.fixture(params=["plain", "compiled"], autouse=True)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = request.param == "compiled"
    monkeypatch.setattr("embermq.columns.queue_slots.pays", lambda *_: answer)


def records(*queues: tuple[str, int]) -> RecordColumns:
    log = LogOfRecords()
    for number, (topic, queue_id) in enumerate(queues):
        log.append(topic, queue_id, number)
    return log.columns()


def test_slots_are_given_in_order_of_appearance_and_kept() -> None:
    slots = QueueSlots()
    assert slots.route(records(("a", 1), ("b", 0), ("a", 1), ("a", 0))).tolist() == [0, 1, 0, 2]
    assert slots.route(records(("c", 7), ("a", 0), ("b", 0))).tolist() == [3, 2, 1]
    assert slots.names == [("a", 1), ("b", 0), ("a", 0), ("c", 7)]
    assert len(slots) == 4
    assert (slots.find("a", 0), slots.find("a", 2)) == (2, NO_SLOT)
    assert slots.route(records()).tolist() == []


def test_a_name_and_its_spelling_in_records_are_one_queue() -> None:
    slots = QueueSlots()
    assert slots.add("b", 3) == 0
    assert slots.route(records(("a", 0), ("b", 3))).tolist() == [1, 0]
    assert slots.add("a", 0) == slots.add_spelled(b"a", 0) == 1


def test_looking_rows_up_adds_nothing() -> None:
    slots = QueueSlots()
    slots.add_spelled(b"a", 0)
    assert slots.find_rows(records(("a", 0), ("b", 0), ("a", 1))).tolist() == [0, NO_SLOT, NO_SLOT]
    assert slots.names == [("a", 0)]


def test_what_is_refused_is_asked_about_once_and_has_no_slot() -> None:
    asked: list[tuple[str, int]] = []

    def accepts(topic: str, queue_id: int) -> bool:
        asked.append((topic, queue_id))
        return topic != "bad"

    slots = QueueSlots(accepts)
    for _ in range(2):
        assert slots.route(records(("bad", 0), ("a", 0), ("bad", 0), ("b", 0))).tolist() == [NO_SLOT, 0, NO_SLOT, 1]
    assert asked == [("bad", 0), ("a", 0), ("b", 0)]


@pytest.mark.parametrize("exact", [False, True])
def test_two_spellings_of_one_text(exact: bool) -> None:
    slots = QueueSlots(exact=exact)
    found = [slots.add_spelled(topic, 0) for topic in (b"\xff", b"a", b"\xfe", b"\xff")]
    assert found == ([0, 1, 2, 0] if exact else [0, 1, 0, 0])
    assert slots.spellings() == [(b"\xff", 0), (b"a", 0), (b"\xfe", 0)]
    assert slots.names == [("\ufffd", 0), ("a", 0), ("\ufffd", 0)][: max(found) + 1]


def test_a_batch_looked_up_ahead_is_routed_as_any_other() -> None:
    slots = QueueSlots()
    slots.route(records(("a", 0)))
    batch = records(("a", 0), ("new", 0))
    slots.look_ahead(batch)
    slots.route(records(("other", 0)))
    ahead = None if batch.routes is None else batch.routes.tolist()
    assert slots.route(batch).tolist() == [0, 2]
    assert (None if batch.routes is None else batch.routes.tolist()) == ahead  # Routing changes a copy.


def test_more_queues_than_the_table_had_room_for() -> None:
    slots, names = QueueSlots(), [(f"topic-{number % 700}", number // 700) for number in range(1400)]
    for start in range(0, len(names), 100):
        batch = records(*names[start : start + 100])
        assert slots.route(batch).tolist() == list(range(start, start + 100))
    assert slots.find_rows(records(*names)).tolist() == list(range(1400))
    assert slots.names == names
    rows, _ = slots.lent()
    assert (rows[:, 1] >= 0).sum() == len(names)
