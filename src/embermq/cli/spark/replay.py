"""`embermq spark replay`: messages of a window back into a store, or to a running cluster."""

from dataclasses import asdict
from pathlib import Path

import click

from embermq.cli.output import NamedValue, NamedValues, Output, output_option, show_count, show_seconds, show_yes
from embermq.cli.spark.common import cluster_options_for, log_options, master_option, working
from embermq.cli.store.options import settings_for, writing_options
from embermq.cli.store.times import check_order, time_option
from embermq.errors import OptionInvalid
from embermq.spark import replay as job_replay
from embermq.spark.jobs import ReplayWindow


@click.command()
@click.argument("paths", nargs=-1, metavar="[DIR]...")
@cluster_options_for("Send to the cluster of these name servers instead of a store: host:port, separated by ;.")
@click.option(
    "--from-name-server",
    metavar="ADDRESSES",
    help="Read the cluster of these name servers instead of stores, with the same account.",
)
@click.option("--topic", required=True, help="Topic to read.")
@click.option(
    "--into", metavar="STORE", help="Store to append to; created if it does not exist. Optional with --dry-run."
)
@click.option("--to-topic", metavar="TOPIC", help="Topic to append to; required with --into and --name-server.")
@time_option("--since", "begin_ms", "Stored at this time or later.")
@time_option("--until", "end_ms", "Stored before this time.")
@click.option("--tags", help="Replay only these tags, for example 'paid || sent'.")
@click.option("--where", help="Replay only messages that match this SQL condition.")
@click.option("--from-offset", type=click.IntRange(0), help="First queue offset.")
@click.option("--to-offset", type=click.IntRange(0), help="End queue offset (exclusive).")
@click.option("--archive", "lake", metavar="LAKE", help="Lake to read archived messages from.")
@click.option("--rate", type=float, metavar="N", help="Maximum number of messages per second; only with --into.")
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
    name_server: str | None,
    access: dict[str, str],
    from_name_server: str | None,
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
    embermq spark replay --archive /data/lake --topic orders --until 2026-11-01 \\
        --name-server 127.0.0.1:9876 --to-topic orders-again

    Into a store and into a cluster of EmberMQ each message comes exactly once, into Apache RocketMQ at least once.
    """
    has_target = into is not None or name_server is not None
    if not has_target and not dry_run:
        raise OptionInvalid("into", "name the store to append to, or a name server; only a --dry-run needs none")
    if not paths and lake is None and from_name_server is None:
        raise OptionInvalid("store", "name at least one store, a lake, or a name server to read from")
    if has_target and to_topic is None:
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
            name_server=name_server,
            from_name_server=from_name_server,
            access=access,
        )
    output.record("replay", asdict(done))
    if not output.as_json:
        output.show(
            NamedValues(
                "replay",
                f"{topic} into {to_topic}" if has_target else f"{topic}: would be replayed",
                [
                    NamedValue("found", "found", done.found, show_count),
                    NamedValue("skipped", "there already", done.skipped, show_count),
                    NamedValue("appended", "appended", done.appended, show_count),
                    NamedValue("seconds", "took", done.seconds, show_seconds),
                    NamedValue("dry_run", "dry run", done.dry_run, show_yes),
                ],
            )
        )
