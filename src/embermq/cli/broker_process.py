"""The life of a broker's process: name server, store, broker; started in this order, stopped in the other one.

What keeps it from starting is NotStarted, one line. It says that it is ready when it has recovered, has tried every
name server, and has answered a request at the address it advertises.
"""

import asyncio
import json
import logging
import os
import socket
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import click

import embermq
from embermq.broker import Broker, open_store
from embermq.cli.addresses import LOOPBACK, is_any, resolve
from embermq.cli.serving import NotStarted
from embermq.errors import EmberError, RemotingError
from embermq.model.hosts import Host
from embermq.namesrv import NameServer
from embermq.remoting import Command, Connector, RequestCode
from embermq.replication import Replicas
from embermq.settings import BrokerConf, BrokerRole, FlushDisk, NamesrvSettings, StoreSettings
from embermq.store.recovery import RecoveryReport

log = logging.getLogger(__name__)

SELF_SECONDS = 3.0
NAME_SERVER_FOLDER = "namesrv"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """What is to run: settings with real ports, and the sockets that have them."""

    conf: BrokerConf
    main: socket.socket
    fast: socket.socket | None
    ha: socket.socket | None
    embedded: tuple[str, int] | None  # where the name server of this process listens
    as_json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A broker that can acknowledge."""

    broker: Broker
    name_servers: tuple[str, ...]  # as clients are to name them
    embedded: bool
    self_problem: str  # why the advertised address did not answer; empty: it did
    seconds: float


async def run_broker(plan: BrokerPlan, stop: asyncio.Event) -> None:
    """Until `stop` is set. NotStarted, or what an orderly end could not do (EmberError)."""
    async with AsyncExitStack() as stack:
        started = await _started(plan, stop, stack)
        if started is None:
            return
        _say_ready(ready_facts(plan.conf, started), started, plan.as_json)
        _notify("READY=1")
        await stop.wait()
        _notify("STOPPING=1")
        log.info("event=stopping")
    log.info("event=stopped")


async def _started(plan: BrokerPlan, stop: asyncio.Event, stack: AsyncExitStack) -> Started | None:
    """Everything running; None if the end was asked for meanwhile."""
    began = time.monotonic()
    conf, name_servers = plan.conf, plan.conf.broker.name_servers
    log.info("event=starting version=%s pid=%d store=%s", embermq.__version__, os.getpid(), conf.store.root)
    try:
        if plan.embedded is not None:
            address = await _start_name_server(conf, *plan.embedded, stack)
            inside = Host(_reachable(address.address), address.port)
            conf = conf._replace(broker=conf.broker.replace(name_servers=(str(inside),)))
            outside = conf.store.broker_ip if is_any(address.address) else address.address
            name_servers = (str(Host(outside, address.port)),)
        replicas = Replicas(conf.store.ha_behind_bytes_max)
        store, filters = await asyncio.to_thread(open_store, conf.store.root, conf.store, replicas=replicas)
        stack.push_async_callback(asyncio.to_thread, store.close)
        if stop.is_set():
            return None
        broker = Broker(conf.broker, store, filters=filters, replicas=replicas)
        stack.push_async_callback(broker.stop)
        await broker.start(plan.main, plan.fast, plan.ha)
    except EmberError as problem:
        raise NotStarted(str(problem)) from None
    except OSError as problem:
        place = f"{problem.filename}: " if problem.filename is not None else ""
        raise NotStarted(f"{place}{problem.strerror or problem}") from None
    _log_findings(broker)
    return Started(
        broker=broker,
        name_servers=name_servers,
        embedded=plan.embedded is not None,
        self_problem=await _call_self(conf),
        seconds=time.monotonic() - began,
    )


async def _start_name_server(conf: BrokerConf, host: str, port: int, stack: AsyncExitStack) -> Host:
    """A name server in this process; its files are with the store's tables."""
    folder = conf.store.root / "config" / NAME_SERVER_FOLDER
    settings = NamesrvSettings(kv_config_path=folder / "kvConfig.json", config_store_path=folder / "namesrv.properties")
    server = NameServer(settings)
    try:
        address = await server.start(resolve("--namesrv-listen", host), port)
    except RemotingError as problem:
        raise NotStarted(
            f"{problem}; name the name server that runs there with -n, or choose another address with --namesrv-listen"
        ) from None
    stack.push_async_callback(server.stop)
    return address


def _reachable(address: str) -> str:
    if not is_any(address):
        return address
    return "::1" if ":" in address else LOOPBACK


