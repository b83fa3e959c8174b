"""The extension of a consume queue: entries of different lengths, found through the addresses in the queue."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.files import Files
from embermq.files.open_files import OpenFiles
from embermq.format.queue_extension import ExtensionEntry, address_of, is_address
from embermq.store.queues.consume_queues import ConsumeQueues
from embermq.store.queues.extension import ExtensionSettings, QueueExtension
from embermq.testing.clock import ManualClock
from embermq.testing.faulty_files import FaultyFiles
from embermq.testing.lossy_files import LossyFiles
from tests.support.records import LogOfRecords

ROOT = Path("/store/consumequeue")
EXTENSION = Path("/store/consumequeue_ext")
DIRECTORY = EXTENSION / "T" / "0"
FILE_BYTES = 150


def extension_of(files: Files) -> QueueExtension:
    files.make_directory(EXTENSION)
    extension = QueueExtension(DIRECTORY, OpenFiles(files, read_only=False), FILE_BYTES)
    extension.load(files)
    return extension


def written(extension: QueueExtension) -> None:
    extension.set_aside()
    extension.write_out()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 126), max_size=6), max_size=8))
def test_entries_are_found_pending_set_aside_written_and_loaded(rounds: list[list[int]]) -> None:
    files = LossyFiles()
    extension = extension_of(files)
    known: dict[int, ExtensionEntry] = {}
    for number, lengths in enumerate(rounds):
        for length in lengths:
            entry = ExtensionEntry(length - 60, 1000 + number, bytes([length]) * length)
            address = extension.put(entry.tag_code, entry.store_time, entry.bitmap)
            assert address is not None
            assert address not in known
            known[address] = entry
        if number % 3 == 1:
            written(extension)
        if number % 3 == 2:
            written(extension)
            extension = extension_of(files)
        assert {address: extension.find(address) for address in known} == known
    extension.set_aside()
    assert {address: extension.find(address) for address in known} == known


def test_a_entry_that_fits_no_file_has_no_address() -> None:
    extension = extension_of(LossyFiles())
    assert extension.put(1, 2, bytes(127)) is None
    assert extension.put(1, 2, bytes(126)) == address_of(0)
    large = QueueExtension(DIRECTORY, OpenFiles(LossyFiles(), read_only=False), 1 << 20)
    assert large.put(1, 2, bytes(32767 - 19)) is None
    assert large.put(1, 2, bytes(32767 - 20)) == address_of(0)


def test_a_entry_that_does_not_fit_the_rest_goes_to_the_next_file_behind_an_end_mark() -> None:
    files = LossyFiles()
    extension = extension_of(files)
    assert extension.put(1, 2, bytes(80)) == address_of(0)
    assert extension.put(1, 2, bytes(27)) == address_of(FILE_BYTES)
    assert extension.put(1, 2, b"") == address_of(FILE_BYTES + 47)
    written(extension)
    first = files.read_all(DIRECTORY / f"{0:020d}")
    assert first[100:] == b"\xff\xff" + bytes(48)
    assert extension_of(files).put(1, 2, b"") == address_of(FILE_BYTES + 67)


@pytest.mark.parametrize("address", [0, -1, 2598919, address_of(0), address_of(75), address_of(1 << 40)])
def test_where_there_is_no_entry_none_is_found(address: int) -> None:
    files = LossyFiles()
    extension = extension_of(files)
    assert extension.find(address) is None
    extension.put(1, 2, b"abc")
    extension.put(1, 2, b"abc")
    written(extension)
    assert (extension.find(address) is None) == (address != address_of(0))


def test_what_could_not_be_written_is_still_found_and_written_later() -> None:
    files = FaultyFiles(LossyFiles())
    extension = extension_of(files)
    addresses = [extension.put(n, n, bytes(60)) for n in range(4)]
    files.fail("pwrite", nth=3)
    extension.set_aside()
    with pytest.raises(OSError):
        extension.write_out()
    addresses.append(extension.put(4, 4, b""))
    for seen in (extension, None):
        if seen is None:
            written(extension)
            seen = extension_of(files)
        assert [entry.tag_code for a in addresses if (entry := seen.find(a or 0)) is not None] == [0, 1, 2, 3, 4]


def test_files_before_the_first_address_in_use_go() -> None:
    files = LossyFiles()
    extension = extension_of(files)
    addresses = [extension.put(n, n, bytes(60)) for n in range(6)]
    written(extension)
    extension.delete_before(addresses[1] or 0)
    assert len(files.list_directory(DIRECTORY)) == 5
    extension.delete_before(123)  # a tag code
    extension.delete_before(addresses[4] or 0)
    assert len(files.list_directory(DIRECTORY)) == 2
    assert [extension.find(address or 0) is None for address in addresses] == [True] * 4 + [False] * 2


# Through the queues


def extended(files: Files) -> ConsumeQueues:
    settings_ = ExtensionSettings(EXTENSION, FILE_BYTES, lambda batch, i: bytes([i]) * (i % 5))
    files.make_directory(ROOT)
    return ConsumeQueues(ROOT, files, 200, ManualClock(), extension=settings_)


def replayed(queues: ConsumeQueues, log: LogOfRecords) -> None:
    queues.begin_replay()
    log.feed(queues)
    queues.finish_replay(0, log.end)


def test_extension_entries_are_found_through_their_addresses() -> None:
    files = LossyFiles()
    log, queues = LogOfRecords(), extended(files)
    for n in range(40):
        log.append("T", 0, n, tags="a" * n, store_ms=1000 + n)
    log.feed(queues, 0, 25)
    queues.write_out()
    log.feed(queues, 25)
    queues.flush()
    again = extended(files)
    assert again.load() == []
    for seen in (queues, again):
        queue = seen.find("T", 0)
        assert queue is not None
        assert queue.extension is not None
        for n in range(40):
            entry = queue.entry(n)
            assert entry is not None
            assert is_address(entry[2])
            found = queue.extension.find(entry[2])
            i = n if n < 25 else n - 25
            assert isinstance(found, ExtensionEntry)
            assert (found.store_time, found.bitmap) == (1000 + n, bytes([i]) * (i % 5))
        assert queue.extension.find(5) is None
    replayed(again, log)
    before = {entry.name for entry in files.list_directory(DIRECTORY)}
    again.flush()
    assert {e.name for e in files.list_directory(DIRECTORY)} == before
    queues.discard("T", 0)
    assert files.list_directory(EXTENSION) == []


def test_a_lost_extension_is_reported_and_made_again() -> None:
    files = LossyFiles()
    log, queues = LogOfRecords(), extended(files)
    for n in range(40):
        log.append("T", 0, n)
    log.feed(queues)
    queues.flush()
    for entry in files.list_directory(DIRECTORY):
        files.remove(DIRECTORY / entry.name)
    again = extended(files)
    assert [finding.family for finding in again.load()] == ["consumequeue_ext"]
    replayed(again, log)
    again.flush()
    queue = again.find("T", 0)
    assert queue is not None
    assert queue.extension is not None
    assert all(queue.extension.find(at[2]) for n in range(40) if (at := queue.entry(n)) is not None)
