"""Directories that may not be read or written: one line, exit code 2, and nothing is changed."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from embermq.files import RealFiles
from tests.support import golden
from tests.unit.cli.store.conftest import Command

VERBS = [
    ["info"],
    ["verify"],
    ["dump"],
    ["top", "--once"],
    ["trace", "--key", "k"],
    ["find", "orders", "k"],
    ["clean"],
    ["drop", "orders"],
    ["rebuild"],
    ["load", "--from", os.devnull],
    ["append", "orders", "x"],
    ["fetch", "orders", "0"],
    ["get", "--at", "0"],
    ["salvage", "--into", "new"],
]


# Runs each of its commands, as main() does, and prints code, output and errors of all.
CHILD = """
import contextlib, io, json, sys
from embermq.cli.app import run

answers = []
for words in json.loads(sys.argv[1]):
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    answers.append([code, *(text.buffer.getvalue().decode() for text in (out, err))])
print(json.dumps(answers))
"""


def ran_unprivileged(place: Path, *commands: Sequence[object]) -> list[tuple[int, str, str]]:
    """Code, output and errors of each `embermq store COMMAND`, run without the superuser's right to everything; all in
    one process, whose start takes longer than what is asked here."""
    words = json.dumps([["store", *map(str, command)] for command in commands])
    child = [sys.executable, "-c", CHILD, words]
    if os.geteuid() == 0:
        if shutil.which("unshare") is None:
            pytest.skip("there is no unshare here")
        child = ["unshare", "--user", *child]
    done = subprocess.run(child, cwd=place, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip("user namespaces may not be made here")
    assert (done.returncode, done.stderr) == (0, "")
    return [(code, out, err) for code, out, err in json.loads(done.stdout)]


@pytest.fixture
def locked(directory: Path) -> Iterator[Path]:
    """A store nobody may look into."""
    directory.chmod(0)
    yield directory
    directory.chmod(0o755)


@pytest.mark.slow(2)
def test_a_directory_without_permission(locked: Path, tmp_path: Path) -> None:
    answers = ran_unprivileged(tmp_path, *([words[0], locked, *words[1:]] for words in VERBS))
    for words, answer in zip(VERBS, answers, strict=True):
        assert answer == (2, "", f"embermq: {locked}: no permission to read it; check its owner and mode\n"), words
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_a_place_where_nothing_may_be_made(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir()
    (tmp_path / "shut").chmod(0o555)
    into = ["--into", tmp_path / "shut" / "new"]
    for code, out, err in ran_unprivileged(tmp_path, ["rebuild", directory, *into], ["salvage", directory, *into]):
        assert (code, out) == (2, ""), err
        assert err.startswith(f"embermq: {tmp_path / 'shut' / 'new.partial'}: Permission denied; ")
        assert err.count("\n") == 1
    assert not list((tmp_path / "shut").iterdir())


@pytest.mark.slow
def test_a_log_that_may_not_be_read(directory: Path, tmp_path: Path) -> None:
    file = next((directory / "commitlog").iterdir())
    file.chmod(0)
    before = golden.tree_state(directory)
    rebuild = ["rebuild", directory]
    for code, out, err in ran_unprivileged(tmp_path, rebuild, [*rebuild, "--into", tmp_path / "new"]):
        assert (code, out) == (2, ""), err
        assert err == f"embermq: {file}: Permission denied; check its owner and mode\n"
    assert golden.tree_state(directory) == before
    assert not list(tmp_path.glob("new*"))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
@pytest.mark.parametrize("verb", ["rebuild", "salvage"])
def test_every_refusal_of_the_file_system_is_bad_input(
    command: Command, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, number: int
) -> None:
    def refuse(files: RealFiles, path: Path) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(RealFiles, "make_directory", refuse)
    command(verb, directory, "--into", tmp_path / "new").assert_one_line(2, "new.partial", os.strerror(number))


def test_a_full_disk_is_a_failure(
    command: Command, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(files: RealFiles, path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(RealFiles, "make_directory", refuse)
    command("rebuild", directory, "--into", tmp_path / "new").assert_one_line(1, "No space left", "again to continue")
