"""What an opening asks of the disk for each queue. A store may have tens of thousands of them, and most lie idle."""

from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest

from embermq import Message, MessageStore
from embermq.files import Files, OpenFile, RealFiles
from embermq.inspect import Survey, queue_facts, queue_files
from embermq.store.log import tail_mark
from embermq.testing.builder import StoreBuilder
from tests.unit.store.test_index_checksums import kill

TOPICS, QUEUES_EACH, ROUNDS = 6, 5, 3
QUEUES = TOPICS * QUEUES_EACH


class CountedFile:
    """An open queue file; what is done to its content is counted."""

    def __init__(self, inner: OpenFile, calls: Counter[str]) -> None:
        self._inner, self._calls = inner, calls

    def __getattr__(self, name: str) -> Any:
        if name in ("pread", "pwrite", "sync", "truncate", "zero", "is_zero"):
            self._calls[name] += 1
        return getattr(self._inner, name)


class CountedFiles:
    """The disk; calls about queue files and their directories are counted."""

    def __init__(self) -> None:
        self._inner = RealFiles()
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if not callable(call):
            return call

        def counted(*args: Any, **kwargs: Any) -> Any:
            found = call(*args, **kwargs)
            if not args or "consumequeue" not in Path(args[0]).parts[:-2]:
                return found
            self.calls[name] += 1
            return CountedFile(found, self.calls) if name in ("open", "create") else found

        return counted


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", index=False, queue_file_bytes=20 * 1000)


def fill(store: MessageStore) -> None:
    for n in range(ROUNDS):
        store.append_many(
            [
                Message(f"topic-{topic}", b"%d" % n, queue_id=queue_id)
                for topic in range(TOPICS)
                for queue_id in range(QUEUES_EACH)
            ]
        )
    store.wait_for_dispatch()


def opened(builder: StoreBuilder, *, read_only: bool = False) -> Counter[str]:
    """Open the store, which must find all messages; what that asked of the disk."""
    files = CountedFiles()
    store = builder.on(cast(Files, files)).open(read_only=read_only)
    calls = Counter(files.calls)
    try:
        assert store.recovery.findings == []
        for topic in range(TOPICS):
            for queue_id in range(QUEUES_EACH):
                ends = store.min_offset(f"topic-{topic}", queue_id), store.max_offset(f"topic-{topic}", queue_id)
                assert ends == (0, ROUNDS)
    finally:
        store.close()
    return calls


ONE_LOOK = {"list_names": QUEUES, "read_ends": QUEUES}


@pytest.mark.parametrize("read_only", [False, True], ids=["writing", "read-only"])
@pytest.mark.parametrize("tail", ["walked", "not walked"])
def test_closed(builder: StoreBuilder, tail: str, read_only: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One listing and one look at a file for each queue; nothing is written again, nothing synced."""
    if tail == "not walked":
        monkeypatch.setattr(tail_mark, "TAIL_BYTES", 256)
    with builder.open() as store:
        fill(store)
    assert opened(builder, read_only=read_only) == ONE_LOOK


def test_seen_from_outside(builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more queues than files may be open, `store info` opens each file once more, for the times it shows."""
    monkeypatch.setattr(queue_files, "READ_OPEN_MAX", QUEUES - 1)
    with builder.open() as store:
        fill(store)
    files = CountedFiles()
    facts = queue_facts(Survey.open(builder.root, files=cast(Files, files)))
    assert [(one.span.min_offset, one.span.max_offset) for one in facts] == [(0, ROUNDS)] * QUEUES
    assert all(one.first_store_ms is not None and one.last_store_ms is not None for one in facts)
    assert files.calls.pop("list_directory") <= QUEUES  # The length of a queue file, from samples.
    assert files.calls == Counter(ONE_LOOK) + Counter(open=QUEUES, pread=2 * QUEUES)


def test_killed_after_a_sync(builder: StoreBuilder) -> None:
    store = builder.open()
    fill(store)
    store.engine.services.housekeeping.make_durable()
    kill(store)
    calls = opened(builder)
    assert calls.pop("is_zero", 0) <= QUEUES  # Nothing lies behind the end; holes are not read.
    assert calls == ONE_LOOK


def test_killed_before_a_sync(builder: StoreBuilder) -> None:
    """What the other process wrote is not written again, but synced: only the page cache may have it."""
    store = builder.open()
    fill(store)
    store.engine.services.housekeeping.write_out()
    kill(store)
    calls = opened(builder)
    assert calls.pop("is_zero", 0) <= QUEUES
    assert calls == Counter(ONE_LOOK) + Counter(sync=QUEUES, open=QUEUES)


def test_without_our_files(builder: StoreBuilder) -> None:
    """As after RocketMQ: nothing says that its files were synced."""
    with builder.open() as store:
        fill(store)
    for path in builder.root.glob("embermq.*"):
        path.unlink()
    assert opened(builder) == Counter(ONE_LOOK) + Counter(sync=QUEUES, open=QUEUES)


def test_only_the_queue_that_differs_is_written(builder: StoreBuilder) -> None:
    with builder.open() as store:
        fill(store)
    path = builder.root / "consumequeue" / "topic-3" / "2" / f"{0:020d}"
    before = path.read_bytes()
    path.write_bytes(before[:20] + bytes(20) + before[40:])
    calls = opened(builder)
    assert (calls["pwrite"], calls["sync"]) == (1, 1)
    assert path.read_bytes() == before
