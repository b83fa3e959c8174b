"""The clients of test_clients.py: how each is built and started, and its script."""

import fcntl
import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.clients import programs as lighter
from tests.clients.outcomes import Client
from tests.interop.reference import (
    BUILD_SECONDS_MAX,
    ROOT,
    ReferenceFailed,
    ReferenceMissing,
    cache_of,
    class_path,
    java_command,
)

JAVA = ROOT / "tests" / "interop" / "java_client"
GO = ROOT / "tests" / "interop" / "go_client"

_JAVA_BEFORE = [
    "produce,concurrent,tags",
    "reset",
    "retry,sendBack",
    "deadLetter,broadcast",
    "rebalance,delay",
    "requestReply,query",
    "trace,litePull",
    "orderly",
]
_GO_BEFORE = [
    "produce,concurrent,tags",
    "delay,retry",
    "rebalance",
    "broadcast,orderly",
    "poll,requestReply",
    "deadLetter",
    "trace",
]
_AFTER = ["sendMore,resume"]


# The request of 5.3.3 gives up as soon as it is sent, whichever broker it has.
_JAVA5_BEFORE = [chain.replace("requestReply,", "") for chain in _JAVA_BEFORE]


def _java(name: str, outcome: str, version: str, *jvm: str, steps: Sequence[str] = _JAVA_BEFORE) -> Client:
    project = JAVA / version
    classes = class_path(project / "pom.xml", (JAVA, project))
    quick = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    places = ["-Duser.home=.", "-Drocketmq.client.logRoot=logs", "-Drocketmq.client.logLevel=WARN"]
    command = java_command("ClientScript", [], jvm=[*quick, *places, *jvm], classes=classes)
    return Client(name, outcome, command, steps, _AFTER)


def transacting(version: str) -> Client:
    """The Java client for the step `transactions`, which has a test of its own."""
    return _java(f"transacting-{version}", "", version)


def _go() -> Client:
    return Client("go", "go", [str(_go_program())], _GO_BEFORE, _AFTER, {"ROCKETMQ_GO_LOG_LEVEL": "error"})


@functools.cache
def _go_program() -> Path:
    """The program of go_client, built once for each content of its sources."""
    if shutil.which("go") is None:
        raise ReferenceMissing("go is not on the PATH; a Go toolchain is needed to build the Go client")
    sources = sorted(path for path in GO.iterdir() if path.suffix in {".go", ".mod", ".sum"})
    folder = cache_of("go-client", *sources)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "building", "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not (folder / "go_client").exists():
            _build_go(folder)
    return folder / "go_client"


def _build_go(folder: Path) -> None:
    command = ["go", "build", "-mod=readonly", "-buildvcs=false", "-o", str(folder / "unfinished"), "."]
    ran = subprocess.run(
        command,
        cwd=GO,
        env=os.environ | {"GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
    )
    if ran.returncode:
        said = (ran.stdout + ran.stderr).strip()[-600:]
        if "dial tcp" in said or "Forbidden" in said:
            raise ReferenceMissing(f"go could not fetch the Go client (no network?): {said}")
        raise ReferenceFailed(f"the Go client does not build: {said}")
    (folder / "unfinished").rename(folder / "go_client")


# By name, which begins the topics and groups of a client.
CLIENTS: dict[str, Callable[[], Client]] = {
    "java4-json": lambda: _java("java4-json", "java4", "v4", "-Drocketmq.serialize.type=JSON"),
    # Through the port two below as well: what this client calls the VIP channel.
    "java4-binary": lambda: _java(
        "java4-binary",
        "java4",
        "v4",
        "-Drocketmq.serialize.type=ROCKETMQ",
        "-Dcom.rocketmq.sendMessageWithVIPChannel=true",
    ),
    "java5": lambda: _java("java5", "java5", "v5", steps=_JAVA5_BEFORE),
    "go": _go,
    "node": lighter.node,
    "cpp": lighter.cpp,
}
