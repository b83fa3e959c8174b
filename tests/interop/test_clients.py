"""RocketMQ's own clients: the same script against Apache RocketMQ 4.9.7 and against `embermq broker`, the same outcome.

All clients share one broker of each kind; it is restarted once, between the two parts of their scripts.
"""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.outcomes import DELAY_LEVELS, Client, Outcome, expected, record, write_tables
from tests.interop import java_broker
from tests.interop.java_broker import broker_config, free_port, java_server
from tests.interop.programs import CLIENTS
from tests.interop.reference import ReferenceMissing
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.interop

APACHE, EMBERMQ = "Apache RocketMQ", "EmberMQ"
# Clients wait most of the time.
AT_ONCE = 3

# Settings of either broker; the Go client does not have the topic for traces made on first use.
SETTINGS = {"messageDelayLevel": DELAY_LEVELS, "traceTopicEnable": "true"}
NOTHING_MORE: Mapping[str, str] = {}
# On a busy machine Apache's broker refuses sends that waited 200 ms: clients would tell that it is slow.
PATIENCE = {
    f"waitTimeMillsIn{queue}Queue": 60_000 for queue in ("Send", "Pull", "Reply", "Heartbeat", "Transaction")
} | {"osPageCacheBusyTimeOutMills": 60_000}


@contextmanager
def apache(place: Path, more: Mapping[str, str] = NOTHING_MORE) -> Iterator[str]:
    """Apache's name server and broker on the store of `place`; the name server's address."""
    write_tables(place / "store")
    address = f"127.0.0.1:{free_port()}"
    config = broker_config(place, address) | SETTINGS | PATIENCE | dict(more) | {"mappedFileSizeCommitLog": 16 << 20}
    with (
        java_server("namesrv.NamesrvStartup", place / "namesrv", {"listenPort": address.partition(":")[2]}),
        java_server("broker.BrokerStartup", place, config) as broker,
    ):
        yield address
        broker.stop()


@contextmanager
def embermq(place: Path, more: Mapping[str, str] = NOTHING_MORE) -> Iterator[str]:
    write_tables(place / "store")
    words = [word for setting in (SETTINGS | dict(more)).items() for word in ("--set", "=".join(setting))]
    with BrokerProcess(place, *words) as broker:
        yield broker.name_server
        assert broker.stop() == 0


Outcomes = dict[str, Outcome | Exception]


def play(client: Client, broker: str, part: str, name_server: str, home: Path, came: Outcomes) -> None:
    """Adds what came of one part of a client's script, or puts what went wrong in its place."""
    so_far = came.setdefault(client.name, {})
    steps = client.steps(part, of_embermq=broker == EMBERMQ)
    if steps and not isinstance(so_far, Exception):
        try:
            so_far |= client.run(name_server, home, steps)
        except Exception as problem:
            came[client.name] = problem


@pytest.fixture(scope="module")
def clients() -> dict[str, Client | ReferenceMissing]:
    made: dict[str, Client | ReferenceMissing] = {}
    for name, make in CLIENTS.items():
        try:
            made[name] = make()
        except ReferenceMissing as why:
            made[name] = why
    return made


# What is expected was recorded from Apache's broker; that it still answers so is looked at in the long runs.
@pytest.fixture(scope="module", params=[pytest.param(APACHE, marks=pytest.mark.long), EMBERMQ])
def outcomes(
    request: pytest.FixtureRequest,
    clients: dict[str, Client | ReferenceMissing],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, Outcomes]:
    """What came of every client's script with one broker, or what went wrong."""
    try:
        java_broker.class_path()
    except ReferenceMissing as why:
        pytest.skip(str(why))
    place = tmp_path_factory.mktemp("clients")
    start = apache if request.param == APACHE else embermq
    came: Outcomes = {}
    for part in ("before", "after"):
        with start(place) as name_server, ThreadPoolExecutor(AT_ONCE) as threads:
            for client in clients.values():
                if isinstance(client, Client):
                    threads.submit(play, client, request.param, part, name_server, place / client.name, came)
    return request.param, came


@pytest.mark.parametrize("name", list(CLIENTS))
def test_a_client_cannot_tell(
    name: str, clients: dict[str, Client | ReferenceMissing], outcomes: tuple[str, Outcomes]
) -> None:
    broker, came = outcomes
    client = clients[name]
    if isinstance(client, ReferenceMissing):
        pytest.skip(str(client))
    outcome = came[name]
    if isinstance(outcome, Exception):
        raise outcome
    problems = {step: said["problem"] for step, said in outcome.items() if "problem" in said}
    assert not problems
    if broker == APACHE and os.environ.get("EMBERMQ_RECORD_OUTCOMES"):
        record(client, outcome)
    assert outcome == expected(client, of_embermq=broker == EMBERMQ)
