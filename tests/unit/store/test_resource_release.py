"""What a store gives back, whatever goes wrong around it: its lock, threads, descriptors, memory."""

import gc
import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embermq import BrokerRole, FlushDisk, Message, MessageStore, StorePlugin, StoreSettings, errors

SMALL = StoreSettings(
    segment_bytes=1 << 20, queue_file_bytes=200, index_slots_max=100, index_entries_max=400, disk_full_percent=100
)


class Sink:
    """A user's sink; `wrong` says which of its methods raises."""

    name = "mine"

    def __init__(self, wrong: str = "") -> None:
        self.position, self.wrong, self.closed = 0, wrong, False

    def take(self, batch: Any, end: int) -> None:
        self._perhaps("take")
        self.position = end

    def flush(self) -> None:
        self._perhaps("flush")

    def truncate_to(self, physical_offset: int) -> None:
        self._perhaps("truncate_to")

    def close(self) -> None:
        self._perhaps("close")
        self.closed = True

    def _perhaps(self, name: str) -> None:
        if name == self.wrong:
            raise ValueError(f"{name} went wrong")


@pytest.fixture
def new_threads() -> Callable[[], list[str]]:
    """Names of the stores' threads that were not there when the test began: other tests may have left some."""
    before = set(threading.enumerate())
    return lambda: [one.name for one in threading.enumerate() if one not in before and one.name.startswith("embermq")]


def descriptors_below(path: Path) -> list[str]:
    """Descriptors and maps of this process that lead into a directory."""
    links = []
    for number in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue
    return [link for link in links if link.startswith(str(path))]


def raising(store: Any) -> Any:
    raise ValueError("a factory that fails")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"plugins": [raising]}, ValueError),
        ({"plugins": [lambda store: None]}, errors.SettingsError),
        ({"plugins": ["x"]}, errors.SettingsError),
        ({"sinks": None}, errors.StoreError),
        ({"sinks": 5}, errors.StoreError),
        ({"sinks": [object()]}, errors.StoreError),
        ({"dispatch": "Live"}, errors.StoreError),
        ({"dispatch": None}, errors.StoreError),
        ({"settings": {"flushDiskType": "SYNC_FLUSH"}}, errors.StoreError),
        ({"settings": SMALL.replace(plugins=("no.such:Thing",))}, errors.SettingsError),
    ],
)
def test_an_opening_that_fails_leaves_nothing_behind(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], new_threads: Callable[[], list[str]]
) -> None:
    with pytest.raises(error):
        MessageStore.open(tmp_path, **{"settings": SMALL, **arguments})
    assert new_threads() == []
    with MessageStore.open(tmp_path, SMALL) as store:
        assert store.append(Message("t", b"x")).ok


@pytest.mark.parametrize("path", ["a\0b", 5, None])
def test_a_path_that_is_none(path: Any) -> None:
    with pytest.raises(errors.StorePathInvalid, match="a path is expected"):
        MessageStore.open(path, SMALL)


@pytest.mark.parametrize("wrong", ["take", "flush", "close"])
def test_a_sink_that_raises_keeps_nobody_from_closing(
    tmp_path: Path, wrong: str, new_threads: Callable[[], list[str]]
) -> None:
    store = MessageStore.open(tmp_path, SMALL, sinks=[Sink(wrong)])
    store.append(Message("t", b"x"))
    assert store.max_offset("t", 0) == 1
    if wrong == "flush":
        with pytest.raises(errors.StoreError, match="sink mine: flush went wrong"):
            store.close()
    else:
        store.close()
    assert new_threads() == []
    with MessageStore.open(tmp_path, SMALL) as again:
        assert again.max_offset("t", 0) == 1


def test_a_plugin_that_cannot_be_made_closes_the_store_behind_it(tmp_path: Path) -> None:
    class Fine(StorePlugin):
        pass

    with pytest.raises(ValueError, match="a factory that fails"):
        MessageStore.open(tmp_path, SMALL, plugins=[raising, Fine])
    with MessageStore.open(tmp_path, SMALL, plugins=[Fine]) as store:
        assert store.append(Message("t", b"x")).ok


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors where Linux lists them")
@pytest.mark.parametrize("read_only", [False, True])
def test_closing_gives_every_descriptor_back(tmp_path: Path, read_only: bool) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        store.append_many(Message("t", b"x", keys=[f"k{n}"], queue_id=n % 6) for n in range(600))
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            with MessageStore.open(tmp_path, SMALL, read_only=read_only) as store:
                assert len(store.find("t", "k7")) == 1
                assert store.fetch("t", 3, 0).messages
        assert descriptors_below(tmp_path) == []
    finally:
        gc.enable()


def test_a_refusal_that_is_raised_again_and_again_keeps_no_messages(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL.replace(role=BrokerRole.SLAVE)) as store:
        tracemalloc.start()
        try:
            for _ in range(200):
                with pytest.raises(errors.AppendRefused, match="SLAVE") as caught:
                    store.append(Message("t", bytes(100_000)))
                del caught
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert kept < 5_000_000


def test_an_error_again_is_the_same_error() -> None:
    once = errors.FlushFailed("EIO")
    twice = errors.again(once)
    assert twice is not once
    assert (type(twice), str(twice), vars(twice)) == (type(once), str(once), vars(once))


# -- forks -----------------------------------------------------------------------------------------------------


def in_a_fork(work: Callable[[], str]) -> str:
    """What `work` answers in a forked process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        reported = answer.read().decode()
    os.waitpid(pid, 0)
    return reported


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("flush", list(FlushDisk))
def test_a_forked_process_does_not_write_into_the_store_of_its_parent(tmp_path: Path, flush: FlushDisk) -> None:
    store = MessageStore.open(tmp_path, SMALL.replace(flush=flush))
    store.append(Message("t", b"parent 1"))

    def child() -> str:
        heard = []
        calls: list[Callable[[], object]] = [
            lambda: store.append(Message("t", b"child")),
            lambda: store.append_many([Message("t", b"child")]),
            lambda: store.fetch("t", 0, 0),
            lambda: MessageStore.open(tmp_path, SMALL),
        ]
        for call in calls:
            try:
                call()
            except errors.StoreError as problem:
                heard.append(f"{type(problem).__name__}: {problem}")
        store.close()
        return "\n".join(heard)

    heard = in_a_fork(child).splitlines()
    assert len(heard) == 4
    assert all("was opened by the process this one was forked from" in line for line in heard[:3])
    assert heard[3].startswith(f"StoreLocked: {tmp_path} is already open for writing by process {os.getpid()}")
    assert (tmp_path / "abort").exists(), "the child has closed nothing"
    store.append(Message("t", b"parent 2"))
    assert [message.body for message in store.scan()] == [b"parent 1", b"parent 2"]
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_reads_what_was_opened_read_only(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        store.append(Message("t", b"x"))
    with MessageStore.open(tmp_path, SMALL, read_only=True) as reader:
        assert in_a_fork(lambda: str(len(reader.fetch("t", 0, 0).messages))) == "1"
