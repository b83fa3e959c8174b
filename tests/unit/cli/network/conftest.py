"""One broker for all tests of the folder, and the command as a function."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from embermq.cli.app import run
from tests.support.probed_cluster import ProbedCluster


class Ran:
    """What a command left behind."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def mistake(self) -> str:
        """The one line of a command that could not be tried."""
        assert (self.code, self.out, self.err.count("\n")) == (2, "", 1), (self.code, self.out, self.err)
        return self.err


Command = Callable[..., Ran]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProbedCluster]:
    with ProbedCluster(Path(tmp_path_factory.mktemp("cluster")), "--set", "enablePropertyFilter=true") as running:
        yield running


@pytest.fixture
def command(cluster: ProbedCluster, capsys: pytest.CaptureFixture[str]) -> Command:
    """`command("topic list --all")`; `command("topic list", as_json=True).json`."""

    def call(text: str, *more: str, as_json: bool = False) -> Ran:
        capsys.readouterr()
        words = [*text.split(), *more, "-n", cluster.name_server]
        code = run([*words, "--output", "json"] if as_json else words)
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return call
