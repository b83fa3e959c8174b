"""Keys seen from outside: the index where it can be trusted, the log where it does not reach, None otherwise."""

import os
import shutil
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.format.frame import Frame
from embermq.format.index import HEADER_BYTES
from embermq.inspect import key_view as survey_index
from embermq.inspect.log_view import LogView
from embermq.inspect.snapshot import Survey
from embermq.model.flags import ROLLBACK, TRANSACTION_MASK
from embermq.model.properties import KEYS, UNIQ_KEY, decode_properties, split_keys
from embermq.testing.builder import StoreBuilder
from tests.crash import numbered
from tests.support import golden
from tests.support.surveys import frames_of

FOREVER_MS = 1 << 62


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", **numbered.TINY)


def fill(store: MessageStore, count: int, first: int = 0) -> int:
    n = first
    while n < first + count:
        n += len(numbered.append(store, n))
    return n


def closed(builder: StoreBuilder, count: int = 150) -> Path:
    with builder.open() as store:
        fill(store, count)
    return builder.root


def keys_of(frame: Frame) -> list[str]:
    if frame.sys_flag & TRANSACTION_MASK == ROLLBACK:
        return []
    properties = decode_properties(frame.properties)
    unique = properties.get(UNIQ_KEY)
    return [*([unique] if unique else []), *split_keys(properties.get(KEYS))]


def check_keys(survey: Survey, frames: list[Frame]) -> None:
    """Every key leads to all its records; other places may be there as well, but few, and all are records."""
    truth: dict[tuple[str, str], list[int]] = {}
    for frame in frames:
        for key in keys_of(frame):
            truth.setdefault((frame.topic, key), []).append(frame.physical_offset)
    assert truth
    places = {frame.physical_offset for frame in frames}
    more = 0
    for (topic, key), expected in truth.items():
        found = survey.find_key(topic, key, 0, FOREVER_MS)
        assert found is not None
        assert found == sorted(set(found))
        assert set(expected) <= set(found) <= places
        more += len(found) - len(expected)
    assert more <= len(frames)
    assert survey.find_key("nobody", "nothing", 0, FOREVER_MS) == []


def test_a_closed_store(builder: StoreBuilder) -> None:
    root = closed(builder)
    before = golden.tree_state(root)
    check_keys(Survey.open(root), frames_of(root))
    assert golden.tree_state(root) == before


def test_a_running_store(builder: StoreBuilder) -> None:
    with builder.open() as store:
        n = fill(store, 40)
        survey = Survey.open(builder.root)
        for _ in range(3):
            n = fill(store, 40, n)
            survey.refresh()
            check_keys(survey, frames_of(builder.root))


def test_times_are_of_the_records(builder: StoreBuilder) -> None:
    root = closed(builder)
    survey = Survey.open(root)
    frame = next(one for one in frames_of(root)[40:] if keys_of(one))
    topic, key, at = frame.topic, keys_of(frame)[0], frame.store_timestamp
    assert survey.find_key(topic, key, at, at + 1) == [frame.physical_offset]
    assert survey.find_key(topic, key, at + 1, FOREVER_MS) == []
    assert survey.find_key(topic, key, 0, at) == []


