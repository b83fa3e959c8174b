"""What came of a client's script, as JSON: recorded from Apache RocketMQ, and the same from EmberMQ but for a table.

A client is a program that is given a name server, a prefix for its topics and groups, and steps; it prints one JSON
line a step. What Apache RocketMQ 4.9.7 makes of the script is kept in outcomes/NAME.json. `make interop` compares that
file with both brokers; the clients that `make test` has are compared there with EmberMQ. A file is written anew from
Apache's broker where EMBERMQ_RECORD_OUTCOMES=1 is set for that test (tests/interop/test_clients.py).
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parent / "outcomes"
SCRIPT_SECONDS = 300
# Every delay is a second: retries and dead letters come soon.
DELAY_LEVELS = " ".join(["1s"] * 18)
ONE_RETRY = "cpp-dead"
NODE_TOPICS = [f"node-{name}" for name in ("produced", "broadcast", "sharded", "delayed", "retried", "shared")]
NODE_TOPICS += ["orders"]  # Of docs/clients.md.

Said = dict[str, Any]
Outcome = dict[str, Said]


class Wanted(NamedTuple):
    """What EmberMQ's outcome of a step is instead of Apache's."""

    said: Said
    reason: str
    is_asked_of_apache: bool = True


# By file of outcomes and step.
WANTED: dict[tuple[str, str], Wanted] = {
    ("java5", "litePull"): Wanted(
        {"bodies": ["big", *(f"polled-{number}" for number in range(5))], "committed": 6, "queues": 4},
        "the lite pull consumer of 5.x asks by request 361, which 4.9.7 does not know and EmberMQ answers",
        is_asked_of_apache=False,
    ),
    ("cpp", "push"): Wanted(
        {"seen": [f"{kind}-{n} 0" for kind, count in (("batch", 4), ("oneway", 4), ("sync", 6)) for n in range(count)]},
        "this client says batch=1, which Java does not read as true: Apache's broker stores a batch as one message",
    ),
}


@dataclass(frozen=True)
class Client:
    """A program and its script. `name` begins its topics and groups; `outcome` is its file, which several may share."""

    name: str
    outcome: str
    command: Sequence[str]
    before: Sequence[str]
    after: Sequence[str] = ()  # After a restart of the broker.
    environment: Mapping[str, str] = field(default_factory=dict)

    def steps(self, part: str, *, of_embermq: bool) -> list[str]:
        """The chains of one part, `before` or `after` a restart, without the steps that are not asked of Apache."""
        kept: list[str] = []
        for chain in getattr(self, part):
            steps = [one for one in chain.split(",") if of_embermq or self._is_asked_of_apache(one)]
            kept += [",".join(steps)] if steps else []
        return kept

    def _is_asked_of_apache(self, step: str) -> bool:
        wanted = WANTED.get((self.outcome, step))
        return wanted is None or wanted.is_asked_of_apache

    def run(self, name_server: str, home: Path, steps: Sequence[str]) -> Outcome:
        """What each step said; AssertionError with the program's output where one said nothing."""
        home.mkdir(parents=True, exist_ok=True)
        ran = subprocess.run(
            [*self.command, name_server, self.name, *steps],
            capture_output=True,
            text=True,
            timeout=SCRIPT_SECONDS,
            check=False,
            cwd=home,
            env={**os.environ, "HOME": str(home), **self.environment},
        )
        lines = [line for line in ran.stdout.splitlines() if line.startswith('{"')]
        said = {one.pop("step"): one for one in map(json.loads, lines)}
        wanted = {step for chain in steps for step in chain.split(",")}
        assert set(said) == wanted, f"{self.name}: {said}\n{ran.stdout[-2000:]}\n{ran.stderr[-6000:]}"
        return said


def expected(client: Client, *, of_embermq: bool) -> Outcome:
    """What the client's file says, with EmberMQ's wanted differences."""
    recorded: Outcome = json.loads((FOLDER / f"{client.outcome}.json").read_text())
    if of_embermq:
        recorded |= {step: wanted.said for (name, step), wanted in WANTED.items() if name == client.outcome}
    return recorded


def record(client: Client, outcome: Outcome) -> None:
    text = json.dumps(outcome, indent=1, sort_keys=True, ensure_ascii=False)
    (FOLDER / f"{client.outcome}.json").write_text(text + "\n")


def write_tables(store: Path) -> None:
    """Topics and groups as an administrator leaves them, where the store is new.

    One group gives up after one retry. The Node client has no topic made on first use.
    """
    config = store / "config"
    if config.exists():
        return
    config.mkdir(parents=True)
    version = {"counter": 1, "timestamp": 1}
    group = {"groupName": ONE_RETRY, "retryMaxTimes": 1, "retryQueueNums": 1}
    groups = {"dataVersion": version, "subscriptionGroupTable": {ONE_RETRY: group}}
    topics = {
        name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG"}
        for name in NODE_TOPICS
    }
    (config / "subscriptionGroup.json").write_text(json.dumps(groups))
    (config / "topics.json").write_text(json.dumps({"dataVersion": version, "topicConfigTable": topics}))
