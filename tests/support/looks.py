"""Tools that look at a store, each with a check of its answer that holds whatever happens to the store meanwhile.

`LOOKS` has a function for each: it is given a `LivingStore` and the file system to look through.
"""

import json
import shutil
from collections.abc import Callable

from embermq.columns.rows import C_PHYSICAL
from embermq.files import Files
from embermq.inspect import lookup, overview
from embermq.inspect.dump import Dump
from embermq.inspect.lineage import lineages_of, seeds_by_key
from embermq.inspect.retention_preview import preview
from embermq.inspect.snapshot import DamagedRange, Survey
from embermq.repair.salvage.salvaging import salvage
from embermq.repair.verify.store_check import verify
from embermq.settings import StoreSettings
from tests.support.living import SMALL, STAYS, LivingStore

SETTINGS = StoreSettings(**SMALL)
_KEY = "k117"  # Of a message in the newest log files, which no retention takes here, and of a topic that stays.
_MUCH_LATER_MS = 1_704_067_200_000 + 10 * 86_400_000

Look = Callable[[LivingStore, Files], None]


def places_now(living: LivingStore, end: int) -> list[int]:
    """Where the records below `end` lie that are still there."""
    survey = Survey.open(living.root)
    found: list[int] = []
    for scanned in survey.scan(survey.log_min, end):
        assert not isinstance(scanned, DamagedRange), scanned
        found += scanned.column(C_PHYSICAL).tolist()
    return found


def look_verify(living: LivingStore, files: Files) -> None:
    report = verify(living.root, files=files)
    assert report.is_sound, [f"{flaw.file}: {flaw.fault}" for flaw in report.flaws if flaw.is_fault]


def look_verify_fast(living: LivingStore, files: Files) -> None:
    report = verify(living.root, files=files, fast=True)
    assert report.is_sound, [f"{flaw.file}: {flaw.fault}" for flaw in report.flaws if flaw.is_fault]


def look_dump(living: LivingStore, files: Files) -> None:
    job = Dump(Survey.open(living.root, files=files))
    places: list[int] = []
    for piece in job.pieces():
        assert not isinstance(piece, DamagedRange), piece
        places += [json.loads(line)["physicalOffset"] for line in bytes(piece).splitlines()]
    assert places == sorted(set(places))
    assert not set(places_now(living, job.end)) - set(places)


def look_find(living: LivingStore, files: Files) -> None:
    found = lookup.find_messages(Survey.open(living.root, files=files), STAYS, _KEY)
    assert [message.keys for message in found.messages] == [[_KEY]]


def look_trace(living: LivingStore, files: Files) -> None:
    survey = Survey.open(living.root, files=files)
    assert len(lineages_of(survey, seeds_by_key(survey, _KEY))) == 1


def look_info(living: LivingStore, files: Files) -> None:
    survey = Survey.open(living.root, files=files)
    facts = overview.queue_facts(survey)
    assert {STAYS} <= {fact.span.topic for fact in facts}
    assert overview.segment_facts(survey)
    overview.index_facts(living.root, files)


def look_start(living: LivingStore, files: Files) -> None:
    overview.plan_start(living.root, SETTINGS, files)


def look_clean(living: LivingStore, files: Files) -> None:
    found = preview(Survey.open(living.root, files=files), SETTINGS, _MUCH_LATER_MS, files=files)
    assert all(old.expired for old in found.files)


def look_salvage(living: LivingStore, files: Files) -> None:
    target = living.root.with_name("salvaged")
    found = salvage(living.root, target, SETTINGS, files=files)
    assert not found.lost_ranges
    assert not found.lost_messages
    survey = Survey.open(target)
    saved = {
        place
        for one in survey.scan(0, survey.log_end)
        if not isinstance(one, DamagedRange)
        for place in one.column(C_PHYSICAL).tolist()
    }
    assert not set(places_now(living, found.log_end)) - saved
    shutil.rmtree(target)


LOOKS: dict[str, Look] = {
    "verify": look_verify,
    "verify --fast": look_verify_fast,
    "dump": look_dump,
    "find": look_find,
    "trace": look_trace,
    "info": look_info,
    "start": look_start,
    "clean": look_clean,
    "salvage": look_salvage,
}
