"""How long a job over many logs takes on a cluster: a formula, and a simulation that knows what the formula does not.

    python tools/scaling.py                                            # the examples of docs/scaling.md
    python tools/scaling.py --brokers 20 --log 5TB --executors 10 --cores 8 --job rebuild

The formula divides work by the narrowest of cores, network, and where the bytes come from. The simulation hands
slices to cores one by one, as Spark does, lets tasks share disks and networks, and gives some of them bad luck: so
it sees the last wave, the straggler, and the broker whose disk everybody wants at once. docs/scaling.md compares
both with measured runs. Pure: nothing is run, nothing is read.
"""

import heapq
import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

MB = 10**6
GB = 10**9
TB = 10**12
_SIZE = re.compile(r"^\s*([0-9.]+)\s*([KMGTP]?)i?B?\s*$", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
# A step of the simulation: no task may be further off than this part of itself.
_STEP = 0.02


@dataclass(frozen=True, slots=True)
class Job:
    """What a job asks of a core. Rates are of log bytes, page cache warm; measured by `python -m bench`."""

    name: str
    core_bytes_per_second: float
    task_seconds: float  # what a task costs whatever its length
    output_share: float  # bytes written for each byte of log


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where it runs. Infinite rates are allowed: `math.inf` says that a thing is never the narrowest."""

    executors: int
    cores: int  # of each executor
    network_bytes_per_second: float = math.inf  # of each executor
    source_bytes_per_second: float = math.inf  # of each broker's disk, or of its share of an object store
    target_bytes_per_second: float = math.inf  # of the place where results go, all together
    start_seconds: float = 5.0  # session, planning, first Python workers and their kernels
    core_efficiency: float = 1.0  # what a core keeps when all are busy: memory bandwidth, hyper-threads

    @property
    def slots(self) -> int:
        return self.executors * self.cores


@dataclass(frozen=True, slots=True)
class Logs:
    """What is read."""

    brokers: int
    bytes_each: int
    slice_bytes: int = 128 << 20

    @property
    def total(self) -> int:
        return self.brokers * self.bytes_each

    @property
    def slices(self) -> int:
        return self.brokers * math.ceil(self.bytes_each / self.slice_bytes)


@dataclass(frozen=True, slots=True)
class Estimate:
    seconds: float
    narrowest: str

    def rate(self, logs: Logs) -> float:
        return logs.total / self.seconds


def formula(job: Job, logs: Logs, cluster: Cluster) -> Estimate:
    """Start, and the work divided by whatever is narrowest."""
    slots = min(cluster.slots, logs.slices)
    core = job.core_bytes_per_second * cluster.core_efficiency
    in_core = logs.slice_bytes / core + job.task_seconds
    candidates = {
        "cores": logs.slices * in_core / slots,
        "network": logs.total * (1 + job.output_share) / (cluster.network_bytes_per_second * cluster.executors),
        "source": logs.bytes_each / cluster.source_bytes_per_second,
        "target": logs.total * job.output_share / cluster.target_bytes_per_second,
    }
    narrowest = max(candidates, key=lambda name: candidates[name])
    return Estimate(cluster.start_seconds + candidates[narrowest], narrowest)


@dataclass(slots=True)
class _Task:
    broker: int
    executor: int
    left_bytes: float
    core_rate: float
    rate: float = 0.0


def simulate(job: Job, logs: Logs, cluster: Cluster, *, straggling: float = 0.0, seed: int = 1) -> float:
    """Seconds, slices handed to cores as they become free. `straggling`: the share of tasks at a third of the speed."""
    chance = random.Random(seed)
    waiting = _in_turn(logs)
    free = [executor for executor in range(cluster.executors) for _ in range(cluster.cores)]
    running: list[_Task] = []
    starting: list[tuple[float, int, _Task]] = []  # what a task costs before its first byte
    now, count = cluster.start_seconds, 0
    while waiting or running or starting:
        while waiting and free:
            broker, size = waiting.pop()
            slow = 3.0 if chance.random() < straggling else 1.0
            core = job.core_bytes_per_second * cluster.core_efficiency / slow
            count += 1
            heapq.heappush(
                starting, (now + job.task_seconds * slow, count, _Task(broker, free.pop(), float(size), core))
            )
        _share(running, job, cluster)
        step = _next_step(running, starting, now)
        now += step
        for task in running:
            task.left_bytes -= task.rate * step
        free += [task.executor for task in running if task.left_bytes <= 1]
        running = [task for task in running if task.left_bytes > 1]
        while starting and starting[0][0] <= now + 1e-12:
            running.append(heapq.heappop(starting)[2])
    return now


def _in_turn(logs: Logs) -> list[tuple[int, int]]:
    """Slices of all brokers, one of each in turn, the last to be taken first in the list."""
    each = math.ceil(logs.bytes_each / logs.slice_bytes)
    sizes = [logs.slice_bytes] * (each - 1) + [logs.bytes_each - logs.slice_bytes * (each - 1)]
    return [(broker, size) for size in reversed(sizes) for broker in range(logs.brokers)]


def _share(running: Sequence[_Task], job: Job, cluster: Cluster) -> None:
    """Everybody gets an even share of what he shares with others."""
    on_broker: dict[int, int] = {}
    on_executor: dict[int, int] = {}
    for task in running:
        on_broker[task.broker] = on_broker.get(task.broker, 0) + 1
        on_executor[task.executor] = on_executor.get(task.executor, 0) + 1
    through = 1 + job.output_share
    target = cluster.target_bytes_per_second / max(job.output_share, 1e-9) / max(len(running), 1)
    for task in running:
        task.rate = min(
            task.core_rate,
            cluster.source_bytes_per_second / on_broker[task.broker],
            cluster.network_bytes_per_second / through / on_executor[task.executor],
            target,
        )


def _next_step(running: Sequence[_Task], starting: Sequence[tuple[float, int, _Task]], now: float) -> float:
    """Until something changes: a task ends or begins to read. Those that end almost together end together."""
    ends = [task.left_bytes / task.rate for task in running]
    step = min(ends, default=math.inf)
    if running:
        step = max(step, _STEP * min(1.0, max(ends)))
    if starting:
        step = min(step, max(starting[0][0] - now, 0.0))
    return step


# -- figures -----------------------------------------------------------------------------------------------------

# Rates of one core of the machine that the tables of README.md were measured on, when both are busy.
JOBS = {
    job.name: job
    for job in (
        Job("rebuild", 1.5 * GB, 0.03, 0.05),
        Job("audit", 1.9 * GB, 0.03, 0.001),
        Job("read", 0.31 * GB, 0.05, 0.0),
        Job("lake", 0.095 * GB, 0.10, 0.6),
    )
}


def size(text: str) -> int:
    """`5TB`, `128MiB`: both are taken as powers of ten, as disks and networks are sold."""
    found = _SIZE.match(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a size; write it as 500GB or 5TB")
    return int(float(found[1]) * 1000 ** _POWERS[found[2].upper()])


def show_seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def cores_to_keep_up(job: Job, bytes_per_day: float, *, share_of_time: float = 0.5) -> int:
    """Cores that a stream needs in all if they may be busy `share_of_time` of the day."""
    return math.ceil(bytes_per_day / 86_400 / job.core_bytes_per_second / share_of_time)


@click.command(help=__doc__)
@click.option("--job", "name", type=click.Choice(list(JOBS)), help="Default: all of them.")
@click.option("--brokers", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--log", "log", default="5TB", show_default=True, help="Log of each broker.")
@click.option("--executors", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--cores", type=click.IntRange(min=1), default=8, show_default=True, help="Of each executor.")
@click.option("--network", default="3GB", show_default=True, help="Of each executor, in a second.")
@click.option("--disk", default="2GB", show_default=True, help="What each broker's disk gives, in a second.")
@click.option("--target", default="20GB", show_default=True, help="What the target takes, in a second.")
def main(
    name: str | None, brokers: int, log: str, executors: int, cores: int, network: str, disk: str, target: str
) -> None:
    logs = Logs(brokers, size(log), slice_bytes=1 * GB)
    cluster = Cluster(executors, cores, float(size(network)), float(size(disk)), float(size(target)))
    click.echo(f"{'job':<10}{'formula':>12}{'simulated':>12}{'5 % slow':>12}{'rate':>12}  narrowest")
    for job in (JOBS[name],) if name else JOBS.values():
        estimate = formula(job, logs, cluster)
        # A simulation of a few thousand slices says as much as one of a hundred thousand.
        coarse = replace(logs, slice_bytes=max(logs.slice_bytes, logs.total // 4000))
        even, uneven = (simulate(job, coarse, cluster, straggling=share) for share in (0.0, 0.05))
        click.echo(
            f"{job.name:<10}{show_seconds(estimate.seconds):>12}{show_seconds(even):>12}{show_seconds(uneven):>12}"
            f"{estimate.rate(logs) / GB:>8.1f} GB/s  {estimate.narrowest}"
        )


if __name__ == "__main__":
    main()
