"""The limit of open files, raised when a log comes near it."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from embermq.files import limits

MANY = """
import resource, sys
from embermq import Message, MessageStore, StoreSettings
resource.setrlimit(resource.RLIMIT_NOFILE, (600, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
settings = StoreSettings(segment_bytes=4096, index=False, disk_full_percent=100, kernels="never")
with MessageStore.open(sys.argv[1], settings) as store:
    for _ in range(700):
        assert store.append(Message("t", bytes(3000))).ok
with MessageStore.open(sys.argv[1], settings) as store:
    assert len(list(store.scan())) == 700
print("all there")
"""


@pytest.mark.parametrize(
    ("soft", "hard", "count", "is_enough", "raised_to"),
    [
        (1024, 4096, 100, True, None),
        (1024, 4096, 512, True, None),
        (1024, 4096, 513, True, 1538),
        (1024, 4096, 3000, True, 4096),
        (1024, 4096, 4000, False, 4096),
        (1024, 1024, 600, False, None),
        (1024, resource.RLIM_INFINITY, 10_000, True, 20_512),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 10_000, True, None),
    ],
)
def test_how_far_it_is_raised(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, count: int, is_enough: bool, raised_to: int | None
) -> None:
    reported: list[int] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, both: reported.append(both[0]))
    assert limits.allow_log_files(count) is is_enough
    assert reported == ([] if raised_to is None else [raised_to])


def test_what_the_system_refuses_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(which: int, both: tuple[int, int]) -> None:
        raise ValueError("not allowed")

    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert not limits.allow_log_files(1000)


@pytest.mark.slow
def test_a_log_of_more_files_than_the_limit(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", MANY, str(tmp_path / "store")], capture_output=True, text=True)
    assert done.stdout == "all there\n", done.stderr
