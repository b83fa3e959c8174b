"""Brokers of a replicated group as processes: sends to them, figures of them, slaves of theirs."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from embermq.remoting import Command, Connector, RequestCode, parse_json
from tests.support.broker_process import SMALL, BrokerProcess
from tests.support.brokers import pull_fields, send_fields
from tests.support.waiting import wait_until

SECONDS = 60.0


def ask_all(address: str, commands: Sequence[Command]) -> list[Command]:
    """The answers to requests that are sent together."""

    async def calls() -> list[Command]:
        connector = Connector()
        try:
            return list(await asyncio.gather(*(connector.call(address, one, SECONDS) for one in commands)))
        finally:
            await connector.close()

    return asyncio.run(calls())


def ask(address: str, command: Command) -> Command:
    return ask_all(address, [command])[0]


def send_command(body: bytes, queue_id: int = 0) -> Command:
    fields = {name: str(value).lower() for name, value in send_fields("T").items()}
    fields |= {"b": "T", "c": "TBW102", "e": str(queue_id)}
    return Command(RequestCode.SEND_MESSAGE_V2, ext=fields, body=body)


def send(address: str, body: bytes) -> Command:
    return ask(address, send_command(body))


def pulled(address: str, queue_id: int = 0) -> int:
    """How many messages of a queue a consumer gets, from the first one on."""
    offset = count = 0
    while True:
        fields = {name: str(value) for name, value in (pull_fields("T", offset) | {"queueId": queue_id}).items()}
        answer = ask(address, Command(RequestCode.PULL_MESSAGE, ext=fields))
        if answer.code != 0:
            return count
        assert answer.ext is not None
        after = int(answer.ext["nextBeginOffset"])
        count, offset = count + after - offset, after


def figure(address: str, name: str) -> str:
    """One value of the runtime information; empty if there is none."""
    answers: list[Command] = []

    def is_answered() -> bool:
        """RocketMQ's fails in its first seconds, and now and then while its tables change."""
        answers.append(ask(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO)))
        return answers[-1].code == 0

    wait_until(is_answered, f"{address} shows its figures", look_seconds=0.2)
    return str(parse_json(answers[-1].body)["table"].get(name, ""))


def as_slave(
    place: Path,
    name_server: str,
    *more: str,
    name: str = "b",
    sizes: Sequence[str] = SMALL,
    listen: str = "",
    within: Sequence[str] = (),
) -> BrokerProcess:
    words = ("-n", name_server, "--set", "brokerRole=SLAVE", "--set", "brokerId=1", "--set", f"brokerName={name}")
    return BrokerProcess(place, *words, *more, sizes=sizes, listen=listen, within=within)


@contextmanager
def name_server(place: Path) -> Iterator[str]:
    """The address of an `embermq namesrv` of its own."""
    words = [sys.executable, "-m", "embermq.cli", "namesrv", "--listen", "127.0.0.1:0", "--output", "json"]
    place.mkdir(parents=True, exist_ok=True)
    child = subprocess.Popen(words, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert child.stdout is not None
        yield json.loads(child.stdout.readline())["listen"]
    finally:
        child.kill()
        child.communicate()
