"""A store at a glance."""

import shutil
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.errors import StorePathInvalid
from embermq.files import RealFiles
from embermq.inspect import overview
from embermq.inspect.snapshot import Survey
from embermq.inspect.store_shape import found_shape
from embermq.store.recovery.plan import IndexPlan
from tests.support import golden

SMALL = StoreSettings(
    segment_bytes=8192,
    queue_file_bytes=2000,
    index_slots_max=100,
    index_entries_max=400,
    disk_full_percent=100,
    disk_clean_percent=100,
)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "store", SMALL) as opened:
        for number in range(100):
            opened.append(Message("t", bytes(100), queue_id=number % 2, keys=[f"k{number}"]))
    return tmp_path / "store"


@pytest.mark.parametrize("name", golden.CLEAN_STORES)
def test_queues_of_rocketmq(name: str, tmp_path: Path) -> None:
    path = golden.restore(name, tmp_path)
    facts = {(one.span.topic, one.span.queue_id): one for one in overview.queue_facts(Survey.open(path))}
    records = {record.phy: record for record in golden.manifest(name).records if not record.blank}
    by_queue: dict[tuple[str, int], list[int]] = {}
    for record in records.values():
        if not record.sys_flag & 4:
            by_queue.setdefault((record.topic, record.queue_id), []).append(record.store_timestamp)
    assert set(by_queue) <= set(facts)
    for key, times in by_queue.items():
        assert (facts[key].first_store_ms, facts[key].last_store_ms) == (times[0], times[-1]), key


def test_segments(store: Path) -> None:
    survey = Survey.open(store)
    facts = overview.segment_facts(survey)
    assert sum(one.used for one in facts) == survey.log_end
    used = [one for one in facts if one.used]
    assert all(one.first_store_ms is not None and one.allocated > 0 for one in used)
    assert [one.first_store_ms for one in facts if not one.used] == [None] * (len(facts) - len(used))
    assert [one.name for one in facts] == sorted(one.name for one in facts)


def test_index_files_and_spaces(store: Path) -> None:
    [index] = overview.index_facts(store)
    assert index.header.count == 101
    assert index.size == 40 + 4 * 100 + 20 * 400
    spaces = {one.name: one for one in overview.spaces(store)}
    assert spaces["index"].files == 1
    assert spaces["commitlog"].bytes % 8192 == 0
    assert overview.index_facts(store / "nowhere") == []
    (store / "index" / "20240101000000000").write_bytes(b"short")
    assert overview.index_facts(store) == [index]


def test_small_files(store: Path) -> None:
    checkpoint = overview.checkpoint_of(store)
    assert checkpoint is not None
    assert checkpoint.log_ms > 0
    assert overview.quarantine_reports(store) == 0
    (store / "checkpoint").unlink()
    assert overview.checkpoint_of(store) is None


def test_who_writes(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL):
        assert overview.writer_process(tmp_path / "store") is not None
    assert overview.writer_process(tmp_path / "store") is None


# -- what a start would do -------------------------------------------------------------------------------------


def plan_and_start(path: Path, settings: StoreSettings) -> tuple[overview.StartPlan, MessageStore]:
    """The plan, and a start right after it."""
    before = golden.tree_state(path)
    plan = overview.plan_start(path, settings)
    assert golden.tree_state(path) == before, "planning writes nothing"
    store = MessageStore.open(path, settings)
    store.close()
    return plan, store


@pytest.mark.parametrize("what", ["clean", "killed", "no inventory", "no proofs", "queue file gone", "state page gone"])
def test_the_plan_is_what_a_start_does(store: Path, what: str) -> None:
    if what == "killed":
        (store / "abort").touch()
    elif what == "no inventory":
        (store / "embermq.inventory.json").unlink()
    elif what == "no proofs":
        (store / "abort").touch()
        (store / "embermq.state").unlink()
        (store / "embermq.index.json").unlink()
    elif what == "queue file gone":
        shutil.rmtree(store / "consumequeue" / "t" / "1")
    elif what == "state page gone":
        (store / "embermq.state").unlink()
    plan, started = plan_and_start(store, SMALL)
    assert plan.reason == started.recovery.reason
    assert plan.walk_from == started.recovery.walked_from
    assert plan.walk_bytes == started.recovery.log_end - started.recovery.walked_from
    assert (plan.index is IndexPlan.REBUILD) is (what not in ("clean", "killed"))
    assert (plan.index is IndexPlan.KEEP) is (what == "clean")


@pytest.mark.parametrize("name", ["basic", "unclean", "delay"])
def test_a_store_of_rocketmq_is_walked(name: str, tmp_path: Path) -> None:
    path = golden.restore(name, tmp_path)
    settings = SMALL.replace(**found_shape(RealFiles(), path).as_settings(), delayed_delivery=False)
    plan, started = plan_and_start(path, settings)
    assert (plan.reason, plan.walk_from) == (started.recovery.reason, started.recovery.walked_from)
    assert plan.index is IndexPlan.REBUILD


def test_no_store_no_plan(tmp_path: Path) -> None:
    with pytest.raises(StorePathInvalid):
        overview.plan_start(tmp_path / "missing", SMALL)
