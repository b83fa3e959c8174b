"""`embermq spark replay`: messages of a window back into a store."""

from dataclasses import asdict
from pathlib import Path

import click

from embermq.cli.output import NamedValue, NamedValues, Output, output_option, show_count, show_seconds, show_yes
from embermq.cli.spark.common import log_options, master_option, stores_argument, working
from embermq.cli.spark.refused import no_name_server
from embermq.cli.store.options import settings_for, writing_options
from embermq.cli.store.times import check_order, time_option
from embermq.errors import OptionInvalid
from embermq.spark import replay as job_replay
from embermq.spark.jobs import ReplayWindow


@click.command()
@stores_argument
@no_name_server(
    "a replay appends to a store that no broker has open;"
    " to send messages to a cluster, write a table with the option nameServer (docs/spark-wire.md#writing)"
)
@click.option("--topic", required=True, help="Topic to read.")
@click.option(
    "--into", metavar="STORE", help="Store to append to; created if it does not exist. Optional with --dry-run."
)
@click.option("--to-topic", metavar="TOPIC", help="Topic to append to; required with --into.")
@time_option("--since", "begin_ms", "Stored at this time or later.")
@time_option("--until", "end_ms", "Stored before this time.")
@click.option("--tags", help="Replay only these tags, for example 'paid || sent'.")
@click.option("--where", help="Replay only messages that match this SQL condition.")
@click.option("--from-offset", type=click.IntRange(0), help="First queue offset.")
@click.option("--to-offset", type=click.IntRange(0), help="End queue offset (exclusive).")
@click.option("--archive", "lake", metavar="LAKE", help="Lake to read archived messages from.")
@click.option("--rate", type=float, metavar="N", help="Maximum number of messages per second.")
@click.option("--id", "replay_id", default="replay", show_default=True, help="Name of this replay; see below.")
@click.option("--dry-run", is_flag=True, help="Count the messages without replaying them.")
@log_options
@writing_options
@master_option
@output_option
def replay(
    output: Output,
    config_file: Path | None,
    changes: tuple[str, ...],
    paths: tuple[str, ...],
    topic: str,
    into: str | None,
    to_topic: str | None,
    begin_ms: int | None,
    end_ms: int | None,
    tags: str | None,
    where: str | None,
    from_offset: int | None,
    to_offset: int | None,
    lake: str | None,
    rate: float | None,
    replay_id: str,
    dry_run: bool,
    master: str | None,
) -> None:
    """Append messages of a range to a topic again, oldest first. Properties record their origin.

    A replay that is run again under the same --id goes on after what went through before.

    \b
    embermq spark replay /data/broker-a --topic orders --since 2026-11-01 --tags paid \\
        --into /data/test-store --to-topic orders --rate 500
    embermq spark replay /data/broker-a --topic orders --since 2026-11-01 --dry-run
    """
    if into is None and not dry_run:
        raise OptionInvalid("into", "name the store to append to; only a --dry-run needs none")
    if into is not None and to_topic is None:
        raise OptionInvalid("to-topic", "name the topic to append to")
    check_order("--since", begin_ms, "--until", end_ms)
    window = ReplayWindow(topic, begin_ms, end_ms, tags, where, start_offset=from_offset, end_offset=to_offset)
    settings = settings_for(Path(into), config_file, changes) if into is not None else None
    with working(output, master, "embermq replay") as (spark, on_progress):
        done = job_replay(
            spark,
            list(paths),
            window,
            into,
            to_topic=to_topic,
            replay_id=replay_id,
            lake=lake,
            rate=rate,
            dry_run=dry_run,
            settings=settings,
            on_progress=lambda count, total: on_progress("replaying", count, total),
        )
    output.record("replay", asdict(done))
    if not output.as_json:
        output.show(
            NamedValues(
                "replay",
                f"{topic} into {to_topic}" if into is not None else f"{topic}: would be replayed",
                [
                    NamedValue("found", "found", done.found, show_count),
                    NamedValue("skipped", "there already", done.skipped, show_count),
                    NamedValue("appended", "appended", done.appended, show_count),
                    NamedValue("seconds", "took", done.seconds, show_seconds),
                    NamedValue("dry_run", "dry run", done.dry_run, show_yes),
                ],
            )
        )
