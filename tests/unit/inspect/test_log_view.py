"""Where a log ends for those outside, and whose log it is: closed, running, killed, copied, torn, taken over."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.errors import StorePathInvalid
from embermq.files import RealFiles, real_files
from embermq.format.frame import encode_blank
from embermq.inspect.snapshot import LogMatch, Survey
from embermq.settings import FlushDisk
from embermq.store.layout.owner import is_ours, lock_holder
from embermq.store.layout.state_page import STATE_FILE as STATE_PAGE
from embermq.store.layout.state_page import load_state_page
from embermq.testing.builder import StoreBuilder
from embermq.testing.faulty_files import FaultyFiles
from tests.crash import numbered
from tests.crash.kills import Child
from tests.support import golden
from tests.support.surveys import Seen, check_against_log, frames_of, seen_by

MESSAGES = [Message("t", b"body %d" % n, tags="a", keys=[f"k{n}"]) for n in range(20)]


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", **numbered.TINY)


def fill(store: MessageStore, count: int, first: int = 0) -> int:
    n = first
    while n < first + count:
        n += len(numbered.append(store, n))
    return n


# -- closed, running, killed, copied -------------------------------------------------------------------------


@pytest.mark.parametrize("flush", list(FlushDisk))
@pytest.mark.parametrize("count", [0, 1, 200])
def test_a_closed_store_is_seen_whole(builder: StoreBuilder, flush: FlushDisk, count: int) -> None:
    with builder.changed(flush=flush).open() as store:
        fill(store, count)
        end = store.max_physical
    before = golden.tree_state(builder.root)
    survey = Survey.open(builder.root)
    assert survey.log_end == end
    check_against_log(survey, frames_of(builder.root))
    survey.refresh()
    check_against_log(survey, frames_of(builder.root))
    assert golden.tree_state(builder.root) == before


@pytest.mark.parametrize("flush", list(FlushDisk))
def test_a_running_store_is_seen_whole(builder: StoreBuilder, flush: FlushDisk) -> None:
    with builder.changed(flush=flush).open() as store:
        survey = Survey.open(builder.root)
        n = 0
        for _ in range(5):
            n = fill(store, 40, n)
            survey.refresh()
            assert survey.log_end == store.max_physical
            check_against_log(survey, frames_of(builder.root))
            check_against_log(Survey.open(builder.root), frames_of(builder.root))


def test_under_sync_flush_only_what_is_durable_is_seen(builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk takes its time to sync, what was appended lies in the file, and nobody may see it."""
    in_sync, go_on = threading.Event(), threading.Event()
    really_sync = real_files._sync_data

    def sync_slowly(descriptor: int) -> None:
        in_sync.set()
        assert go_on.wait(60)
        really_sync(descriptor)

    with builder.changed(flush=FlushDisk.SYNC).open() as store:
        store.append(Message("t", b"durable"))
        end = store.max_physical
        survey = Survey.open(builder.root)
        monkeypatch.setattr(real_files, "_sync_data", sync_slowly)
        late = store.append_async(Message("t", b"not yet"))
        assert in_sync.wait(60)
        assert len(frames_of(builder.root)) == 2
        for one in (survey, Survey.open(builder.root)):
            one.refresh()
            assert one.log_end == end
            assert one.queues()["t", 0].max_offset == 1
            assert seen_by(one) == Seen([0], [])
        go_on.set()
        late.result(60)
        survey.refresh()
        assert survey.log_end == store.max_physical > end
        assert survey.queues()["t", 0].max_offset == 2


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_killed_store(tmp_path: Path, way: str) -> None:
    """Acknowledged messages are seen; under SYNC_FLUSH nothing past the flushed position, which recovery keeps."""
    root = tmp_path / "store"
    child = Child.writing(root, 0, numbered.TINY | {"flush": FlushDisk[way.upper()]})
    child.listen(60)
    child.kill()
    before = golden.tree_state(root)
    frames = frames_of(root)
    survey = Survey.open(root)
    page = load_state_page(RealFiles(), root, writable=False)
    assert page is not None
    last = frames[-1].end
    with_blank = -(-last // numbered.TINY["segment_bytes"]) * numbered.TINY["segment_bytes"]  # If a file just ended.
    assert survey.log_end in ((page.flushed,) if way == "sync" else (last, with_blank))
    check_against_log(survey, [one for one in frames if one.end <= survey.log_end])
    assert len(seen_by(survey).places) >= child.acknowledged
    # A copy has no page that counts: the last whole record.
    shutil.copytree(root, tmp_path / "copy")
    check_against_log(Survey.open(tmp_path / "copy"), frames)
    assert golden.tree_state(root) == before


def test_after_the_machine_stopped_an_unbroken_row_counts(
    builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page may be older than the log then; recovery keeps what follows without a gap."""
    builder = builder.changed(flush=FlushDisk.SYNC)
    with builder.open() as store:
        fill(store, 30)
        page = load_state_page(RealFiles(), builder.root, writable=True)
        assert page is not None
        frames = frames_of(builder.root)
        flushed = page.flushed
        page.flushed = frames[10].physical_offset
        assert Survey.open(builder.root).log_end == frames[10].physical_offset
        monkeypatch.setattr(RealFiles, "boot", lambda _: 12345)
        assert Survey.open(builder.root).log_end == flushed
        path = builder.root / "commitlog" / "0".zfill(20)
        with path.open("r+b") as file:
            file.seek(frames[15].physical_offset)
            before = file.read(8)
            file.seek(frames[15].physical_offset)
            file.write(bytes(8))
            file.flush()
            assert Survey.open(builder.root).log_end == frames[15].physical_offset
            file.seek(frames[15].physical_offset)
            file.write(before)
        page.flushed = flushed


def test_a_copy_taken_while_it_ran(builder: StoreBuilder, tmp_path: Path) -> None:
    """Queue files of a copy may have been copied at different times: only the log counts."""
    with builder.open() as store:
        fill(store, 150)
        store.wait_for_dispatch()
        shutil.copytree(builder.root, tmp_path / "copy")
        fill(store, 50, 150)
    # Queues copied first, the log last.
    shutil.rmtree(tmp_path / "copy" / "commitlog")
    shutil.copytree(builder.root / "commitlog", tmp_path / "copy" / "commitlog")
    assert (tmp_path / "copy" / "abort").exists()
    check_against_log(Survey.open(tmp_path / "copy"), frames_of(builder.root))


def test_files_made_ahead_are_no_data(builder: StoreBuilder) -> None:
    with builder.open() as store:
        fill(store, 30)
        end = store.max_physical
    for number in (1, 2, 3):
        start = (end // 8192 + number) * 8192
        (builder.root / "commitlog" / f"{start:020d}").write_bytes(bytes(8192))
    for page in (True, False):
        if not page:
            (builder.root / STATE_PAGE).unlink()
        survey = Survey.open(builder.root)
        assert survey.log_end == end
        assert len(survey.segments) >= 3


# -- the end, byte by byte -----------------------------------------------------------------------------------


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A small store without any proof, as RocketMQ leaves one when it is killed."""
    builder = StoreBuilder(tmp_path / "foreign", segment_bytes=4096)
    with builder.open() as store:
        store.append_many(MESSAGES[:4])
    for path in builder.root.iterdir():
        if path.name != "commitlog":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (builder.root / "abort").touch()
    return builder.root


@pytest.mark.parametrize("rest", [b"\0", b"\xff", b"x"])
def test_a_torn_tail_at_every_byte(foreign: Path, rest: bytes) -> None:
    """Exactly the whole records are seen, whatever lies behind the cut; and the last one once it is complete."""
    frames = frames_of(foreign)
    last, path = frames[-1], foreign / "commitlog" / "0".zfill(20)
    whole = path.read_bytes()
    survey = Survey.open(foreign)
    # No sum covers the properties: what is not zero there may be anything.
    end = last.end if rest == b"\0" else last.end - len(last.properties)
    for cut in range(last.physical_offset, end):
        path.write_bytes(whole[:cut] + (rest * 4096)[: 4096 - cut])
        for one in (survey, Survey.open(foreign)):
            one.refresh()
            assert one.log_end == last.physical_offset, cut
            assert seen_by(one) == Seen([frame.physical_offset for frame in frames[:-1]], []), cut
            assert one.queues()["t", 0].max_offset == 3
    path.write_bytes(whole)
    survey.refresh()
    check_against_log(survey, frames)


def test_a_record_is_copied_in_front_of_our_eyes(foreign: Path) -> None:
    """RocketMQ copies a record from front to back into zeros; it is seen when its last byte is there."""
    frames = frames_of(foreign)
    path = foreign / "commitlog" / "0".zfill(20)
    whole = path.read_bytes()
    path.write_bytes(whole[: frames[1].physical_offset].ljust(4096, b"\0"))
    survey = Survey.open(foreign)
    with path.open("r+b", buffering=0) as file:
        for at in range(frames[1].physical_offset, frames[-1].end):
            file.seek(at)
            file.write(whole[at : at + 1])
            survey.refresh()
            complete = [one for one in frames if one.end <= at + 1]
            assert survey.log_end == complete[-1].end
            assert survey.queues()["t", 0].max_offset == len(complete)
    check_against_log(survey, frames)


def test_a_nul_at_the_end_is_believed_after_a_second(foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Properties are in no sum: zeros at their end may be what is still to be copied, or what was sent."""
    now = [1000.0]
    monkeypatch.setattr("embermq.inspect.log_view.monotonic", lambda: now[0])
    frames = frames_of(foreign)
    last, path = frames[-1], foreign / "commitlog" / "0".zfill(20)
    with path.open("r+b", buffering=0) as file:
        file.seek(last.end - 3)
        file.write(b"\x01\0\0")
    survey = Survey.open(foreign)
    assert survey.log_end == last.physical_offset
    now[0] += 0.9
    survey.refresh()
    assert survey.log_end == last.physical_offset
    now[0] += 0.2
    survey.refresh()
    assert survey.log_end == last.end
    # Closed, it is what it is.
    (foreign / "abort").unlink()
    assert Survey.open(foreign).log_end == last.end


def test_a_nul_followed_by_a_record_is_believed(foreign: Path) -> None:
    frames = frames_of(foreign)
    with (foreign / "commitlog" / "0".zfill(20)).open("r+b") as file:
        file.seek(frames[2].end - 1)
        file.write(b"\0")
    assert Survey.open(foreign).log_end == frames[-1].end


def test_a_filler_counts_once_the_next_file_is_there(foreign: Path) -> None:
    """RocketMQ, killed between the two, goes on where the filler begins: one who has read past it would miss
    what is written there."""
    frames = frames_of(foreign)
    end, first = frames[-1].end, foreign / "commitlog" / "0".zfill(20)
    with first.open("r+b") as file:
        file.seek(end)
        file.write(encode_blank(4096 - end))
    second = foreign / "commitlog" / "4096".zfill(20)
    survey = Survey.open(foreign)
    for made in (None, b""):
        if made is not None:
            second.write_bytes(made)
        survey.refresh()
        assert survey.log_end == Survey.open(foreign).log_end == end
    second.write_bytes(bytes(4096))
    survey.refresh()
    assert survey.log_end == Survey.open(foreign).log_end == 4096
    check_against_log(survey, frames)


@pytest.mark.parametrize("aborted", [False, True])
@pytest.mark.parametrize("torn", golden.torn_tail().patches, ids=lambda torn: torn.what[:40].replace(" ", "-"))
def test_rocketmqs_torn_tails_end_where_it_ended_them(torn: golden.TornPatch, aborted: bool, tmp_path: Path) -> None:
    base = golden.torn_tail().base
    root = golden.restore(base, tmp_path)
    places = [record.phy for record in golden.manifest(base).records if not record.blank]
    torn.patch.apply(root)
    if aborted:
        (root / "abort").touch()
    outcome = torn.abnormal if aborted else torn.normal
    survey = Survey.open(root)
    # It does not start over a shortened file; the last record is torn all the same.
    end = outcome.after_start.max_physical if outcome.after_start is not None else places[-1]
    assert survey.log_end == end
    assert seen_by(survey) == Seen([place for place in places if place < end], [])


# -- changes while one looks ---------------------------------------------------------------------------------


def test_rolling_and_deleting_are_noticed(builder: StoreBuilder) -> None:
    with builder.open() as store:
        survey = Survey.open(builder.root)
        assert (survey.log_min, survey.log_end, survey.queues()) == (0, 0, {})
        n = fill(store, 150)
        survey.refresh()
        segments, end = survey.segments, survey.log_end
        queues = survey.queues()
        store.wait_for_dispatch()
        store.engine.log.segments.delete_first()
        store.engine.log.segments.delete_first()
        fill(store, 60, n)
        survey.refresh()
        assert survey.log_min == 2 * 8192
        assert survey.segments[0] == segments[2]
        assert survey.log_end // 8192 > end // 8192, "in a later file; how many lie ahead of it is another matter"
        frames = frames_of(builder.root)
        assert frames[0].physical_offset == 2 * 8192
        assert queues.keys() <= survey.queues().keys()
        check_against_log(survey, frames)
        check_against_log(Survey.open(builder.root), frames)


@pytest.mark.parametrize("has_page", [True, False])
def test_a_recreated_store_is_noticed(builder: StoreBuilder, has_page: bool) -> None:
    with builder.open() as store:
        fill(store, 80)
    if not has_page:
        (builder.root / STATE_PAGE).unlink()
    survey = Survey.open(builder.root)
    identity, at_end = survey.identity, survey.identity_at(survey.log_end)
    survey.queues()
    shutil.rmtree(builder.root)
    with builder.open() as store:
        fill(store, 100, 1000)
    if not has_page:
        (builder.root / STATE_PAGE).unlink()
    survey.refresh()
    for one in (survey, Survey.open(builder.root)):
        assert not one.same_log_as(identity)
        assert not one.same_log_as(at_end)
        assert one.identity != identity
        check_against_log(one, frames_of(builder.root))


def test_identity_survives_what_happens_to_a_log(builder: StoreBuilder, tmp_path: Path) -> None:
    with builder.open() as store:
        n = fill(store, 150)
        survey = Survey.open(builder.root)
        oldest, newest = survey.identity, survey.identity_at(survey.log_end)
        store.wait_for_dispatch()
        store.engine.log.segments.delete_first()
        fill(store, 30, n)
    survey.refresh()
    assert survey.same_log_as(oldest)  # The record is gone, and nothing speaks against it.
    assert survey.same_log_as(newest)
    shutil.copytree(builder.root, tmp_path / "copy")
    copy = Survey.open(tmp_path / "copy")
    assert copy.same_log_as(newest)
    assert survey.same_log_as(copy.identity)
    # Opened there, it gets a page and an epoch of its own: the record still decides.
    with StoreBuilder(tmp_path / "copy", **numbered.TINY).open():
        copy.refresh()
        assert copy.same_log_as(newest)
        assert survey.same_log_as(copy.identity_at(copy.log_end))


def test_a_log_that_was_cut_and_written_again(builder: StoreBuilder) -> None:
    """As after a power cut under ASYNC_FLUSH: the tail is gone and other messages stand there."""
    with builder.open() as store:
        fill(store, 40)
    frames = frames_of(builder.root)
    survey = Survey.open(builder.root)
    survey.queues()
    at_end, at_third = survey.identity_at(survey.log_end), survey.identity_at(frames[3].physical_offset)
    assert survey.compare(at_end) is survey.compare(at_third) is LogMatch.SAME
    path = sorted((builder.root / "commitlog").iterdir())[0]
    data = path.read_bytes()
    cut = frames[8].physical_offset
    path.write_bytes(data[:cut].ljust(len(data), b"\0"))
    for later in sorted((builder.root / "commitlog").iterdir())[1:]:
        later.unlink()
    survey.refresh()
    assert survey.log_end == cut
    check_against_log(survey, frames[:8])
    assert survey.compare(at_third) is LogMatch.SAME
    assert survey.compare(at_end) is not LogMatch.SAME
    with builder.open() as store:
        fill(store, 64, 4800)
        survey.refresh()
        check_against_log(survey, frames_of(builder.root))
    assert survey.compare(at_third) is LogMatch.SAME
    assert survey.compare(at_end) is not LogMatch.SAME


def test_an_end_that_was_written_again_is_told_from_another_log(builder: StoreBuilder) -> None:
    with builder.open() as store:
        fill(store, 20)
    survey, frames = Survey.open(builder.root), frames_of(builder.root)
    identities = [survey.identity_at(frame.end) for frame in frames]
    path = builder.root / "commitlog" / "0".zfill(20)
    data = path.read_bytes()
    path.write_bytes(data[: frames[10].physical_offset].ljust(len(data), b"\0"))
    survey.refresh()
    assert [survey.compare(one) for one in identities] == [LogMatch.SAME] * 10 + [LogMatch.CUT] * (len(frames) - 10)
    path.write_bytes(bytes(len(data)))
    survey.refresh()
    assert {survey.compare(one) for one in identities} == {LogMatch.OTHER}
    assert survey.same_log_as("nonsense")
    assert survey.same_log_as("-:-:-")


def test_a_store_that_is_opened_while_one_looks(builder: StoreBuilder) -> None:
    """Recovery, a new page, new files: at every step the survey sees whole records and no more than there are."""
    with builder.open() as store:
        fill(store, 40)
    (builder.root / STATE_PAGE).unlink()
    survey = Survey.open(builder.root)
    end = survey.log_end
    with builder.open() as store:
        survey.refresh()
        assert survey.log_end == end
        fill(store, 40, 40)
        survey.refresh()
        check_against_log(survey, frames_of(builder.root))


# -- somebody else ---------------------------------------------------------------------------------------------

_HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, 0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def hold() -> Iterator[Callable[[Path], int]]:
    """`hold(lock file)`: a process that has the lock and is not one of ours."""
    held: list[subprocess.Popen[bytes]] = []

    def take(path: Path) -> int:
        command = [sys.executable, "-c", _HOLD, str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        held.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return process.pid

    yield take
    for process in held:
        process.communicate()


def test_who_has_the_lock(builder: StoreBuilder, hold: Callable[[Path], int]) -> None:
    assert lock_holder(builder.root) is None
    with builder.open():
        assert lock_holder(builder.root) == os.getpid()
    assert lock_holder(builder.root) is None
    assert hold(builder.root / "lock") == lock_holder(builder.root)


def test_which_process_is_ours(builder: StoreBuilder, hold: Callable[[Path], int]) -> None:
    page = builder.root / STATE_PAGE
    with builder.open():
        assert is_ours(os.getpid(), page) is True
    assert is_ours(hold(builder.root / "lock"), page) is False
    assert is_ours(os.getpid(), builder.root / "missing") is False
    assert is_ours(1 << 30, page) is False


def test_looking_does_not_give_our_lock_up(builder: StoreBuilder, hold: Callable[[Path], int]) -> None:
    with builder.open() as store:
        fill(store, 10)
        Survey.open(builder.root).queues()
        assert lock_holder(builder.root) == os.getpid()


def test_rocketmq_takes_over_a_killed_store(tmp_path: Path, hold: Callable[[Path], int]) -> None:
    """Our page says SYNC_FLUSH and stands still, while somebody else writes on: his records are seen."""
    root = tmp_path / "store"
    child = Child.writing(root, 0, numbered.TINY | {"flush": FlushDisk.SYNC})
    child.listen(40)
    child.kill()
    page = load_state_page(RealFiles(), root, writable=True)
    assert page is not None
    frames = frames_of(root)
    page.flushed = frames[-6].physical_offset
    survey = Survey.open(root)
    assert survey.log_end == page.flushed
    hold(root / "lock")
    survey.refresh()
    assert survey.log_end == frames[-1].end


# -- bad input -------------------------------------------------------------------------------------------------


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "readme").touch()
    (tmp_path / "empty").mkdir()
    for name in ("file", "other", "empty", "missing"):
        with pytest.raises(StorePathInvalid) as raised:
            Survey.open(tmp_path / name)
        assert raised.value.path == tmp_path / name


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(builder: StoreBuilder) -> None:
    with builder.open() as store:
        fill(store, 5)
    path = sorted((builder.root / "commitlog").iterdir())[0]
    path.chmod(0)
    with pytest.raises(StorePathInvalid) as raised:
        Survey.open(builder.root)
    assert raised.value.path == path


def test_an_unreadable_disk_is_named(builder: StoreBuilder) -> None:
    with builder.open() as store:
        fill(store, 5)
    disk = FaultyFiles(RealFiles())
    disk.fail("pread", nth=1, times=None)
    with pytest.raises(StorePathInvalid) as raised:
        Survey.open(builder.root, files=disk)
    assert "Input/output error" in str(raised.value)


def test_a_store_whose_directory_goes_away(builder: StoreBuilder) -> None:
    with builder.open() as store:
        fill(store, 5)
    survey = Survey.open(builder.root)
    shutil.rmtree(builder.root)
    with pytest.raises(StorePathInvalid):
        survey.refresh()
