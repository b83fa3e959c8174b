"""`embermq broker promote` and `demote`: a switch of masters by hand, on the directories of brokers that do not run."""

import asyncio
from pathlib import Path
from typing import Any

import click

from embermq.cli.serving import NotStarted, leave_not_started
from embermq.cli.store.options import settings_for, writing_options
from embermq.errors import EmberError, RemotingError
from embermq.remoting import Command, Connector, RequestCode, parse_json
from embermq.replication import Epoch
from embermq.replication import demote as demote_store
from embermq.replication import promote as promote_store

ASK_SECONDS = 5.0

_directory = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))


@click.command()
@_directory
@writing_options
def promote(directory: Path, config_file: Path | None, changes: tuple[str, ...]) -> None:
    """Make the stopped slave in DIR the next master: it gets a higher epoch than the master it followed.

    Start it with brokerRole=SYNC_MASTER or ASYNC_MASTER then. A broker of an older epoch does not start as a master of
    the same name any more while this one runs; `embermq broker demote` makes it a slave.

    \b
    embermq broker promote /data/s
    """
    try:
        epoch = promote_store(directory, settings_for(directory, config_file, changes))
    except EmberError as problem:
        return leave_not_started(problem)
    click.echo(f"epoch {epoch.number} begins at {epoch.start:,}; start a broker on {directory} as a master")
    return None


@click.command()
@_directory
@click.option("--master", required=True, metavar="HOST:PORT", help="Main port of the new master, which runs.")
@writing_options
def demote(directory: Path, master: str, config_file: Path | None, changes: tuple[str, ...]) -> None:
    """Make the stopped old master in DIR fit to follow the new one. What only it has is kept aside and reported.

    \b
    embermq broker demote /data/m --master 10.0.0.2:10911
    """
    try:
        done = demote_store(directory, settings_for(directory, config_file, changes), asyncio.run(_epoch(master)))
    except (NotStarted, EmberError) as problem:
        return leave_not_started(problem)
    if done.aside is None:
        return click.echo(f"nothing had to be cut at {done.end:,}; start a broker on {directory} as a SLAVE")
    return click.echo(
        f"{done.messages:,} messages ({done.end - done.start:,} bytes of the log from {done.start:,} on) were stored"
        f" here alone: they are in {done.aside}, as messages.jsonl for `embermq store load`. Start a broker on"
        f" {directory} as a SLAVE"
    )


async def _epoch(master: str) -> Epoch:
    connector = Connector()
    try:
        answer = await connector.call(master, Command(RequestCode.GET_BROKER_RUNTIME_INFO), ASK_SECONDS)
        table: dict[str, Any] = parse_json(answer.body)["table"]
        return Epoch(int(table["emberEpoch"]), int(table["emberEpochStart"]))
    except RemotingError as problem:
        raise NotStarted(f"--master {master}: {problem}") from None
    except (ValueError, LookupError):
        raise NotStarted(f"--master {master}: it has no epoch; is it an EmberMQ broker?") from None
    finally:
        await connector.close()
