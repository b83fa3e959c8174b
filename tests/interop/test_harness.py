"""The harness itself: what it writes is what the golden stores hold, what it reads is what was put."""

from pathlib import Path

import msgspec
import pytest

from tests.interop.reference import ReferenceFailed, ReferenceSession, copied
from tests.interop.workload import SMALL_FILES, mixed, plain, put_of
from tests.support import golden

pytestmark = pytest.mark.interop

# Others were changed after their puts (files deleted), or are large.
REPLAYED = ("basic", "batch", "compressed-raw", "delay-parked", "index", "ipv6", "transaction-raw")


@pytest.mark.parametrize("name", REPLAYED)
def test_replayed_golden_puts_give_the_golden_bytes(name: str, directory: Path) -> None:
    manifest = golden.manifest(name)
    settings = {key: str(value) for key, value in manifest.settings.items()}
    with ReferenceSession(directory, settings) as session:
        answers = session.put_all(msgspec.to_builtins(put) for put in manifest.puts)
    assert [answer.status for answer in answers] == [put.result.status for put in manifest.puts]
    kept = golden.restore(name, directory.parent / "golden")
    for family in ("commitlog", "consumequeue"):
        assert golden.content(directory / family) == golden.content(kept / family), family
    assert golden.content(directory / "index", names=False) == golden.content(kept / "index", names=False)


def test_a_dump_holds_every_put(directory: Path) -> None:
    puts = mixed(60, seed=1)
    with ReferenceSession(directory, SMALL_FILES) as session:
        answers = session.put_all(map(put_of, puts))
        session.settle()
        dump = session.dump()
    assert all(answer.ok for answer in answers)
    assert sum(answer.msg_num for answer in answers) == len(dump.records)
    assert {answer.wrote_offset for answer in answers} <= {record.phy for record in dump.records}
    assert not any(queue.odd for queue in dump.queues)


def test_a_killed_reference_keeps_what_it_acknowledged(directory: Path) -> None:
    puts = [put_of(message) for message in plain(3000, seed=2)]
    with ReferenceSession(directory, SMALL_FILES) as session:
        session.feed(puts)
        acknowledged = session.put_answers()
        offsets = [next(acknowledged).wrote_offset for _ in range(500)]
        session.kill()
        offsets += [answer.wrote_offset for answer in acknowledged]
    assert 500 <= len(offsets) < len(puts)
    assert (directory / "abort").exists()
    with copied(directory, drop_empty_files=True) as copy, ReferenceSession(copy, SMALL_FILES) as session:
        found = {record.phy for record in session.dump().records}
    assert set(offsets) <= found


def test_a_store_of_other_sizes_is_refused_in_words(directory: Path) -> None:
    with ReferenceSession(directory, SMALL_FILES) as session:
        session.put(put_of(plain(1, seed=3)[0]))
    with pytest.raises(ReferenceFailed, match="refuses to load"):
        ReferenceSession(directory, {**SMALL_FILES, "mappedFileSizeCommitLog": "131072"})
