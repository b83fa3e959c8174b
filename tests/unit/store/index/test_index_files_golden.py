"""Index files derived from RocketMQ's logs have RocketMQ's bytes, and give its answers."""

from pathlib import Path

import pytest

from embermq.files import RealFiles
from embermq.store.index.index_files import IndexFiles
from embermq.testing.clock import ManualClock
from tests.support.golden import CLEAN_STORES, Manifest, content, manifest, restore
from tests.support.kernels import force_compiled, force_plain
from tests.support.records import feed_golden

# The log of deleted-segments has lost its beginning, and default-size has files of 420 MB.
REBUILT = [name for name in CLEAN_STORES if name not in ("deleted-segments", "default-size")]


def shape(facts: Manifest) -> tuple[int, int]:
    return int(facts.settings.get("maxHashSlotNum", 5_000_000)), int(facts.settings.get("maxIndexNum", 20_000_000))


def index_of(name: str, directory: Path, *, read_only: bool = False) -> IndexFiles:
    return IndexFiles(directory, RealFiles(), *shape(manifest(name)), ManualClock(), read_only=read_only)


def levels(name: str) -> str:
    return str(manifest(name).settings["messageDelayLevel"])


@pytest.mark.parametrize("by_kernel", [False, True], ids=["plain", "kernel"])
@pytest.mark.parametrize("batch", [1, 10_000])
@pytest.mark.parametrize("name", REBUILT)
@pytest.mark.slow
def test_derived_index_has_the_bytes_of_rocketmq(
    name: str, batch: int, by_kernel: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (force_compiled if by_kernel else force_plain)(monkeypatch)
    store = restore(name, tmp_path)
    index = index_of(name, tmp_path / "index")
    feed_golden(store, levels(name), index, batch=batch)
    index.flush()
    assert content(tmp_path / "index", names=False) == content(store / "index", names=False)


@pytest.mark.parametrize("name", CLEAN_STORES)
def test_queries_of_a_loaded_store(name: str, tmp_path: Path) -> None:
    store = restore(name, tmp_path)
    index = index_of(name, store / "index", read_only=True)
    assert index.load() == []
    assert_answers(name, index)


@pytest.mark.parametrize("name", REBUILT)
def test_queries_of_keys_held_in_memory(name: str, tmp_path: Path) -> None:
    """A read-only store that had to index everything itself; it knows times to the millisecond."""
    store = restore(name, tmp_path)
    index = index_of(name, tmp_path / "nothing", read_only=True)
    feed_golden(store, levels(name), index)
    assert not (tmp_path / "nothing").exists()
    facts = manifest(name)
    for query in facts.answers.query_message:
        found = index.query(query.topic, query.key, None, 0, 2**62)
        assert set(query.index_offsets) <= set(found)
        assert found == sorted(found, reverse=True)


def assert_answers(name: str, index: IndexFiles) -> None:
    facts = manifest(name)
    queries = facts.answers.query_message + facts.more_queries
    assert queries
    for query in queries:
        found = index.query(query.topic, query.key, query.max_num, query.begin, query.end)
        assert found == query.index_offsets, query
        if query.phys:
            assert index.last_update == (query.index_last_update_timestamp, query.index_last_update_phyoffset)


@pytest.mark.parametrize("batch", [1, 10_000])
@pytest.mark.parametrize("name", REBUILT)
def test_feeding_again_changes_nothing(name: str, batch: int, tmp_path: Path) -> None:
    store = restore(name, tmp_path)
    before = content(store / "index")
    index = index_of(name, store / "index")
    index.load()
    feed_golden(store, levels(name), index, batch=batch)
    feed_golden(store, levels(name), index, batch=batch)
    index.flush()
    assert content(store / "index") == before


@pytest.mark.parametrize("name", ["index", "basic", "deleted-segments"])
def test_cutting_back_and_feeding_again_gives_the_same_answers(name: str, tmp_path: Path) -> None:
    store = restore(name, tmp_path)
    phys = [record.phy for record in manifest(name).records if not record.blank]
    for cut in phys[:: len(phys) // 9]:
        index = index_of(name, store / "index")
        assert index.load() == []
        index.truncate_to(cut)
        assert index.last_update[1] < cut or cut == phys[0]
        feed_golden(store, levels(name), index)
        index.close()
        assert_answers(name, index_of_loaded(name, store))


def index_of_loaded(name: str, store: Path) -> IndexFiles:
    index = index_of(name, store / "index")
    assert index.load() == []
    return index
