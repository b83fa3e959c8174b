"""`embermq namesrv`: a name server in the foreground."""

import asyncio
import json
from pathlib import Path

import click

from embermq.cli.serving import LEVELS, NotStarted, event_log, leave_not_started, parse_listen, run_until_stopped
from embermq.errors import RemotingError, SettingsError
from embermq.namesrv import NameServer
from embermq.settings import NamesrvSettings


@click.command()
@click.option("--listen", metavar="HOST:PORT", help="Where to listen, 127.0.0.1:9876 if not given; port 0: a free one.")
@click.option("-c", "--config", metavar="FILE", type=click.Path(path_type=Path), help="Settings, as in namesrv.conf.")
@click.option("--log", "log_file", metavar="FILE", type=click.Path(path_type=Path), help="Append the log to a file.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="Least level logged.")
@click.option(
    "--output",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The ready message: text for people, one JSON line for programs.",
)
def namesrv(listen: str | None, config: Path | None, log_file: Path | None, log_level: str, output_format: str) -> None:
    """Run a name server until SIGTERM or SIGINT.

    Brokers register with it, RocketMQ's as well as EmberMQ's, and clients ask it for the brokers of a topic. It has no
    authentication: let it listen on addresses that only your own machines can reach.

    \b
    embermq namesrv
    embermq namesrv --listen 192.168.1.5:9876 -c namesrv.conf --log namesrv.log
    embermq namesrv --listen 127.0.0.1:0 --output json     a free port, and one line that says which
    """
    try:
        settings = NamesrvSettings() if config is None else NamesrvSettings.from_file(config)
        host, port = (settings.listen_address, settings.listen_port) if listen is None else parse_listen(listen)
        with event_log(log_file, log_level):
            run_until_stopped(lambda stop: _serve(settings, host, port, stop, output_format == "json"))
    except (SettingsError, RemotingError, NotStarted) as problem:
        leave_not_started(problem)


async def _serve(settings: NamesrvSettings, host: str, port: int, stop: asyncio.Event, as_json: bool) -> None:
    server = NameServer(settings)
    address = await server.start(host, port)
    try:
        _say_ready(str(address), server.settings, as_json)
        await stop.wait()
    finally:
        await server.stop()


def _say_ready(address: str, settings: NamesrvSettings, as_json: bool) -> None:
    kv_config = str(settings.kv_config_path.absolute())
    if as_json:
        click.echo(json.dumps({"event": "ready", "listen": address, "kvConfig": kv_config}))
    else:
        click.echo(f"ready\n  listens on  {address}\n  KV config   {kv_config}")
