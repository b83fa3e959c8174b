"""`python -m bench`: run the scenarios and print what came out, good or bad.

    python -m bench                              all of them at real size: minutes, and some 15 GiB of disk
    python -m bench --size smoke                 seconds; the figures say little, the hashes everything
    python -m bench --only scan --only append    some of them
    python -m bench --peers                      beside RocketMQ (needs java and mvn)
    python -m bench --output json                for programs

The exit code says whether the work was done right, not whether it was fast.
"""

import os
import platform
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from bench import (
    append,
    client_consume,
    client_send,
    delays,
    memory,
    network_filter,
    network_java,
    network_read,
    network_replication,
    network_scale,
    network_send,
    network_start,
    network_sync,
    network_transact,
    packed,
    reads,
    rebuild,
    recovery,
    scan,
    spark_jobs,
    spark_kafka,
    spark_read,
    spark_stream,
    spark_wire,
    sync,
    tools,
    topics,
    verify,
)
from bench.course import GIB, Course, Size, not_measured
from bench.figures import Figure, as_markdown, show_number
from bench.network.generator import LoadFailed, LoadMissing
from embermq.cli.output import NamedValue, NamedValues, Output, Rows, TableColumn, output_option

SCENARIOS: dict[str, ModuleType] = {
    module.NAME: module
    for module in (
        scan,
        rebuild,
        recovery,
        append,
        packed,
        topics,
        sync,
        reads,
        delays,
        memory,
        tools,
        verify,
        spark_read,
        spark_stream,
        spark_jobs,
        spark_kafka,
        spark_wire,
        network_send,
        network_sync,
        network_transact,
        network_replication,
        network_read,
        network_filter,
        network_java,
        network_scale,
        network_start,
        client_send,
        client_consume,
    )
}
# `--only network` means every scenario whose name begins so.
GROUPS = ("network", "spark", "client")
_NO_DISK = ("tmpfs", "ramfs")
_COLUMNS = [
    TableColumn("case", "case"),
    TableColumn("measure", "measure"),
    TableColumn("median", "median", right=True),
    TableColumn("range", "[min..max]"),
    TableColumn("unit", "unit"),
    TableColumn("target", "target"),
    TableColumn("verdict", "verdict"),
    TableColumn("answer", "answer"),
]


@click.command(help="Measure the store on this machine.")
@click.option(
    "--only", "names", multiple=True, type=click.Choice([*SCENARIOS, *GROUPS]), help="Run this one; repeatable."
)
@click.option("--size", type=click.Choice(["smoke", "full"]), default="full", show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), help="Rounds of each measurement [default: 5; smoke: 2].")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Where to put the files: on the disk to measure [default: the directory for temporary files].",
)
@click.option("--peers", is_flag=True, help="Measure RocketMQ and other peers as well.")
@click.option(
    "--scale",
    type=click.FloatRange(min=0.001, max=100),
    default=1.0,
    show_default=True,
    help="Messages of the network scenarios, times this.",
)
@click.option(
    "--markdown",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write the tables to this file as well, in Markdown.",
)
@output_option
def main(
    output: Output,
    names: tuple[str, ...],
    size: Size,
    rounds: int | None,
    directory: Path | None,
    peers: bool,
    scale: float,
    markdown: Path | None,
) -> None:
    course = Course(
        size=size,
        rounds=rounds or (2 if size == "smoke" else 5),
        directory=directory or Path(tempfile.gettempdir()),
        peers=peers,
        scale=scale,
        note=lambda text: output.say(text, style="dim"),
    )
    output.show(_machine(course))
    if _file_system(course.directory) in _NO_DISK:
        output.say("\nThis directory is in memory, not on a disk: choose another one with --dir.", style="bold")
    if size == "smoke":
        output.say("\nSmoke size: check the hashes; the figures are too short to mean anything.", style="bold")
    if markdown is not None:
        markdown.write_text("")  # Refused now, not after an hour; each scenario is added when it is done.
    everything: list[dict[str, Any]] = []
    missed: list[str] = []
    for name, scenario in SCENARIOS.items():
        chosen = name in names or name.partition("_")[0] in names
        if not chosen if names else not peers and getattr(scenario, "PEERS_ONLY", False):
            continue
        figures = _run(scenario, course)
        if markdown is not None:
            with markdown.open("a") as page:
                page.write(as_markdown(name, figures))
        everything += [figure.as_json(name) for figure in figures]
        missed += [f"{name}: {figure.case}, {figure.measure}" for figure in figures if figure.verdict == "missed"]
        if not output.as_json:
            output.show(Rows(name, f"{name}: {scenario.ABOUT}", _COLUMNS, [_cells(figure) for figure in figures]))
    output.record("figures", everything)
    output.record("missed", missed)
    held = sum(1 for figure in everything if figure["target"] is not None and figure["verdict"] == "met")
    output.say(f"\n{held} targets met, {len(missed)} missed" + "".join(f"\n  missed: {line}" for line in missed))


def _run(scenario: ModuleType, course: Course) -> list[Figure]:
    """The figures of a scenario; one line where a server answered wrongly, or where a tool is missing."""
    try:
        figures: list[Figure] = scenario.run(course)
    except LoadMissing as why:
        return [not_measured(scenario.NAME, "everything", "", str(why))]
    except LoadFailed as why:
        raise click.ClickException(str(why)) from why
    return figures


def _cells(figure: Figure) -> list[str]:
    target = "" if figure.target is None else str(figure.target)
    if figure.median is None:
        return [figure.case, figure.measure, "-", figure.why_not, figure.unit, target, figure.verdict, figure.answer]
    low, high = show_number(min(figure.rounds)), show_number(max(figure.rounds))
    median = show_number(figure.median)
    return [figure.case, figure.measure, median, f"[{low}..{high}]", figure.unit, target, figure.verdict, figure.answer]


def _machine(course: Course) -> NamedValues:
    """What the figures depend on besides the code."""
    disk = os.statvfs(course.directory)
    return NamedValues(
        "machine",
        "machine",
        [
            NamedValue("processor", "processor", _processor()),
            NamedValue("cores", "cores", os.cpu_count()),
            NamedValue("load", "load average (1 min)", round(os.getloadavg()[0], 1)),
            NamedValue("system", "system", f"{platform.system()} {platform.release()}"),
            NamedValue("python", "python", platform.python_version()),
            NamedValue("directory", "directory", str(course.directory)),
            NamedValue("file_system", "file system", _file_system(course.directory)),
            NamedValue("free_gib", "free there (GiB)", round(disk.f_bavail * disk.f_frsize / GIB)),
            NamedValue("size", "size", course.size),
            NamedValue("rounds", "rounds", course.rounds),
        ],
    )


def _file_system(directory: Path) -> str:
    """Type of the file system `directory` is on: the mount with the longest path above it."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    above = [(mount, kind) for mount, kind in mounts if directory.resolve().is_relative_to(mount)]
    return max(above, key=lambda one: len(one[0]), default=("", "unknown"))[1]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
