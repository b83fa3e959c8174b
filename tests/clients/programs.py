"""The clients of `make test`: how each is had and started, and its script."""

import fcntl
import functools
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

from tests.clients.outcomes import Client
from tests.interop.reference import ReferenceMissing, cache_of

HERE = Path(__file__).resolve().parent
NODE = HERE / "node"
NPM_SECONDS_MAX = 300

_NODE_BEFORE = ["produce,concurrent,tags", "delay", "retry", "rebalance", "broadcast,sharded"]


def cpp() -> Client:
    """The C++ client with its Python face; ReferenceMissing where it is not installed."""
    if importlib.util.find_spec("rocketmq") is None:
        raise ReferenceMissing("the C++ client is not installed: PyPI has `rocketmq` for Linux on x86-64 only")
    command = [sys.executable, str(HERE / "cpp_child.py")]
    steps = ["produce", "push", "tags", "orderly", "delay", "retry", "dead", "pull", "broadcast"]
    return Client("cpp", "cpp", command, steps)


def node() -> Client:
    """The Node client; ReferenceMissing where node is not there or the package cannot be had."""
    modules = {"NODE_PATH": str(_node_modules())}
    return Client("node", "node", ["node", str(NODE / "script.js")], _NODE_BEFORE, ["sendMore,resume"], modules)


@functools.cache
def _node_modules() -> Path:
    """The packages of package-lock.json, fetched once into a folder of their own outside the source tree."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            raise ReferenceMissing(f"{tool} is not on the PATH; Node's client needs node, and npm once, to fetch it")
    folder = cache_of("node-client", NODE / "package-lock.json")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "fetching", "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)  # Parallel test workers fetch once between them.
        if not (folder / "complete").exists():
            _fetch(folder)
            (folder / "complete").touch()
    return folder / "node_modules"


def _fetch(folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(NODE / name, folder)
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--fetch-retries=1"]
    try:
        ran = subprocess.run(
            ["npm", "ci", *quiet], cwd=folder, capture_output=True, text=True, timeout=NPM_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise ReferenceMissing(f"npm did not finish in {NPM_SECONDS_MAX} s in {folder}") from None
    if ran.returncode:
        said = (ran.stdout + ran.stderr).strip()[-600:]
        raise ReferenceMissing(f"npm could not fetch Node's client (no network?): {said}")
