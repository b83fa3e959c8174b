"""A page of an index file that was zeroed or overwritten is noticed: look-ups stay complete, the file is made again."""

import os
import random
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.format.index import HEADER_BYTES, SLOT_BYTES
from embermq.inspect.lookup import find_messages
from embermq.inspect.snapshot import Survey
from embermq.repair.rebuild.rebuilding import rebuild
from embermq.repair.verify.store_check import verify
from embermq.store.index.proof import load_index_proof
from embermq.testing.builder import StoreBuilder

SLOTS, ENTRIES = 40_000, 10_000  # 160 KB of slots and 200 KB of entries: six blocks with a checksum each
KEYS_EACH = 15
COUNT = 1_600  # Two full index files of 9,999 keys, and a third one that grows.
PAGE = 4096
TOPIC = "orders"
ENTRIES_AT = HEADER_BYTES + SLOTS * SLOT_BYTES
PLACES = {
    "slots": HEADER_BYTES + 100_000,
    "entries": ENTRIES_AT + 10_000,
    "first page": 0,
    "slots without the header": HEADER_BYTES,
}
DAMAGES = ("zeros", "scribble", "bit")


def append(store: MessageStore, start: int, end: int) -> None:
    messages = [Message(TOPIC, b"%d" % n, queue_id=n % 3, keys=keys_of(n)) for n in range(start, end)]
    for one in messages:
        store.append(one)


def keys_of(n: int) -> tuple[str, ...]:
    return tuple(f"k{n}-{number}" for number in range(KEYS_EACH))


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    """A store of three index files, closed."""
    builder = StoreBuilder(tmp_path / "store", index_slots_max=SLOTS, index_entries_max=ENTRIES, segment_bytes=4 << 20)
    with builder.open() as store:
        append(store, 0, COUNT)
    assert len(index_files(builder.root)) == 3
    return builder


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def hurt(path: Path, at: int, damage: str, count: int = PAGE) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(count)
        new = bytearray(bytes(count) if damage == "zeros" else random.Random(at).randbytes(count))
        if damage == "bit":
            new[:] = old
            new[next(i for i in range(len(old) // 2, len(old)) if old[i])] ^= 1
        assert new != old
        file.seek(at)
        file.write(new)
        file.flush()
        os.fsync(file.fileno())


def misses(store: MessageStore, count: int = COUNT, step: int = 1) -> list[int]:
    """Messages that some key of theirs does not lead to."""
    wrong = []
    for n in range(0, count, step):
        key = keys_of(n)[n % KEYS_EACH]
        if [one.body for one in store.find(TOPIC, key)] != [b"%d" % n]:
            wrong.append(n)
    return wrong


CASES = [
    (0, "slots", "zeros"),
    (1, "slots", "scribble"),
    (2, "slots", "bit"),
    (0, "entries", "bit"),
    (1, "entries", "zeros"),
    (2, "entries", "scribble"),
    (0, "first page", "bit"),
    (2, "first page", "zeros"),
    (1, "slots without the header", "scribble"),
    (2, "slots without the header", "zeros"),
]


@pytest.mark.parametrize(("file", "place", "damage"), CASES)
@pytest.mark.parametrize("read_only", [False, True], ids=["writing", "read-only"])
@pytest.mark.slow(2)
def test_look_ups_behind_a_damaged_page_are_complete(
    builder: StoreBuilder, file: int, place: str, damage: str, read_only: bool
) -> None:
    hurt(index_files(builder.root)[file], PLACES[place], damage)
    with builder.open(read_only=read_only) as store:
        assert misses(store, step=7) == []


@pytest.mark.parametrize("file", [0, 1, 2])
@pytest.mark.parametrize("place", ["slots", "entries"])
@pytest.mark.slow(2)
def test_a_running_store_makes_a_damaged_file_again(builder: StoreBuilder, file: int, place: str) -> None:
    path = index_files(builder.root)[file]
    before = path.read_bytes()
    hurt(path, PLACES[place], "zeros")
    with builder.open() as store:
        assert misses(store, step=5) == []
        mended_soon(store)
        assert misses(store) == []
        append(store, COUNT, COUNT + 50)
        assert misses(store, COUNT + 50, step=9) == []
    assert path.read_bytes() == before  # Byte for byte: the same keys in the same order.
    assert verify(builder.root).flaws == []
    with builder.open() as store:
        assert store.recovery.findings == []
        assert misses(store, COUNT + 50, step=3) == []


def mended_soon(store: MessageStore) -> None:
    store.engine.services.scrub.repair()
    assert store.engine.index is not None
    assert store.engine.index.damaged == []


def test_a_damaged_file_that_grows_gets_no_more_keys(builder: StoreBuilder) -> None:
    hurt(index_files(builder.root)[2], PLACES["slots"], "zeros")
    with builder.open() as store:
        append(store, COUNT, COUNT + 100)  # Its slots are compared before they are built upon.
        store.wait_for_dispatch()
        assert len(index_files(builder.root)) == 4
        assert misses(store, COUNT + 100, step=7) == []
        mended_soon(store)
        assert misses(store, COUNT + 100, step=3) == []
    assert verify(builder.root).flaws == []


def test_from_outside_the_log_is_read_in_place_of_a_damaged_file(builder: StoreBuilder) -> None:
    hurt(index_files(builder.root)[0], PLACES["entries"], "zeros")
    hurt(index_files(builder.root)[2], PLACES["slots"], "scribble")
    survey = Survey.open(builder.root)
    for n in range(0, COUNT, 50):
        found = find_messages(survey, TOPIC, keys_of(n)[3])
        assert [one.body for one in found.messages] == [b"%d" % n]


def test_checksums_survive_a_kill(builder: StoreBuilder) -> None:
    """Full files and entries that were proven keep their checksums; the slots of the newest file are computed anew."""
    store = builder.open()
    append(store, COUNT, COUNT + 30)
    store.engine.services.housekeeping.make_durable()
    append(store, COUNT + 30, COUNT + 40)
    store.wait_for_dispatch()
    store.engine.services.housekeeping.write_out()
    kill(store)
    first, _, newest = index_files(builder.root)
    hurt(first, PLACES["slots"], "zeros")
    hurt(newest, PLACES["slots"], "zeros")
    with builder.open() as again:
        assert not again.recovery.clean
        assert misses(again, COUNT + 40, step=7) == []
        mended_soon(again)
    assert verify(builder.root).flaws == []


def kill(store: MessageStore) -> None:
    """Stop the threads and let go, without any of what a close writes."""
    store.engine.access.close()
    store.engine._stop_services()
    store.engine._let_go()


def test_a_rebuilt_index_has_checksums(builder: StoreBuilder) -> None:
    rebuild(builder.root, builder.settings, queues=False)
    proof = load_index_proof(builder.files, builder.root)
    assert proof is not None
    assert sorted(proof.checksums) == [path.name for path in index_files(builder.root)]
    hurt(index_files(builder.root)[0], PLACES["entries"], "zeros")
    with builder.open() as store:
        assert store.recovery.clean
        assert misses(store, step=29) == []
        mended_soon(store)
