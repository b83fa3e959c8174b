"""`embermq store top`: a store, watched."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from embermq.cli.output import show_bytes, show_clock, show_count, show_rate, show_time
from embermq.cli.store.options import directory_argument
from embermq.inspect import Glance, Rates, Watch, rates_between

_TOPICS_SHOWN = 12


@click.command()
@directory_argument
@click.option(
    "--interval", type=click.FloatRange(min=0.01), default=1.0, show_default=True, help="Interval in seconds."
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after this many samples.")
@click.option("--once", is_flag=True, help="Same as --count 1.")
@click.option(
    "--output",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Text, or one JSON object per sample.",
)
def top(directory: Path, interval: float, count: int | None, once: bool, output_format: str) -> None:
    """Monitor a store: messages and bytes per second, lag of dispatch and flush, segments, disk.

    \b
    embermq store top ~/store                              refreshes until you interrupt it
    embermq store top ~/store --interval 10 | tee top.log  a line every ten seconds
    embermq store top ~/store --once --output json         for scripts

    Rates are those of the last interval. Works beside a running writer, ours or a Java broker, and on a store at
    rest. Of a Java broker the flush lag is a time, from its checkpoint: only the broker knows the position.
    """
    looks = _looks(directory, interval, 1 if once else count)
    console = Console()
    try:
        if output_format == "json":
            for glance, rates in looks:
                click.echo(json.dumps(_document(directory, glance, rates)))
        elif console.is_terminal:
            _draw(console, directory, looks)
        else:
            for glance, rates in looks:
                click.echo(_line(glance, rates))
    except KeyboardInterrupt:  # How one leaves: no failure.
        return


def _looks(directory: Path, interval: float, count: int | None) -> Iterator[tuple[Glance, Rates]]:
    watch = Watch(directory)
    before = watch.look()
    number = 0
    while count is None or number < count:
        time.sleep(interval)
        after = watch.look()
        yield after, rates_between(before, after)
        before = after
        number += 1


def _line(glance: Glance, rates: Rates) -> str:
    parts = [
        show_clock(time.time_ns() // 1_000_000)[:8],
        f"{show_rate(rates.messages)} messages",
        f"{show_bytes(rates.bytes)}/s",
        f"dispatch behind {show_bytes(glance.dispatch_behind_bytes)}",
        f"flush behind {_flush_lag(glance)}",
        f"log {show_bytes(glance.log_end - glance.log_min)} in {glance.segments} files",
        f"disk {glance.disk.used_ratio:.0%} used",
    ]
    if glance.scrub.findings:
        parts.append(f"scrub findings {show_count(glance.scrub.findings)}")
    return "  ".join(parts)


def _flush_lag(glance: Glance) -> str:
    if glance.flush_behind_bytes is not None:
        return show_bytes(glance.flush_behind_bytes)
    if glance.checkpoint_behind_ms is not None:
        return f"{glance.checkpoint_behind_ms:,} ms"
    return "unknown"


def _scrub(glance: Glance) -> str:
    """How far the comparing of the store with itself is, and what it found."""
    state = glance.scrub
    if state.round_began_ms:
        done = max(state.position - glance.log_min, 0) / max(glance.log_end - glance.log_min, 1)
        progress = f"{min(done, 1.0):.0%} of the log, {show_bytes(state.bytes_per_second)}/s"
    else:
        progress = f"last round {show_time(state.finished_ms)}" if state.finished_ms else "no round yet"
    return f"{progress}; {show_count(state.findings)} findings, {show_count(state.healed)} repaired"


def _draw(console: Console, directory: Path, looks: Iterator[tuple[Glance, Rates]]) -> None:
    waiting = Text(f"{directory}: looking …", style="dim")
    with Live(waiting, console=console, auto_refresh=False) as live:
        for glance, rates in looks:
            live.update(_picture(directory, glance, rates), refresh=True)


def _picture(directory: Path, glance: Glance, rates: Rates) -> RenderableType:
    facts = Table(box=None, show_header=False, show_edge=False, padding=(0, 1))
    facts.add_column(style="dim")
    facts.add_column()
    writer = f"process {glance.writer_pid or '(unknown)'}" if glance.writer_pid is not None else "none"
    spare = f" ({glance.spare_segments} made ahead)" if glance.spare_segments else ""
    rows = [
        ("open for writing by", writer),
        ("messages", f"{show_count(glance.messages)} in {show_count(glance.queues)} queues"),
        ("coming in", f"{show_rate(rates.messages)}, {show_bytes(rates.bytes)}/s"),
        ("newest stored at", show_time(glance.newest_store_ms)),
        ("log", f"{show_bytes(glance.log_end - glance.log_min)} in {glance.segments} files{spare}"),
        ("dispatch behind", show_bytes(glance.dispatch_behind_bytes)),
        ("flush behind", _flush_lag(glance)),
        ("disk", f"{glance.disk.used_ratio:.0%} used, {show_bytes(glance.disk.available)} left"),
        ("scrub", _scrub(glance)),
    ]
    for name, value in rows:
        facts.add_row(name, value)
    title = Text(f"{directory}   {show_clock(time.time_ns() // 1_000_000)[:8]}", style="bold")
    return Group(title, facts, Text(""), _topics(glance, rates))


def _topics(glance: Glance, rates: Rates) -> Table:
    table = Table(box=None, show_edge=False, padding=(0, 1))
    table.add_column("topic")
    table.add_column("messages", justify="right")
    table.add_column("coming in", justify="right")
    quiet = sorted((topic for topic in glance.topics if topic not in rates.topics), key=lambda one: -glance.topics[one])
    for topic in [*rates.topics, *quiet][:_TOPICS_SHOWN]:
        table.add_row(Text(topic), show_count(glance.topics[topic]), show_rate(rates.topics.get(topic, 0.0)))
    if len(glance.topics) > _TOPICS_SHOWN:
        table.add_row(f"… and {len(glance.topics) - _TOPICS_SHOWN} more", "", "", style="dim")
    return table


def _document(directory: Path, glance: Glance, rates: Rates) -> dict[str, object]:
    return {
        "path": str(directory),
        "messages_per_second": rates.messages,
        "bytes_per_second": rates.bytes,
        "topics_per_second": rates.topics,
        "messages": glance.messages,
        "queues": glance.queues,
        "min_physical_offset": glance.log_min,
        "max_physical_offset": glance.log_end,
        "dispatch_behind_bytes": glance.dispatch_behind_bytes,
        "flush_behind_bytes": glance.flush_behind_bytes,
        "checkpoint_behind_ms": glance.checkpoint_behind_ms,
        "newest_store_timestamp_ms": glance.newest_store_ms,
        "segments": glance.segments,
        "spare_segments": glance.spare_segments,
        "disk_total_bytes": glance.disk.total,
        "disk_free_bytes": glance.disk.available,
        "disk_used_ratio": glance.disk.used_ratio,
        "writer_pid": glance.writer_pid,
        "scrub_position": glance.scrub.position,
        "scrub_round_began_ms": glance.scrub.round_began_ms or None,
        "scrub_finished_ms": glance.scrub.finished_ms or None,
        "scrub_bytes_per_second": glance.scrub.bytes_per_second,
        "scrub_findings": glance.scrub.findings,
        "scrub_healed": glance.scrub.healed,
    }
