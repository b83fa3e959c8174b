"""A store with a few orders in it, and the command as a function."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.cli.app import run
from tests.support import golden

SMALL = StoreSettings(
    segment_bytes=1 << 20,
    queue_file_bytes=2000,
    index_slots_max=100,
    index_entries_max=400,
    disk_full_percent=100,
    disk_clean_percent=100,
)


class Ran:
    """What a command left behind."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    def assert_one_line(self, code: int, *parts: str) -> None:
        """Nothing but one line on standard error that says all of this."""
        assert (self.code, self.out) == (code, ""), self.err
        assert self.err.startswith("embermq: "), self.err
        assert self.err.count("\n") == 1, self.err
        for part in parts:
            assert part in self.err, self.err


class Command(Protocol):
    def __call__(self, *words: str | Path) -> Ran: ...


@pytest.fixture
def settings() -> StoreSettings:
    return SMALL


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """`embermq store WORDS...`."""

    def run_it(*words: str | Path) -> Ran:
        capsys.readouterr()
        code = run(["store", *map(str, words)])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run_it


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A store with three orders: 3 messages in queue 0, 1 in queue 1."""
    root = tmp_path / "store"
    with MessageStore.open(root, SMALL) as store:
        for number, tag in enumerate(("created", "paid", "created")):
            keys = [f"order-{number}", "all"]
            store.append(Message("orders", b"body %d" % number, tags=tag, keys=keys, properties={"region": "eu"}))
        store.append(Message("orders", b"\xff\x00", queue_id=1))
    return root


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    file = tmp_path / "broker.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in SMALL.to_properties(changed_only=True).items()))
    return file


@pytest.fixture
def restored(tmp_path: Path) -> Callable[[str], Path]:
    """A golden store of RocketMQ."""
    return lambda name: golden.restore(name, tmp_path / f"golden-{name}")
