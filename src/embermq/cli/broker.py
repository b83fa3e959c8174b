"""`embermq broker`: a broker in the foreground, with a name server in the same process unless others are named.

Here the command line becomes settings and bound sockets; broker_process.py runs them. What can be refused without
touching the disk is refused first: nothing is written when a port is taken or a key is unknown.
"""

import importlib
import json
import os
import sys
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from socket import socket
from typing import Any

import click

from embermq.cli.addresses import bind_both, bind_replication, own_address, parse_name_servers, resolve
from embermq.cli.network.verbs import ClusterVerbs
from embermq.cli.serving import LEVELS, NotStarted, event_log, leave_not_started, parse_listen, run_until_stopped
from embermq.errors import EmberError, SettingsError
from embermq.settings import BrokerConf, BrokerRole, read_broker_conf
from embermq.settings.broker_conf import IMPORTANT

DEFAULT_STORE = Path("embermq-store")
DEFAULT_NAME_SERVER = "127.0.0.1:9876"
# How long a thread that computes keeps the others from running: the loop answers clients in between.
SWITCH_SECONDS = 0.0005

VERBS = {
    "clean": "Have brokers clean up now.",
    "config": "Show and change settings of brokers.",
    "demote": "Make a stopped old master fit to follow the new one.",
    "lag": "Show how far every consumer group on a broker is behind.",
    "promote": "Make a stopped slave the next master.",
    "status": "Show the runtime info of brokers.",
    "writable": "Have producers send to a broker, or not.",
}

_PLACES = ("commit_log_paths", "commit_log_read_only_paths")


