"""The life of a message across topics, on stores a real broker wrote and on our own."""

import shutil
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.inspect.lineage import DECISION_MS_MAX, Lineage, StepKind, lineages_of, seeds_by_key
from embermq.inspect.lookup import message_at
from embermq.inspect.snapshot import Survey
from embermq.model.hosts import Host
from embermq.model.ids import message_id
from embermq.model.message import StoredMessage
from embermq.model.properties import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC
from embermq.testing import ManualClock
from tests.support import golden

SMALL = StoreSettings(
    segment_bytes=1 << 16,
    queue_file_bytes=2000,
    index_slots_max=100,
    index_entries_max=400,
    disk_full_percent=100,
    disk_clean_percent=100,
    delayed_delivery=False,
)
LATE = 1 << 60


@pytest.fixture(params=["index", "no index"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> "Stores":
    return Stores(tmp_path, with_index=request.param == "index")


class Stores:
    """Golden stores, with their index or without it."""

    def __init__(self, root: Path, *, with_index: bool) -> None:
        self._root, self._with_index = root, with_index

    def survey(self, name: str) -> Survey:
        path = golden.restore(name, self._root / name)
        if not self._with_index:
            shutil.rmtree(path / "index")
        return Survey.open(path)


def lineages(survey: Survey, key: str, topic: str | None = None) -> list[Lineage]:
    return lineages_of(survey, seeds_by_key(survey, key, topic))


def reported(lineage: Lineage) -> list[tuple[str, str]]:
    return [(str(step.kind), step.message.topic) for step in lineage.steps]


def test_retried_until_it_is_dead(stores: Stores) -> None:
    [lineage] = lineages(stores.survey("retry-dlq"), "rk0")
    assert reported(lineage) == [
        ("stored", "RetryTopic"),
        ("parked", SCHEDULE_TOPIC),
        ("retried", "%RETRY%CG_retry"),
        ("parked", SCHEDULE_TOPIC),
        ("retried", "%RETRY%CG_retry"),
        ("dead letter", "%DLQ%CG_retry"),
    ]
    assert lineage.outcome(LATE) == "dead: in %DLQ%CG_retry after 2 retries"
    assert lineage.steps[2].note == "group CG_retry, retry 1"
    parked = lineage.steps[1]
    assert parked.due_ms == parked.message.store_timestamp + 1000, "the queue entry knows the broker's own levels"


def test_retried_once(stores: Stores) -> None:
    [lineage] = lineages(stores.survey("retry-dlq"), "rk1")
    assert reported(lineage) == [("stored", "RetryTopic"), ("parked", SCHEDULE_TOPIC), ("retried", "%RETRY%CG_retry")]
    assert lineage.outcome(LATE) == "retried in %RETRY%CG_retry: 1 retry so far"
    assert lineage.outcome(LATE, ["CG_retry"]) == "consumed by CG_retry after 1 retry"
    assert lineage.outcome(LATE, ["another"]) == "retried in %RETRY%CG_retry: 1 retry so far"


def test_nothing_special(stores: Stores) -> None:
    [lineage] = lineages(stores.survey("retry-dlq"), "rk2")
    assert reported(lineage) == [("stored", "RetryTopic")]
    assert lineage.outcome(LATE) == "delivered to RetryTopic"


def test_delayed_and_delivered(stores: Stores) -> None:
    survey = stores.survey("delay")
    found = [lineage for lineage in lineages(survey, "dk1") if lineage.steps[0].message.queue_offset == 0]
    [lineage] = found
    assert reported(lineage) == [("parked", SCHEDULE_TOPIC), ("delivered", "DelayTopic")]
    assert lineage.outcome(LATE) == "delivered to DelayTopic"
    due_ms, delivered = lineage.steps[0].due_ms, lineage.steps[1].message
    assert due_ms is not None
    assert due_ms <= delivered.store_timestamp < due_ms + 1000


def test_still_parked(stores: Stores) -> None:
    survey = stores.survey("delay")
    records = golden.manifest("delay").records
    parked = [one for one in records if one.topic == SCHEDULE_TOPIC and one.queue_id == 17]
    assert parked
    seed = message_at(survey, parked[0].phy)
    assert seed is not None
    [lineage] = lineages_of(survey, [seed])
    [step] = lineage.steps
    assert step.due_ms == seed.store_timestamp + 7_200_000
    assert lineage.outcome(step.due_ms - 1) == "waiting until it is due"
    assert lineage.outcome(step.due_ms) == "due, and not delivered yet"


@pytest.mark.parametrize(
    ("key", "steps", "outcome"),
    [
        ("txk0", ["prepared", "committed", "decided"], "delivered to TxTopic"),
        ("txk1", ["prepared", "decided"], "rolled back"),
        ("txk2", ["prepared", "prepared", "committed", "decided"], "delivered to TxTopic"),
        ("txk3", ["prepared", "prepared", "decided"], "rolled back"),
        ("txk4", ["prepared"] * 4 + ["discarded"], "discarded: the half message was never committed or rolled back"),
    ],
)
def test_transactions(stores: Stores, key: str, steps: list[str], outcome: str) -> None:
    [lineage] = lineages(stores.survey("transaction"), key)
    assert [str(step.kind) for step in lineage.steps] == steps
    assert lineage.outcome(LATE) == outcome


def test_every_record_belongs_to_one_life(stores: Stores) -> None:
    """Whatever step one begins with, the life is the same; together the lives are the log."""
    for name in ("transaction", "retry-dlq"):
        survey = stores.survey(name)
        by_place: dict[int, Lineage] = {}
        for record in golden.manifest(name).records:
            if record.blank or record.phy in by_place:
                continue
            seed = message_at(survey, record.phy)
            assert seed is not None
            [lineage] = lineages_of(survey, [seed])
            assert record.phy in {step.message.physical_offset for step in lineage.steps}
            for step in lineage.steps:
                assert lineages_of(survey, [step.message]) == [lineage]
                by_place[step.message.physical_offset] = lineage
        names = {lineage.name for lineage in by_place.values()}
        assert len(names) == len(golden.manifest(name).client_sends)


def test_a_key_of_many_messages(stores: Stores) -> None:
    survey = stores.survey("retry-dlq")
    seeds = [seed for number in range(3) for seed in seeds_by_key(survey, f"rk{number}")]
    seeds.sort(key=lambda seed: seed.physical_offset)
    every = lineages_of(survey, seeds)
    assert [lineage.steps[0].message.keys for lineage in every] == [["rk0"], ["rk1"], ["rk2"]]
    newest = lineages_of(survey, seeds, 1)
    assert [lineage.steps[-1].kind for lineage in newest] == [StepKind.DEAD], "the one with the newest record"


def test_seeds_of_one_topic(stores: Stores) -> None:
    survey = stores.survey("retry-dlq")
    assert {seed.topic for seed in seeds_by_key(survey, "rk0")} == {
        "RetryTopic",
        SCHEDULE_TOPIC,
        "%RETRY%CG_retry",
        "%DLQ%CG_retry",
    }
    assert [seed.topic for seed in seeds_by_key(survey, "rk0", "RetryTopic")] == ["RetryTopic"]
    assert seeds_by_key(survey, "rk0", "Nothing") == []
    assert seeds_by_key(survey, "nobody") == []


# -- messages without a unique key -----------------------------------------------------------------------------


def life_of(path: Path, seed: StoredMessage) -> Lineage:
    [lineage] = lineages_of(Survey.open(path), [seed])
    return lineage


def test_a_delayed_message_without_a_unique_key(tmp_path: Path) -> None:
    settings = SMALL.replace(delayed_delivery=True, delay_levels="1s")
    clock = ManualClock(1_700_000_000_000)
    with MessageStore.open(tmp_path / "store", settings, clock=clock) as store:
        for number in range(3):
            store.append(Message("orders", b"%d" % number, delay_level=1, keys=["same"]))
            clock.advance(ms=5)
        clock.advance(ms=2000)
        while store.max_offset("orders", 0) < 3:
            assert store.wait_for_dispatch()
        messages = list(store.scan())
    for parked, delivered in zip(messages[:3], messages[3:], strict=True):
        for seed in (parked, delivered):
            lineage = life_of(tmp_path / "store", seed)
            assert [step.message for step in lineage.steps] == [parked, delivered]
            assert [step.kind for step in lineage.steps] == [StepKind.PARKED, StepKind.DELIVERED]
            assert lineage.name == parked.message_id


def test_retries_without_a_unique_key_are_tied_by_the_first_id(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        first = store.append(Message("orders", b"x"))
        origin = {"ORIGIN_MESSAGE_ID": first.message_id, "RETRY_TOPIC": "orders"}
        store.append(Message("%RETRY%g", b"x", properties=origin, reconsume_times=1))
        store.append(Message("orders", b"x"))
        store.append(Message("%DLQ%g", b"x", properties=origin, reconsume_times=2))
        messages = list(store.scan())
    expected = [messages[0], messages[1], messages[3]]
    for seed in expected:
        lineage = life_of(tmp_path / "store", seed)
        assert [step.message for step in lineage.steps] == expected
        assert lineage.outcome(LATE) == "dead: in %DLQ%g after 1 retry"
    assert [step.message for step in life_of(tmp_path / "store", messages[2]).steps] == [messages[2]]


def test_a_transaction_without_a_unique_key(tmp_path: Path) -> None:
    real = {"REAL_TOPIC": "orders", "REAL_QID": "0", "TRAN_MSG": "true"}
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        half = store.append(Message(HALF_TOPIC, b"x", properties=real, born_timestamp=5))
        commit = Message(
            "orders",
            b"x",
            properties=real,
            born_timestamp=5,
            sys_flag=8,
            prepared_transaction_offset=half.physical_offset,
        )
        store.append(commit)
        store.append(Message(OP_TOPIC, b"%d" % half.queue_offset, tags="d"))
        store.append(Message(OP_TOPIC, b"77", tags="d"))
        messages = list(store.scan())
    for seed in messages[:3]:
        lineage = life_of(tmp_path / "store", seed)
        assert [step.kind for step in lineage.steps] == [StepKind.PREPARED, StepKind.COMMITTED, StepKind.DECIDED]
    orphan = life_of(tmp_path / "store", messages[3])
    assert [step.kind for step in orphan.steps] == [StepKind.DECIDED]


def test_decisions_about_several_half_messages_at_once(tmp_path: Path) -> None:
    """Newer brokers write them with commas."""
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        for number in range(3):
            store.append(Message(HALF_TOPIC, b"x", properties={"REAL_TOPIC": "orders", "UNIQ_KEY": f"U{number}"}))
        store.append(Message(OP_TOPIC, b"0,2,", tags="d"))
        messages = list(store.scan())
    assert life_of(tmp_path / "store", messages[2]).outcome(LATE) == "rolled back"
    assert life_of(tmp_path / "store", messages[1]).outcome(LATE).startswith("undecided")


def test_a_decision_is_not_looked_for_for_ever(tmp_path: Path) -> None:
    clock = ManualClock(1_700_000_000_000)
    with MessageStore.open(tmp_path / "store", SMALL, clock=clock) as store:
        store.append(Message(HALF_TOPIC, b"x", properties={"UNIQ_KEY": "U0"}))
        clock.advance(ms=DECISION_MS_MAX + 1000)
        for _ in range(6_000):
            store.append(Message("filler", b""))
        store.append(Message(OP_TOPIC, b"0", tags="d"))
        [seed] = store.find(HALF_TOPIC, "U0")
    lineage = life_of(tmp_path / "store", seed)
    assert [step.kind for step in lineage.steps] == [StepKind.PREPARED]


def test_transactions_written_by_hand(tmp_path: Path) -> None:
    """Records with transaction bits and no half topic, as the store itself takes them."""
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        for sys_flag in (4, 8, 12):
            store.append(Message("t", b"x", sys_flag=sys_flag, properties={"UNIQ_KEY": f"U{sys_flag}"}))
        messages = list(store.scan())
    kinds = [life_of(tmp_path / "store", one).steps[0].kind for one in messages]
    assert kinds == [StepKind.PREPARED, StepKind.COMMITTED, StepKind.ROLLED_BACK]
    assert life_of(tmp_path / "store", messages[2]).outcome(LATE) == "rolled back"


def test_an_origin_that_is_gone(tmp_path: Path) -> None:
    gone = message_id(Host("127.0.0.1", 10911), 1 << 40)
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        for origin in (gone, "nonsense"):
            store.append(Message("%RETRY%g", b"x", properties={"ORIGIN_MESSAGE_ID": origin}, reconsume_times=1))
        messages = list(store.scan())
    for seed in messages:
        assert [step.message for step in life_of(tmp_path / "store", seed).steps] == [seed]
