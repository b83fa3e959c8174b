"""Something that is no ordinary file lies where the store keeps a small file: a FIFO, a socket, a device, a huge file,
a directory, a link to itself.

Whoever opens a FIFO waits for its other end, and whoever reads a device reads for ever. So every tool and every
opening has a few seconds here, and answers with its result or with one of our errors: never with a traceback.
"""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import pytest

from embermq import Message, MessageStore
from embermq.cli.app import run
from embermq.errors import AppendRefused, EmberError
from embermq.settings import StoreSettings

SECONDS_MAX = 30.0  # What waits for a pipe waits for ever.
SETTINGS = StoreSettings(segment_bytes=16_384, queue_file_bytes=2_000, index_slots_max=64, index_entries_max=200)
MESSAGES = 60
TIB = 1 << 40

SMALL_FILES = (
    "embermq.inventory.json",
    "embermq.index.json",
    "embermq.state",
    "embermq.offsets.json",
    "embermq.deleted.json",
    "checkpoint",
    "abort",
    "lock",
    "broker.conf",
    "config/topics.json",
    "config/consumerOffset.json",
    "config/consumerOffset.json.bak",
    "config/delayOffset.json",
    "config/subscriptionGroup.json",
    "config/broker.conf",
    "quarantine/report.jsonl",
)
DATA_FILES = ("commitlog/00000000000000016384", "consumequeue/T/0/00000000000000002000", "index/")


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # The name of a socket may not be long.
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(TIB)


def make_directory(path: Path) -> None:
    path.mkdir()


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


KINDS: dict[str, Callable[[Path], None]] = {
    "fifo": make_fifo,
    "socket": make_socket,
    "device": make_device,
    "huge": make_huge,
    "directory": make_directory,
    "loop": make_loop,
}
READING = (
    ["info"],
    ["verify"],
    ["dump"],
    ["find", "T", "k5"],
    ["get", "--at", "0"],
    ["trace", "--key", "k5"],
    ["fetch", "T", "0"],
    ["top", "--once"],
    ["clean", "--dry-run"],
    ["drop", "T", "--dry-run"],
)


@contextmanager
def time_limit(what: str) -> Iterator[None]:
    """TimeoutError if the body takes too long: out of any call that waits in the kernel, too."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"{what} takes longer than {SECONDS_MAX} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, SECONDS_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def make_store(root: Path) -> None:
    with MessageStore.open(root, SETTINGS) as store:
        for n in range(MESSAGES):
            store.append(Message("T", b"%d|" % n + b"x" * 400, keys=[f"k{n}"]))


def put(root: Path, name: str, kind: str) -> Path:
    """Something odd in the place of a file."""
    path = next((root / name).iterdir()) if name.endswith("/") else root / name
    path.parent.mkdir(exist_ok=True)
    with suppress(FileNotFoundError):
        path.unlink()
    KINDS[kind](path)
    return path


def command(root: Path, words: list[str]) -> int:
    return run(["store", words[0], str(root), *words[1:]])


def check_tools(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in READING:
        with time_limit(" ".join(words)):
            command(root, words)
        assert "Traceback" not in capsys.readouterr().err


def check_opening(root: Path, *, may_lack_records: bool = False) -> None:
    """It works, or raises one of our errors; and what was odd has not become worse."""
    appended = 0
    for read_only in (True, False, False):
        with time_limit("opening"):
            try:
                store = MessageStore.open(root, SETTINGS, read_only=read_only)
            except EmberError:
                continue
            try:
                if not read_only and not may_lack_records:
                    store.append(Message("T", b"more"))
                    appended += 1
                elif not read_only:
                    with suppress(AppendRefused):  # The next log file cannot be made there, and that is said.
                        store.append(Message("T", b"more"))
                assert may_lack_records or sum(1 for _ in store.scan()) == MESSAGES + appended
            finally:
                with suppress(EmberError):
                    store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_tools_answer_with_all_small_files_odd(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path / "s")
    for name in SMALL_FILES:
        put(tmp_path / "s", name, kind)
    check_tools(tmp_path / "s", capsys)


@pytest.mark.parametrize("kind", KINDS)
def test_an_opening_works_or_says_why_not_with_odd_files(tmp_path: Path, kind: str) -> None:
    make_store(tmp_path / "s")
    for name in SMALL_FILES:
        if name != "lock":
            put(tmp_path / "s", name, kind)
    check_opening(tmp_path / "s")


@pytest.mark.parametrize("kind", KINDS)
def test_an_odd_lock_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    make_store(tmp_path / "s")
    put(tmp_path / "s", "lock", kind)
    with time_limit("opening"):
        if kind == "huge":
            MessageStore.open(tmp_path / "s", SETTINGS).close()
        else:
            with pytest.raises(EmberError, match="lock: "):
                MessageStore.open(tmp_path / "s", SETTINGS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", DATA_FILES)
def test_an_odd_file_among_the_data_stops_no_tool(
    tmp_path: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_store(tmp_path / "s")
    put(tmp_path / "s", name, kind)
    check_tools(tmp_path / "s", capsys)
    check_opening(tmp_path / "s", may_lack_records=name.startswith("commitlog"))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SMALL_FILES)
def test_one_odd_small_file(tmp_path: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    make_store(tmp_path / "s")
    put(tmp_path / "s", name, kind)
    check_tools(tmp_path / "s", capsys)
    check_opening(tmp_path / "s")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "directory"])
def test_a_store_that_is_no_directory_is_refused(tmp_path: Path, kind: str) -> None:
    KINDS[kind](tmp_path / "s")
    for read_only in (True, False):
        with time_limit("opening"), pytest.raises(EmberError):
            MessageStore.open(tmp_path / "s", SETTINGS, read_only=read_only)
    for words in READING:
        with time_limit(" ".join(words)):
            assert command(tmp_path / "s", words) != 0