class BrokerVerbs(ClusterVerbs):
    """A group that runs a broker when it is called without a verb. The verbs are loaded when one is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None

        # The verbs about a running broker load no store.
        room = "switching" if cmd_name in ("demote", "promote") else "broker_verbs"
        command = getattr(importlib.import_module(f"embermq.cli.network.{room}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands for brokers that run"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=BrokerVerbs, invoke_without_command=True)
@click.option("-c", "--config", metavar="FILE", type=click.Path(path_type=Path), help="A broker.conf.")
@click.option(
    "--store",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Directory of the store. [default: storePathRootDir, or ./embermq-store]",
)
@click.option(
    "--listen", metavar="HOST:PORT", help="Where to listen; port 0 takes a free one. [default: 127.0.0.1:10911]"
)
@click.option("-n", "--namesrv", metavar="HOST:PORT[;HOST:PORT]", help="Name servers to register with.")
@click.option(
    "--namesrv-listen",
    metavar="HOST:PORT",
    help="Where the name server in this process listens, without -n. [default: 127.0.0.1:9876]",
)
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="A setting on top of -c; repeatable.")
@click.option("--resync", is_flag=True, help="A slave: move the log that is there aside, and copy the master's.")
@click.option("-p", "--print", "print_all", is_flag=True, help="Print all settings in effect, and leave.")
@click.option("-m", "--print-important", is_flag=True, help="Print the important settings in effect, and leave.")
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
def broker(
    config: Path | None,
    store: Path | None,
    listen: str | None,
    namesrv: str | None,
    namesrv_listen: str | None,
    changes: tuple[str, ...],
    resync: bool,
    print_all: bool,
    print_important: bool,
    log_file: Path | None,
    log_level: str,
    output_format: str,
) -> None:
    """Run a broker until SIGTERM or SIGINT: clients of Apache RocketMQ 4.9 send to it and consume from it.

    Without -n a name server runs in the same process. There is no authentication: let both listen on addresses that
    only your own machines can reach.

    \b
    embermq broker
    embermq broker -c conf/broker.conf -n 192.168.1.5:9876 --listen 0.0.0.0:10911
    embermq broker --store /var/lib/embermq --set flushDiskType=SYNC_FLUSH
    embermq broker --listen 127.0.0.1:0 --namesrv-listen 127.0.0.1:0 --output json     free ports, and which
    """
    context = click.get_current_context()
    if context.invoked_subcommand is not None:
        _refuse_options_before(context)
        return
    as_json = output_format == "json"
    try:
        conf = _conf(config, changes, store, listen, namesrv, namesrv_listen)
        if print_all or print_important:
            _print(conf, None if print_all else IMPORTANT, as_json)
            return
        with ExitStack() as sockets:
            main, fast = bind_both(conf.broker.listen_address, conf.store.listen_port, fast=conf.broker.fast_port)
            for bound in (main, fast):
                if bound is not None:
                    sockets.enter_context(closing(bound))
            ha = _replication_socket(conf, main, free=listen is not None and conf.store.listen_port == 0)
            if ha is not None:
                sockets.enter_context(closing(ha))
            if resync:
                _move_aside(conf)
            _run(conf, (main, fast, ha), namesrv_listen, log_file, log_level, as_json)
    except (SettingsError, NotStarted) as problem:
        leave_not_started(problem)


def _refuse_options_before(context: click.Context) -> None:
    """Options before the verb would be those of a broker that is to run, and are refused."""
    given = [
        name for name in context.params if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        verb = context.invoked_subcommand
        raise click.UsageError(f"options of a verb stand after it: embermq broker {verb} ...", context)


def _replication_socket(conf: BrokerConf, main: socket, *, free: bool) -> socket | None:
    """The socket that slaves connect to. With a free main port, any free one will do: name servers say which."""
    is_plain = conf.store.role is BrokerRole.ASYNC_MASTER
    given = conf.store.ha_listen_port if "ha_listen_port" in conf.given else None
    port = main.getsockname()[1]
    found = bind_replication(conf.broker.listen_address, given, port, must=not is_plain and not free)
    if found is None and free:
        found = bind_replication(conf.broker.listen_address, 0, port, must=True)
    if found is None:
        click.echo(f"no slave can follow: port {port + 1} is taken (--set haListenPort=PORT: another one)", err=True)
    return found


def _move_aside(conf: BrokerConf) -> None:
    if conf.store.role is not BrokerRole.SLAVE:
        raise NotStarted("--resync is for a slave (--set brokerRole=SLAVE): it copies its master's log again")
    from embermq.replication import move_log_aside

    try:
        target = move_log_aside(conf.store)
    except EmberError as problem:
        raise NotStarted(str(problem)) from None
    if target is not None:
        click.echo(f"the old log is in {target}; remove it when it is not needed any more", err=True)


def _run(
    conf: BrokerConf,
    sockets: tuple[socket, socket | None, socket | None],
    namesrv_listen: str | None,
    log_file: Path | None,
    log_level: str,
    as_json: bool,
) -> None:
    # Loads the store: `embermq broker -p` and a refused start need not wait for it.
    from embermq.cli.broker_process import BrokerPlan, run_broker

    if conf.store.root.exists() and not conf.store.root.is_dir():
        raise NotStarted(f"{conf.store.root}: a file, where a store is a directory; choose another place with --store")
    main, fast, ha = sockets
    ports = {"listen_port": main.getsockname()[1], "ha_listen_port": 0 if ha is None else ha.getsockname()[1]}
    conf = _with_found(conf._replace(store=conf.store.replace(**ports)))
    embedded = None
    if not conf.broker.name_servers:
        embedded = parse_listen(namesrv_listen or DEFAULT_NAME_SERVER, "--namesrv-listen")
    plan = BrokerPlan(conf=conf, main=main, fast=fast, ha=ha, embedded=embedded, as_json=as_json)
    sys.setswitchinterval(SWITCH_SECONDS)
    with event_log(log_file, log_level):
        run_until_stopped(lambda stop: run_broker(plan, stop))


def _conf(
    config: Path | None,
    changes: Iterable[str],
    store: Path | None,
    listen: str | None,
    namesrv: str | None,
    namesrv_listen: str | None,
) -> BrokerConf:
    """The settings in effect: options of their own win over --set, and that over file and environment."""
    conf = read_broker_conf(config, dict(map(_pair, changes)), os.environ)
    in_store, in_broker = conf.store, conf.broker
    root = store or (in_store.root if "root" in conf.given else DEFAULT_STORE)
    if listen is not None:
        host, port = parse_listen(listen, "--listen")
        in_broker = in_broker.replace(listen_address=resolve("--listen", host))
        in_store = in_store.replace(listen_port=port)
    if "broker_ip" not in conf.given:
        in_store = in_store.replace(broker_ip=own_address(in_broker.listen_address))
    if namesrv is not None:
        in_broker = in_broker.replace(name_servers=tuple(filter(None, (one.strip() for one in namesrv.split(";")))))
    parse_name_servers(in_broker.name_servers)
    if namesrv_listen is not None:
        parse_listen(namesrv_listen, "--namesrv-listen")
        if in_broker.name_servers:
            raise NotStarted("--namesrv-listen is for the name server in this process, and others are named (-n)")
    return conf._replace(store=in_store.replace(root=root.expanduser().absolute()), broker=in_broker)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise NotStarted(f"--set {text!r}: KEY=VALUE is expected")
    return key.strip(), value


def _with_found(conf: BrokerConf) -> BrokerConf:
    """Sizes and places as the files of a store that is there show them, unless they were given."""
    root = conf.store.root
    if not os.path.isdir(root):
        return conf
    from embermq.files import RealFiles
    from embermq.inspect import found_shape
    from embermq.store.layout import places_said

    try:
        found: dict[str, Any] = {**found_shape(RealFiles(), root).as_settings()}
        written, read = places_said(RealFiles(), root)
    except (EmberError, OSError):
        return conf  # The opening says what is wrong.
    if (written or read) and not conf.given & set(_PLACES):
        found |= {"commit_log_paths": written, "commit_log_read_only_paths": read}
    found = {name: value for name, value in found.items() if name not in conf.given}
    return conf._replace(store=conf.store.replace(**found))


def _print(conf: BrokerConf, names: Iterable[str] | None, as_json: bool) -> None:
    properties = conf.to_properties(None if names is None else tuple(names))
    if as_json:
        click.echo(json.dumps(properties, ensure_ascii=False))
    else:
        click.echo("\n".join(f"{name}={value}" for name, value in properties.items()))
