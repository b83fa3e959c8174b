"""`embermq tap`: a follower without a broker. The log of a live master, ours or Apache's, into a directory of its own.

The copy is a store like any other: Spark reads and streams it, every `embermq store` verb that reads works beside it. A
tap takes no messages and acknowledges none: its reports repeat where it began, which keeps the connection alive and
tells a SYNC_MASTER nothing. What it cannot avoid is being counted as a connected slave. With `--archive` the copy goes
into a lake as it grows (tap_archive.py).
"""

import asyncio
import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from embermq.cli.serving import NotStarted, leave_not_started, parse_listen, run_until_stopped
from embermq.cli.store.options import settings_for, writing_options
from embermq.errors import EmberError, RemotingError
from embermq.model.hosts import Host
from embermq.remoting import Command, Connector, RequestCode, ResponseCode, parse_json
from embermq.replication import Following, MasterFollower
from embermq.settings import BrokerRole, StoreSettings
from embermq.settings.java_properties import parse_properties
from embermq.store import MessageStore

if TYPE_CHECKING:
    from embermq.cli.tap_archive import LakeFeed
    from embermq.spark.jobs import Archived

ASK_SECONDS = 3.0
STARTING_SECONDS, PAUSE_SECONDS = 30.0, 0.2
LOOK_SECONDS, SAY_SECONDS = 0.05, 10.0


class MasterFacts(NamedTuple):
    """What a broker says of itself on its main port."""

    role: str
    segment_bytes: int
    log_begin: int
    log_end: int
    name: str


@click.command()
@click.argument("master", metavar="HOST:PORT")
@click.option(
    "--into", "directory", required=True, metavar="DIR", type=click.Path(path_type=Path), help="Directory of the copy."
)
@click.option("--broker", metavar="HOST:PORT", help="The master's main port. [default: one below its replication port]")
@click.option("--whole", is_flag=True, help="Begin with the master's first log file, not with its last one.")
@click.option("--once", is_flag=True, help="Leave when everything there is has been copied.")
@click.option(
    "--archive", "lake", metavar="LAKE", help="Keep this lake up to date with the copy (needs embermq[spark])."
)
@click.option("--yes", is_flag=True, help="Tap a SYNC_MASTER, or one that does not say what it is, without a question.")
@click.option("--output", "output_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@writing_options
def tap(
    master: str,
    directory: Path,
    broker: str | None,
    whole: bool,
    once: bool,
    lake: str | None,
    yes: bool,
    output_format: str,
    config_file: Path | None,
    changes: tuple[str, ...],
) -> None:
    """Follow the log of the master whose replication port is HOST:PORT (10912, say) into a store in DIR.

    Stop it with SIGINT or SIGTERM; called again, it goes on where it was. It compares the end of its log with the
    master's first, and copies nothing from a master with another past.

    \b
    embermq tap 10.0.0.1:10912 --into /data/copy
    embermq tap 10.0.0.1:10912 --into /data/copy --whole --once
    embermq tap 10.0.0.1:10912 --into /data/copy --archive /data/lake
    """
    as_json = output_format == "json"
    try:
        host, port = parse_listen(master, "the master")
        facts = asyncio.run(_ask(broker or str(Host(host, port - 1))))
        _warn(facts, master, yes=yes)
        settings = _settings(directory, config_file, changes, facts)
        # An empty log is asked for as any slave asks: a place in it would be refused.
        begin = facts.log_begin if whole and facts is not None and facts.log_end else None
        if whole and facts is None:
            raise NotStarted("--whole: where the log begins is asked on the master's main port; name it with --broker")
        with ExitStack() as stack:
            feed = None if lake is None else _feed(directory, lake, as_json)
            if feed is not None:
                stack.callback(feed.close)
            is_new = not directory.exists()
            guard = None if feed is None else feed.may_go
            store = stack.enter_context(MessageStore.open(directory, settings, retention_guard=guard))
            if is_new and facts is not None and facts.name:
                _keep_name(directory, facts.name)
            follower = MasterFollower(store, lambda: master, begin=begin, acknowledges=False)
            run_until_stopped(lambda stop: _follow(follower, feed, stop, once=once, as_json=as_json))
    except (NotStarted, EmberError) as problem:
        leave_not_started(problem)


async def _log_range(connector: Connector, address: str) -> tuple[int, int]:
    """Where the log of a broker begins and ends. A RocketMQ broker that has just started cannot say."""
    deadline = time.monotonic() + STARTING_SECONDS
    while True:
        running = await connector.call(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), ASK_SECONDS)
        if running.code == ResponseCode.SUCCESS or time.monotonic() > deadline:
            break
        await asyncio.sleep(PAUSE_SECONDS)
    table = parse_json(running.body)["table"]
    return max(0, int(table["commitLogMinOffset"])), max(0, int(table["commitLogMaxOffset"]))


