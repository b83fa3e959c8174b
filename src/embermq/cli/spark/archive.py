"""`embermq spark archive`: logs into a lake."""

from dataclasses import asdict

import click

from embermq.cli.output import Output, Rows, TableColumn, number, output_option, show_bytes
from embermq.cli.spark.common import log_options, master_option, stores_argument, working
from embermq.cli.spark.lake_options import lake_options
from embermq.cli.spark.refused import no_name_server
from embermq.spark import archive as job_archive
from embermq.spark.lake import LakeFormat, schemas_in_words


@click.command()
@stores_argument
@no_name_server(
    "an archive stands in for the log, which brokers do not send to consumers;"
    " `embermq tap MASTER:10912 --into DIR --archive LAKE` follows the log of a running master,"
    " and `embermq spark pipeline --name-server ADDRESSES --into LAKE` stores the messages"
)
@click.option(
    "--into", required=True, metavar="LAKE", help="Directory or URI of the lake; created if it does not exist."
)
@click.option("--sealed-only", is_flag=True, help="Skip the log file that is still being written.")
@lake_options
@log_options
@master_option
@output_option
def archive(
    output: Output,
    paths: tuple[str, ...],
    into: str,
    sealed_only: bool,
    master: str | None,
    lake_format: LakeFormat | None,
    catalog: str | None,
    json_words: tuple[str, ...],
) -> None:
    """Write the logs of stores into a lake of Parquet files, by topic and day, or of Delta or Iceberg tables.

    Every file is verified before its range counts as archived. A later run continues where the last one ended.

    \b
    embermq spark archive /data/broker-a --into /data/lake
    embermq spark archive '/data/broker-*' --into s3://bucket/lake --sealed-only
    """
    schemas = schemas_in_words(json_words)
    with working(output, master, "embermq archive") as (spark, on_progress):
        done = job_archive(
            spark,
            list(paths),
            into,
            sealed_only=sealed_only,
            on_progress=on_progress,
            lake_format=lake_format,
            catalog=catalog,
            json=schemas,
        )
    output.record("archived", [asdict(one) for one in done])
    if not output.as_json:
        columns = [
            TableColumn("broker", "broker"),
            number("start", "log from"),
            number("end", "to"),
            number("records", "records"),
            number("files", "files"),
            number("bytes", "written", show_bytes),
            number("lost", "damaged", show_bytes),
        ]
        rows = [
            [one.broker_name, one.start, one.end, one.records, one.files, one.file_bytes, one.damaged_bytes]
            for one in done
        ]
        if any(one.undecoded for one in done):
            columns.append(number("undecoded", "failed to decode"))
            rows = [[*row, one.undecoded] for row, one in zip(rows, done, strict=True)]
        output.show(Rows("archived", f"archived into {into}", columns, rows))
    for one in done:
        if one.damaged_bytes_before:
            output.say(f"{one.broker_name}: {show_bytes(one.damaged_bytes_before)} archived before are damaged")
    if any(one.damaged_bytes + one.damaged_bytes_before for one in done):
        raise click.exceptions.Exit(1)
