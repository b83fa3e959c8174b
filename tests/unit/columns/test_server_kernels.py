"""Kernels of a server: a thread that answers requests does not load them."""

import threading
from collections.abc import Iterator

import pytest

from embermq.columns import ServerKernels, choosing, pays, server_kernels
from embermq.settings import KernelUse
from tests.support.waiting import wait_until

MUCH = 1 << 60
IMPORT = "embermq.columns.server_kernels.import_module"


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "is_loaded", lambda _module: False)


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What was imported, and by which thread."""
    seen: list[tuple[str, int]] = []
    monkeypatch.setattr(IMPORT, lambda name: seen.append((name, threading.get_ident())))
    return seen


@pytest.fixture
def kernels() -> Iterator[ServerKernels]:
    made = ServerKernels()
    yield made
    made.stop()


def test_who_serves_does_without(kernels: ServerKernels, loading: list[tuple[str, int]]) -> None:
    assert pays("stored", MUCH)
    kernels.enter()
    assert not pays("stored", 1)
    assert not loading  # Too little work: nothing is begun.
    assert not pays("stored", MUCH)
    assert not pays("sends.frames", MUCH)
    wait_until(lambda: len(loading) == len(choosing.SERVER_KERNELS))
    kernels.stop()
    assert [name.removeprefix("embermq.columns.compiled.") for name, _ in loading] == list(choosing.SERVER_KERNELS)
    assert threading.get_ident() not in {thread for _, thread in loading}
    assert pays("stored", MUCH)  # No server runs any more.


def test_other_kernels_are_loaded_by_who_needs_them(kernels: ServerKernels, loading: list[tuple[str, int]]) -> None:
    kernels.enter()
    assert pays("gather", MUCH)
    assert pays("stored", 1, KernelUse.ALWAYS)
    assert not pays("stored", MUCH, KernelUse.NEVER)
    assert not loading


def test_one_server_of_two_goes(loading: list[tuple[str, int]]) -> None:
    first, second = ServerKernels(), ServerKernels()
    first.enter()
    second.enter()
    second.stop()
    assert not pays("stored", MUCH)
    wait_until(lambda: bool(loading))
    first.stop()


def test_a_stopped_server_loads_nothing(kernels: ServerKernels, loading: list[tuple[str, int]]) -> None:
    kernels.stop()
    kernels.load_soon()
    kernels.load()
    assert not loading


def test_kernels_that_cannot_be_loaded(
    kernels: ServerKernels, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(IMPORT, fail)
    kernels.enter()
    assert not pays("stored", MUCH)
    wait_until(lambda: "event=kernels_failed" in caplog.text)


def test_a_stop_does_not_wait_for_a_long_load(kernels: ServerKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither does what the server does last, nor another server that starts or stops meanwhile."""
    monkeypatch.setattr(server_kernels, "STOP_SECONDS", 0.01)
    began, go_on, seen = threading.Event(), threading.Event(), list[str]()

    def load(name: str) -> None:
        seen.append(name)
        began.set()
        assert go_on.wait(60)

    monkeypatch.setattr(IMPORT, load)
    kernels.enter()
    assert not pays("stored", MUCH)
    try:
        assert began.wait(60)
        other = ServerKernels()
        other.enter()
        other.stop()
        kernels.stop()
        assert not pays("stored", MUCH)
        assert not pays("gather", MUCH)
    finally:
        go_on.set()
    wait_until(lambda: pays("gather", MUCH))
    assert len(seen) == 1  # The rest is not loaded.
