"""`embermq spark ship`: logs to a place far from the broker."""

from dataclasses import asdict

import click

from embermq.cli.output import Column, Output, Rows, number, output_option, show_bytes
from embermq.cli.spark.common import master_option, stores_argument, working
from embermq.cli.store import BadInput
from embermq.errors import StoreError
from embermq.spark.jobs import ship as job
from embermq.spark.shipped.places import shown


@click.command()
@stores_argument
@click.option("--to", "target", required=True, metavar="URI", help="Where to: s3://, gs://, hdfs://, or a directory.")
@click.option("--tail", is_flag=True, help="Also what the log file has that is still written to.")
@click.option("--ignore-data-loss", is_flag=True, help="Go on where the log has lost what comes next, with a gap.")
@master_option
@output_option
def ship(
    output: Output, paths: tuple[str, ...], target: str, tail: bool, ignore_data_loss: bool, master: str | None
) -> None:
    """Copy the logs of stores to another file system, where Spark reads them by ranges.

    Every object is read back before the manifest names it. Run it again and again: only what is new is shipped.
    Credentials for S3 are best given as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; endpoint and region as options.

    \b
    embermq spark ship /data/broker-a --to s3://bucket/logs
    embermq spark ship '/data/broker-*' --to 's3://bucket/logs?region=eu-west-1' --tail
    """
    try:
        with working(output, master, "embermq ship") as (spark, told):
            done = job.ship(spark, list(paths), target, tail=tail, ignore_data_loss=ignore_data_loss, told=told)
    except StoreError as problem:  # Another log, one with a gap, a manifest that was changed: nothing was shipped.
        raise BadInput(str(problem)) from problem
    output.record("shipped", [asdict(one) for one in done])
    if not output.as_json:
        columns = [
            Column("broker", "broker"), number("start", "log from"), number("end", "to"), number("records", "records"),
            number("objects", "objects"), number("bytes", "shipped", show_bytes),
            number("damaged", "damaged", show_bytes), number("manifest", "manifest"),
        ]  # fmt: skip
        rows = [
            [one.broker_name, one.start, one.end, one.records, one.objects, one.bytes, one.damaged_bytes, one.manifest]
            for one in done
        ]
        output.show(Rows("shipped", f"shipped to {shown(target)}", columns, rows))
    if any(one.damaged_bytes for one in done):
        raise click.exceptions.Exit(1)
