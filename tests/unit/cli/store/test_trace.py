"""`embermq store trace`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.store.conftest import Command


def test_a_life_in_json(command: Command, restored: Callable[[str], Path]) -> None:
    ran = command("trace", restored("retry-dlq"), "--key", "rk1", "--output", "json")
    assert ran.code == 0
    [lineage] = ran.document["messages"]
    assert lineage["steps"][0]["message"]["keys"] == "rk1"
    assert lineage["outcome"] == "consumed by CG_retry after 1 retry"
    assert [step["what"] for step in lineage["steps"]] == ["stored", "parked", "retried"]
    assert lineage["steps"][0]["after_ms"] is None
    assert lineage["steps"][2]["after_ms"] >= 1000
    assert lineage["steps"][0]["consumed_by"] == ["CG_retry"]
    again = command("trace", restored("retry-dlq"), "--id", lineage["steps"][1]["message"]["msgId"], "--output", "json")
    assert again.document == ran.document


def test_a_life_in_text(command: Command, restored: Callable[[str], Path]) -> None:
    ran = command("trace", restored("transaction"), "--key", "txk1")
    assert ran.code == 0
    _, title, head, first, second = ran.out.splitlines()
    assert title.endswith(": rolled back")
    assert head.split()[:3] == ["step", "what", "topic"]
    assert first.split()[:3] == ["1", "prepared", "RMQ_SYS_TRANS_HALF_TOPIC"]
    assert second.split()[:3] == ["2", "decided", "RMQ_SYS_TRANS_OP_HALF_TOPIC"]


def test_many_messages_with_one_key(command: Command, directory: Path) -> None:
    every = command("trace", directory, "--key", "all", "--output", "json").document["messages"]
    assert [lineage["steps"][0]["message"]["keys"].split()[0] for lineage in every] == ["order-0", "order-1", "order-2"]
    newest = command("trace", directory, "--key", "all", "--limit", "2", "--output", "json").document["messages"]
    assert newest == every[1:]
    assert (
        command("trace", directory, "--key", "all", "--topic", "orders", "--output", "json").document["messages"]
        == every
    )


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        ([], 2, "either --key K or --id ID"),
        (["--key", "a", "--id", "b"], 2, "either --key K or --id ID"),
        (["--key", "nobody"], 1, "has the key 'nobody'"),
        (["--key", "all", "--topic", "other"], 1, "no message in topic 'other'"),
        (["--id", "nonsense"], 2, "is not a message id"),
        (["--id", "7F00000100002A9F" + "0" * 15 + "7"], 1, "there is no message"),
        (["--id", "0A00000100002A9F" + "0" * 16], 2, "is an id of the store at 10.0.0.1:10911"),
    ],
)
def test_what_cannot_be_traced(command: Command, directory: Path, words: list[str], code: int, reason: str) -> None:
    ran = command("trace", directory, *words)
    assert (ran.code, ran.out) == (code, "")
    assert reason in ran.err