async def _call_self(conf: BrokerConf) -> str:
    """Why the advertised address does not answer, and what to set; empty if it does."""
    advertised = Host(conf.store.broker_ip, conf.store.listen_port)
    connector = Connector()
    request = Command(RequestCode.GET_MAX_OFFSET, ext={"topic": conf.broker.broker_name, "queueId": "0"})
    try:
        await connector.call(str(advertised), request, SELF_SECONDS)
    except RemotingError as problem:
        listens = Host(conf.broker.listen_address, conf.store.listen_port)
        advice = f"it listens on {listens}: set brokerIP1 to an address of this machine, or --listen to one that has it"
        log.warning("event=advertised_address_unreachable address=%s reason=%r", advertised, str(problem))
        return f"{problem}; {advice}"
    finally:
        await connector.close()
    return ""


def _log_findings(broker: Broker) -> None:
    for finding in broker.findings:
        log.warning("event=table_damaged finding=%r", str(finding))
    if broker.adopted:
        log.warning("event=topics_adopted topics=%s", ",".join(sorted(broker.adopted)))


# -- the ready message -------------------------------------------------------------------------------------------


def ready_facts(conf: BrokerConf, started: Started) -> dict[str, Any]:
    """What is said of a broker that is ready, for programs."""
    broker, store = started.broker, started.broker.store.settings
    facts: dict[str, Any] = {
        "event": "ready",
        "listen": str(broker.listen[0]),
        "haListen": broker.replication.port,
        "fastListen": str(broker.listen[1]) if len(broker.listen) > 1 else None,
        "advertised": str(Host(store.broker_ip, broker.listen[0].port)),
        "advertisedAnswers": not started.self_problem,
        "nameServer": ";".join(started.name_servers),
        "nameServerEmbedded": started.embedded,
        "nameServersUnreachable": sorted(broker.unreachable_name_servers),
        "store": str(broker.store.path),
        "flush": str(store.flush),
        "role": str(store.role),
        "brokerName": conf.broker.broker_name,
        "clusterName": conf.broker.cluster_name,
        "brokerId": store.broker_id,
        "acknowledges": durability(store),
        "recovery": _recovery_facts(broker.store.recovery),
        "seconds": round(started.seconds, 3),
        "pid": os.getpid(),
        "version": embermq.__version__,
    }
    if started.self_problem:
        facts["advice"] = started.self_problem
    return facts


def _recovery_facts(report: RecoveryReport) -> dict[str, Any]:
    return {
        "clean": report.clean,
        "records": report.records,
        "scannedBytes": report.scanned_bytes,
        "truncatedBytes": report.truncated_bytes,
        "damagedPlaces": len(report.damages),
        "logEnd": report.log_end,
        "seconds": round(report.seconds, 3),
    }


def durability(settings: StoreSettings) -> str:
    """How safe a message is whose producer got SEND_OK."""
    if settings.role is BrokerRole.SLAVE:
        return "nothing: a slave takes no messages"
    here = _durability_here(settings)
    return f"on a slave as well, as far as that one says; here {here}" if settings.promises_replica else here


def _durability_here(settings: StoreSettings) -> str:
    if settings.flush is FlushDisk.SYNC:
        return "on the disk: survives a power cut"
    if settings.transient_pool_active:
        moved = settings.commit_interval_ms
        return f"in a buffer: a kill may lose what came in the last {moved} ms or more, a power cut more than that"
    flushed = settings.flush_interval_ms
    return f"in the page cache: survives a kill; a power cut may lose what came in the last {flushed} ms or more"


def _say_ready(facts: dict[str, Any], started: Started, as_json: bool) -> None:
    log.info("event=ready listen=%s advertised=%s seconds=%.3f", facts["listen"], facts["advertised"], facts["seconds"])
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
        return
    fast = f" and {facts['fastListen']}" if facts["fastListen"] else ""
    where = " (in this process)" if started.embedded else ""
    lines = [
        "ready",
        f"  listens on    {facts['listen']}{fast}",
        f"  replicates    {_replication_text(facts)}",
        f"  advertises    {facts['advertised']} as {facts['brokerName']} of {facts['clusterName']}",
        f"  name server   {facts['nameServer']}{where}",
        f"  store         {facts['store']}",
        f"  acknowledges  {facts['acknowledges']} (flushDiskType={facts['flush']}, brokerRole={facts['role']})",
    ]
    if started.self_problem:
        lines.append(f"  but           {started.self_problem}")
    if facts["nameServersUnreachable"]:
        lines.append(
            f"  but           no answer yet from {', '.join(facts['nameServersUnreachable'])}; it keeps trying"
        )
    click.echo("\n".join(lines))


def _replication_text(facts: dict[str, Any]) -> str:
    if facts["role"] == BrokerRole.SLAVE:
        return "the log of the master that the name server says"
    port = facts["haListen"]
    return f"to slaves that connect to port {port}" if port else "no port: slaves cannot connect"


def _notify(state: str) -> None:
    """Tell systemd, where it started this process and waits for it (Type=notify)."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        try:
            manager.sendto(state.encode(), "\0" + path[1:] if path.startswith("@") else path)
        except OSError as problem:
            log.warning("event=notify_failed socket=%s reason=%r", path, problem.strerror or str(problem))
