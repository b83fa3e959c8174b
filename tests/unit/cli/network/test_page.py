"""The examples of docs/admin.md run, in the order of the page, against a broker."""

import re
import shlex
from pathlib import Path

import click
import pytest

from embermq.cli.app import app, run
from tests.support.probed_cluster import ProbedCluster

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "admin.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> object:
    with ProbedCluster(tmp_path_factory.mktemp("page")) as running:
        yield running


@pytest.mark.slow(seconds=5)
def test_the_examples_of_the_page_run(own_cluster: ProbedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", own_cluster.name_server)
    lines = [line.removeprefix("$ embermq ") for block in blocks("console") for line in block.splitlines()]
    assert len(lines) > 20
    for line in lines:
        words = [word.replace("127.0.0.1:9876", own_cluster.name_server) for word in shlex.split(line)]
        assert run(words) == 0, line
        if line.startswith("message send"):
            own_cluster.dispatched_somewhere("orders", 1)
    (program,) = blocks("python")
    exec(compile(program, "docs/admin.md", "exec"), {"name_server": own_cluster.name_server})


def test_the_page_names_no_command_that_is_not_there() -> None:
    """Of the table for mqadmin's commands and of all examples: noun and verb."""
    context = click.Context(app)
    nouns = ("topic", "group", "message", "cluster", "broker")
    named = set(re.findall(rf"`(?:embermq )?({'|'.join(nouns)}) ([a-z-]+)", PAGE))
    named |= set(re.findall(rf"\$ embermq ({'|'.join(nouns)}) ([a-z-]+)", PAGE))
    assert len(named) > 25
    for noun, verb in sorted(named):
        group = app.get_command(context, noun)
        assert isinstance(group, click.Group)
        assert group.get_command(context, verb) is not None, f"{noun} {verb}"
