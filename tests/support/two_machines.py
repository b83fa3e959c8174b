"""Two machines on one: network namespaces with a cable between them, which can be pulled or made to lose everything.

    subprocess.run([*ALONE, sys.executable, "-m", "some.module"])     # a process with a network of its own
    with TwoMachines() as machines:                                   # in that process
        subprocess.Popen([*machines.there, ...])                      # runs on the other machine

What a relay in a process cannot show: connections whose peer has gone without a word. Everything ends with the process
that was started by `ALONE`.
"""

import os
import subprocess
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.waiting import wait_until

ALONE = ("unshare", "--user", "--map-root-user", "--net")
HERE, THERE = "10.77.0.1", "10.77.0.2"
_NO_MACHINE = "02:00:00:00:00:99"


@lru_cache
def can_be_made() -> bool:
    words = "ip link set lo up && ip link add one type veth peer name two && unshare --net true"
    try:
        return subprocess.run([*ALONE, "sh", "-c", words], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


class TwoMachines:
    """This process runs on the first one, at `HERE`; the other one is `THERE`."""

    def __enter__(self) -> Self:
        _run("ip", "link", "set", "lo", "up")
        self._other = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        ours = os.readlink("/proc/self/ns/net")
        theirs = Path(f"/proc/{self._other.pid}/ns/net")
        wait_until(lambda: os.readlink(theirs) != ours, "the other machine is there")
        _run("ip", "link", "add", "here", "type", "veth", "peer", "name", "there", "netns", str(self._other.pid))
        self.there = ("nsenter", f"--net={theirs}")
        for machine, name, address in (((), "here", HERE), (self.there, "there", THERE)):
            _run(*machine, "ip", "link", "set", "lo", "up")
            _run(*machine, "ip", "address", "add", f"{address}/24", "dev", name)
            _run(*machine, "ip", "link", "set", name, "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._other.kill()
        self._other.wait()

    def unplug(self) -> None:
        """Pull the cable: both machines know it."""
        _run("ip", "link", "set", "here", "down")

    def plug_in(self) -> None:
        _run("ip", "link", "set", "here", "up")

    def lose_everything(self) -> None:
        """Packets leave, and reach nothing: neither machine sees an error."""
        _run("ip", "neigh", "replace", THERE, "lladdr", _NO_MACHINE, "dev", "here", "nud", "permanent")
        _run(*self.there, "ip", "neigh", "replace", HERE, "lladdr", _NO_MACHINE, "dev", "there", "nud", "permanent")

    def lose_nothing(self) -> None:
        _run("ip", "neigh", "del", THERE, "dev", "here")
        _run(*self.there, "ip", "neigh", "del", HERE, "dev", "there")


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
