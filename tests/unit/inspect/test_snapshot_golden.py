"""A survey of RocketMQ's stores sees what RocketMQ answered, and leaves every byte and time alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq.inspect.snapshot import Survey
from embermq.model.flags import has_queue_entry
from embermq.model.properties import SCHEDULE_TOPIC
from tests.support import golden
from tests.support.golden import ALL_STORES, FOREVER, Manifest
from tests.support.surveys import Seen, bounds_of, seen_by


@pytest.fixture(scope="module", params=ALL_STORES)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Manifest]]:
    root = golden.restore(request.param, tmp_path_factory.mktemp("golden"))
    before = golden.tree_state(root)
    yield root, golden.manifest(request.param)
    assert golden.tree_state(root) == before


@pytest.fixture(scope="module", params=[name for name in ALL_STORES if name != "default-size"])
def bare_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Manifest]]:
    """The same without queue and index files: all must come from the log."""
    root = golden.restore(request.param, tmp_path_factory.mktemp("bare"))
    for family in ("consumequeue", "index"):
        (root / family).rename(root.parent / family)
    before = golden.tree_state(root)
    yield root, golden.manifest(request.param)
    assert golden.tree_state(root) == before


def records(facts: Manifest) -> list[golden.Record]:
    return [record for record in facts.records if not record.blank]


def expected_queues(facts: Manifest) -> dict[tuple[str, int], tuple[int, int]]:
    """RocketMQ's bounds, without queues of other topics' records."""
    topics = {record.topic for record in records(facts)}
    return {(row.topic, row.queue_id): (row.min, row.max) for row in facts.answers.queues if row.topic in topics}


def test_the_log_is_rocketmqs(store: tuple[Path, Manifest]) -> None:
    root, facts = store
    survey = Survey.open(root)
    assert (survey.log_min, survey.log_end) == (facts.answers.min_phy_offset, facts.answers.max_phy_offset)
    assert seen_by(survey) == Seen([record.phy for record in records(facts)], [])
    assert seen_by(survey, rows_max=3) == seen_by(survey)


def test_queues_are_rocketmqs(store: tuple[Path, Manifest]) -> None:
    root, facts = store
    assert bounds_of(Survey.open(root)) == expected_queues(facts)


def test_queues_from_the_log_alone(bare_store: tuple[Path, Manifest]) -> None:
    root, facts = bare_store
    survey = Survey.open(root)
    # Of a log that lost its beginning only the files know queues that have nothing left.
    expected = {key: bounds for key, bounds in expected_queues(facts).items() if bounds[0] < bounds[1]}
    assert bounds_of(survey) == expected


def test_entries_lead_to_the_records(store: tuple[Path, Manifest]) -> None:
    root, facts = store
    # With extension files the third field of an entry may be an address.
    check_entries(Survey.open(root), facts, has_tag_codes=not facts.settings.get("enableConsumeQueueExt"))


def test_entries_from_the_log_lead_to_the_records(bare_store: tuple[Path, Manifest]) -> None:
    root, facts = bare_store
    check_entries(Survey.open(root), facts, has_tag_codes=True)


def check_entries(survey: Survey, facts: Manifest, *, has_tag_codes: bool) -> None:
    spans = survey.queues()
    by_queue: dict[tuple[str, int], list[golden.Record]] = {}
    for record in records(facts):
        if has_queue_entry(record.sys_flag):
            by_queue.setdefault((record.topic, record.queue_id), []).append(record)
    assert by_queue
    for key, mine in by_queue.items():
        span = spans[key]
        entries = survey.entries(*key, span.min_offset - 5, span.max_offset + 5)
        assert entries["physical_offset"].tolist() == [record.phy for record in mine]
        assert entries["size"].tolist() == [record.size for record in mine]
        assert (span.first_physical, span.end_physical) == (mine[0].phy, mine[-1].phy + mine[-1].size)
        if has_tag_codes and key[0] != SCHEDULE_TOPIC:  # A due time depends on the broker's delay levels.
            assert entries["tag_code"].tolist() == [record.tags_code for record in mine]
        middle = mine[len(mine) // 2]
        one = survey.entries(*key, middle.queue_offset, middle.queue_offset + 1)
        assert one["physical_offset"].tolist() == [middle.phy]


def test_times_find_the_first_record_stored_then_or_later(store: tuple[Path, Manifest]) -> None:
    check_times(Survey.open(store[0]), records(store[1]))


def test_times_in_the_log_alone(bare_store: tuple[Path, Manifest]) -> None:
    check_times(Survey.open(bare_store[0]), records(bare_store[1]))


def check_times(survey: Survey, all_records: list[golden.Record]) -> None:
    by_queue: dict[tuple[str, int], list[golden.Record]] = {key: [] for key in survey.queues()}
    for record in all_records:
        if has_queue_entry(record.sys_flag):
            by_queue[record.topic, record.queue_id].append(record)
    times = sorted({record.store_timestamp for record in all_records})
    chosen = times[:: max(1, len(times) // 4)]
    for probe in [0, *chosen, *(time + 1 for time in chosen), FOREVER]:
        late = [record.phy for record in all_records if record.store_timestamp >= probe]
        assert survey.physical_at(probe) == (late[0] if late else survey.log_end)
        for key, span in survey.queues().items():
            offsets = [record.queue_offset for record in by_queue[key] if record.store_timestamp >= probe]
            assert survey.offset_at(*key, probe) == (offsets[0] if offsets else span.max_offset)


def test_every_record_begins_where_one_is_looked_for(store: tuple[Path, Manifest]) -> None:
    root, facts = store
    survey = Survey.open(root)
    places = [record.phy for record in records(facts)]
    for place, following in zip(places, [*places[1:], survey.log_end], strict=True):
        assert survey.record_start(place) == place
        assert survey.record_start(place + 1) == following
        assert survey.record_start((place + following + 1) // 2) == following
    assert survey.record_start(survey.log_end + 1) == survey.log_end


@pytest.mark.slow(2)
def test_keys_are_found_as_rocketmq_finds_them(store: tuple[Path, Manifest]) -> None:
    root, facts = store
    survey = Survey.open(root)
    has_index = bool(list((root / "index").iterdir())) if (root / "index").exists() else False
    queries = [*facts.answers.query_message, *facts.more_queries]
    times = {record.phy: record.store_timestamp for record in records(facts)}
    for query in queries:
        found = survey.find_key(query.topic, query.key, query.begin, query.end)
        if not has_index or (root / "abort").exists():
            assert found is None
            continue
        assert found is not None
        assert found == sorted(set(found))
        wanted = {phy for phy in query.phys if query.begin <= times[phy] < query.end}
        assert wanted <= set(found)
        assert set(found) <= times.keys()
        assert all(query.begin <= times[phy] < query.end for phy in found)


def test_the_same_log_is_recognised(store: tuple[Path, Manifest], tmp_path: Path) -> None:
    root, facts = store
    survey = Survey.open(root)
    assert survey.same_log_as(Survey.open(root).identity)
    for place in (survey.log_min, (survey.log_min + survey.log_end) // 2, survey.log_end):
        assert survey.same_log_as(survey.identity_at(place))
    other = Survey.open(golden.restore("basic" if facts.name != "basic" else "index", tmp_path))
    if facts.name != "deleted-segments":  # Its first file is gone, and with it the record to compare.
        assert not survey.same_log_as(other.identity)
    assert not other.same_log_as(survey.identity)