async def _ask(address: str) -> MasterFacts | None:
    """What the broker at this address says of itself; None if there is none that answers."""
    connector = Connector()
    try:
        answer = await connector.call(address, Command(RequestCode.GET_BROKER_CONFIG), ASK_SECONDS)
        said = {entry.key: entry.value for entry in parse_properties(answer.body.decode("utf-8", "replace"))}
        begin, end = await _log_range(connector, address)
        role, name = said.get("brokerRole", ""), said.get("brokerName", "")
        return MasterFacts(role, int(said["mappedFileSizeCommitLog"]), begin, end, name)
    except (RemotingError, ValueError, LookupError):
        return None
    finally:
        await connector.close()


def _warn(facts: MasterFacts | None, master: str, *, yes: bool) -> None:
    if facts is not None and facts.role != BrokerRole.SYNC_MASTER:
        return
    what = f"{master} is a SYNC_MASTER" if facts is not None else f"what {master} is cannot be asked (--broker)"
    click.echo(
        f"{what}. A tap acknowledges nothing, but a SYNC_MASTER counts it as a connected slave: without another slave,"
        " its producers wait for slaveTimeout and get FLUSH_SLAVE_TIMEOUT, where they would get SLAVE_NOT_AVAILABLE at"
        " once. A RocketMQ master also takes the place where a tap begins for acknowledged.",
        err=True,
    )
    if not yes:
        raise NotStarted("nothing was done; --yes taps it all the same")


def _settings(
    directory: Path, config_file: Path | None, changes: tuple[str, ...], facts: MasterFacts | None
) -> StoreSettings:
    settings = settings_for(directory, config_file, changes)
    is_given = config_file is not None or any(pair.startswith("mappedFileSizeCommitLog=") for pair in changes)
    if facts is not None and not is_given and not (directory / "commitlog").exists():
        settings = settings.replace(segment_bytes=facts.segment_bytes)
    return settings.replace(root=directory, role=BrokerRole.SLAVE, broker_id=max(1, settings.broker_id))


def _feed(directory: Path, lake: str, as_json: bool) -> "LakeFeed":
    import embermq.spark

    try:
        embermq.spark.require_extra()
    except ModuleNotFoundError as missing:
        raise NotStarted(f"--archive: {missing}") from None
    from embermq.cli.tap_archive import LakeFeed

    return LakeFeed(directory, lake, lambda done: _say_archived(done, as_json))


def _keep_name(directory: Path, broker_name: str) -> None:
    """A copy is read under the name of its master, as the master's own store is."""
    (directory / "broker.conf").write_text(f"brokerName={broker_name}\n")


async def _follow(
    follower: MasterFollower, feed: "LakeFeed | None", stop: asyncio.Event, *, once: bool, as_json: bool
) -> None:
    copied = asyncio.Event()
    feeding = None
    follower.start()
    try:
        if feed is not None:
            feeding = asyncio.create_task(feed.follow(lambda: follower.now.stored_end, copied))
        await _copy(follower, stop, once=once, as_json=as_json)
    finally:
        copied.set()
        await asyncio.to_thread(follower.stop)
        if feeding is not None:
            await feeding
    _say(follower.now, "stopped", as_json)
    if feed is not None:
        await feed.archive()


async def _copy(follower: MasterFollower, stop: asyncio.Event, *, once: bool, as_json: bool) -> None:
    said, said_at = "", 0.0
    loop = asyncio.get_running_loop()
    while not stop.is_set():
        now = follower.now
        state = now.problem or ("followed" if now.is_compared else "connecting")
        if state != said or loop.time() - said_at > SAY_SECONDS:
            _say(now, state, as_json)
            said, said_at = state, loop.time()
        if now.differs:
            raise NotStarted(now.problem)
        if once and now.is_compared and now.is_idle:
            break
        await asyncio.sleep(LOOK_SECONDS)


def _say_archived(done: "Archived", as_json: bool) -> None:
    facts: dict[str, Any] = {"event": "archive", "broker": done.broker_name, "start": done.start, "end": done.end}
    if as_json:
        click.echo(json.dumps(facts | {"records": done.records, "damaged_bytes": done.damaged_bytes}))
    else:
        click.echo(f"archived: {done.records:,} records, the lake has the log up to {done.end:,}")


def _say(now: Following, state: str, as_json: bool) -> None:
    facts: dict[str, Any] = {"event": "tap", "state": state, "stored": now.stored_end, "behind": now.behind_bytes}
    if as_json:
        click.echo(json.dumps(facts))
    else:
        click.echo(f"{state}: the log is here up to {now.stored_end:,}, {now.behind_bytes:,} bytes behind")