def test_no_record_is_read_for_its_time_if_any_time_will_do(
    builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = closed(builder)
    survey = Survey.open(root)
    frame = next(one for one in frames_of(root)[40:] if keys_of(one))
    monkeypatch.setattr(LogView, "frame_at", lambda *given: pytest.fail("a record was read"))
    assert survey.find_key(frame.topic, keys_of(frame)[0], -1, (1 << 63) - 1) == [frame.physical_offset]


@pytest.mark.parametrize("slots", [1, 7, 16, 100])
@pytest.mark.parametrize("entries", [40, 64, 333])
@pytest.mark.slow(2)
def test_any_shape_of_index_file_is_adopted(tmp_path: Path, slots: int, entries: int) -> None:
    settings = numbered.TINY | {"index_slots_max": slots, "index_entries_max": entries}
    builder = StoreBuilder(tmp_path / "store", **settings)
    root = closed(builder, 60)
    check_keys(Survey.open(root), frames_of(root))
    # As RocketMQ leaves it: nothing says how many slots there are.
    for name in ("embermq.index.json", "embermq.state", "embermq.inventory.json"):
        (root / name).unlink()
    check_keys(Survey.open(root), frames_of(root))


def test_the_end_is_walked_when_the_index_is_behind(builder: StoreBuilder) -> None:
    """The newest index file is gone: its keys are found in the log, if that is not too long."""
    root = closed(builder)
    newest = sorted((root / "index").iterdir())[-1]
    newest.unlink()
    survey = Survey.open(root)
    check_keys(survey, frames_of(root))


def test_the_beginning_and_the_middle_are_walked_too(builder: StoreBuilder) -> None:
    root = closed(builder)
    files = sorted((root / "index").iterdir())
    assert len(files) > 4
    files[0].unlink()
    files[2].unlink()
    check_keys(Survey.open(root), frames_of(root))


def test_none_when_too_much_would_have_to_be_walked(builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    root = closed(builder)
    files = sorted((root / "index").iterdir())
    # Between any two files lies a record or two.
    monkeypatch.setattr(survey_index, "WALK_BYTES_MAX", 4000 * len(files))
    assert Survey.open(root).find_key("Topic0", "id0", 0, FOREVER_MS) == [0]
    monkeypatch.setattr(survey_index, "WALK_BYTES_MAX", 5000)
    for path in files[2:]:
        path.unlink()
    assert Survey.open(root).find_key("Topic0", "id0", 0, FOREVER_MS) is None


def test_none_without_an_index(builder: StoreBuilder) -> None:
    root = closed(builder)
    shutil.rmtree(root / "index")
    assert Survey.open(root).find_key("Topic0", "id0", 0, FOREVER_MS) is None


@pytest.mark.parametrize("how", ["zeros", "short", "noise"])
def test_none_with_an_index_that_cannot_be_used(builder: StoreBuilder, how: str) -> None:
    root = closed(builder)
    path = sorted((root / "index").iterdir())[1]
    size = path.stat().st_size
    content = {"zeros": bytes(size), "short": path.read_bytes()[: size // 2], "noise": os.urandom(size)}[how]
    path.write_bytes(content)
    assert Survey.open(root).find_key("Topic0", "id0", 0, FOREVER_MS) is None


@pytest.mark.parametrize("size", [0, 1, 8, 39, 40, 64, 100])
@pytest.mark.parametrize("which", [0, 1, -1])
def test_an_index_file_that_was_cut(builder: StoreBuilder, which: int, size: int) -> None:
    """The others tell the shape, whichever it was."""
    root = closed(builder)
    files = sorted((root / "index").iterdir())
    shape = Survey.open(root).index_shape()
    (root / "embermq.index.json").unlink()
    os.truncate(files[which], size)
    survey = Survey.open(root)
    assert survey.index_shape() == shape == (numbered.TINY["index_slots_max"], numbered.TINY["index_entries_max"])
    assert survey.find_key("Topic0", "id0", 0, FOREVER_MS) is None
    for file in files:
        os.truncate(file, size)
    assert Survey.open(root).index_shape() is None


def test_none_after_a_kill_without_proof(builder: StoreBuilder, tmp_path: Path) -> None:
    """Copied while it ran: the index may have been copied before the log."""
    with builder.open() as store:
        fill(store, 50)
        store.wait_for_dispatch()
        shutil.copytree(builder.root, tmp_path / "copy")
    assert Survey.open(tmp_path / "copy").find_key("Topic0", "id0", 0, FOREVER_MS) is None


def test_keys_that_are_parts_of_others(tmp_path: Path) -> None:
    """A walk compares whole words, in properties and not in bodies, of that topic."""
    builder = StoreBuilder(tmp_path / "store")
    with builder.open() as store:
        receipts = [
            store.append(Message("t", b"x", keys="ab abc")),
            store.append(Message("t", b"KEYS\x01ab\x02", keys="abc")),
            store.append(Message("u", b"x", keys="ab")),
            store.append(Message("t", b"x", keys="x.b")),
            store.append(Message("t", b"x", tags="ab")),
            store.append(Message("t", b"x", keys="ab")),
        ]
    index = sorted((builder.root / "index").iterdir())[0]
    # An index without entries: everything is walked.
    index.write_bytes(bytes(HEADER_BYTES).ljust(index.stat().st_size, b"\0"))
    survey = Survey.open(builder.root)
    assert survey.find_key("t", "ab", 0, FOREVER_MS) == [receipts[0].physical_offset, receipts[5].physical_offset]
    assert survey.find_key("u", "ab", 0, FOREVER_MS) == [receipts[2].physical_offset]
    assert survey.find_key("t", "x.b", 0, FOREVER_MS) == [receipts[3].physical_offset]
