"""The decision table of recovery, and the plan: every combination of facts has its one answer."""

from dataclasses import replace
from itertools import product

import pytest

from embermq.store.layout.inventory import Inventory
from embermq.store.recovery.plan import FilesSeen, IndexPlan, Proofs, make_plan
from embermq.store.recovery.replay import StopDecision, StopFacts, decide

ROWS: list[tuple[dict[str, bool], StopDecision]] = [
    ({"zeros": True, "good_here": False, "good_later": False}, StopDecision.END),
    ({"zeros": False, "good_here": False, "good_later": False}, StopDecision.CUT),
    ({"proven": False, "good_here": True}, StopDecision.CUT),
    ({"proven": False, "good_here": False, "good_later": True}, StopDecision.CUT),
    ({"proven": True, "good_here": True}, StopDecision.FILL),
    ({"proven": True, "good_here": False, "good_later": True}, StopDecision.BLANK),
]


def test_each_combination_of_facts_matches_exactly_one_row() -> None:
    names = ("zeros", "proven", "good_here", "good_later")
    for values in product((False, True), repeat=4):
        facts = dict(zip(names, values, strict=True))
        matching = [decision for row, decision in ROWS if row.items() <= facts.items()]
        assert len(matching) == 1, facts
        assert decide(StopFacts(**facts)) is matching[0], facts


SEEN = FilesSeen(
    clean=True,
    log_min=1000,
    log_capacity_end=9000,
    log_files_sound=True,
    queue_files=4,
    index_files=1,
    derived_findings=0,
    inventory_findings=0,
    read_only=False,
    derived_position=6000,
)
PROOFS = Proofs(flushed=8000, written=8000, queues=7000, index=6500, queue_files=4, index_files=1, tail_mark=6800)
INVENTORY = Inventory(
    log_min=1000,
    log_max=8000,
    tail_mark=7500,
    segment_bytes=100,
    checkpoint="",
    dispatch="live",
    queues={},
    index={},
    next_offsets=[],
)


def changed(**facts: object) -> FilesSeen:
    return replace(SEEN, **facts)  # type: ignore[arg-type]


def test_a_clean_store_as_it_was_left_is_read_from_its_tail_mark() -> None:
    plan, index = make_plan(SEEN, INVENTORY, PROOFS)
    assert (plan.walk_from, plan.proven, plan.expected_end, index) == (7500, 8000, 8000, IndexPlan.KEEP)


@pytest.mark.parametrize(
    ("seen", "inventory", "proofs"),
    [
        (SEEN, None, PROOFS),
        (SEEN, INVENTORY, None),
        (changed(inventory_findings=1), INVENTORY, PROOFS),
        (changed(derived_findings=1), INVENTORY, PROOFS),
        (changed(log_files_sound=False), INVENTORY, PROOFS),
        (changed(log_capacity_end=7999), INVENTORY, PROOFS),
        (changed(clean=False), None, None),
        (changed(clean=False, queue_files=3), None, PROOFS),
        (changed(clean=False, index_files=0), None, PROOFS),
        (changed(clean=False, derived_findings=2), None, PROOFS),
    ],
)
def test_whatever_is_in_doubt_is_derived_again_from_the_whole_log(
    seen: FilesSeen, inventory: Inventory | None, proofs: Proofs | None
) -> None:
    plan, index = make_plan(seen, inventory, proofs)
    assert (plan.walk_from, index) == (1000, IndexPlan.REBUILD)


def test_an_unclean_store_is_walked_from_its_oldest_proof() -> None:
    plan, index = make_plan(changed(clean=False), None, PROOFS)
    assert (plan.walk_from, plan.proven, plan.expected_end, index) == (6500, 8000, None, IndexPlan.RESTORE)
    plan, _ = make_plan(changed(clean=False), None, replace(PROOFS, tail_mark=2000))
    assert plan.walk_from == 2000


def test_what_was_written_counts_after_a_kill_and_what_was_synced_after_a_power_cut() -> None:
    """The log may be written further than it is flushed: only below that is damage distinguished from a torn end."""
    ahead = replace(PROOFS, flushed=5000, queues=7900, index=7800, tail_mark=7700)
    for written, walk_from in ((7900, 7700), (5000, 5000)):
        plan, index = make_plan(changed(clean=False), None, replace(ahead, written=written))
        assert (plan.walk_from, plan.proven, index) == (walk_from, 5000, IndexPlan.RESTORE)


def test_a_reader_believes_sound_derived_files_and_walks_only_what_they_lack() -> None:
    for clean in (True, False):
        plan, index = make_plan(changed(clean=clean, read_only=True), None, PROOFS)
        assert (plan.walk_from, index) == (6000, IndexPlan.KEEP)
    plan, index = make_plan(changed(clean=False, read_only=True, derived_position=0), None, PROOFS)
    assert plan.walk_from == 1000
