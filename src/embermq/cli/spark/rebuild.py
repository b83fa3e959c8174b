"""`embermq spark rebuild`: queues and index again from the log, by many tasks."""

from pathlib import Path

import click

from embermq.cli.output import Output, output_option
from embermq.cli.spark.common import master_option, working
from embermq.cli.store.options import config_options, directory_argument
from embermq.cli.store.rebuild import settings_of, show_rebuilt
from embermq.files import RealFiles
from embermq.spark import rebuild as job_rebuild
from embermq.store.layout import check_directory


@click.command()
@directory_argument
@click.option("--queues", is_flag=True, help="Rebuild only the consume queues, and their extension if there is one.")
@click.option("--index", is_flag=True, help="Rebuild only the index.")
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    metavar="NEW",
    help="Write to this new directory; the store is not changed.",
)
@config_options("--config", "--settings", "--store-config")
@click.option(
    "--commit-log", metavar="DIRS", help="Where the log of the store is; several directories with commas between."
)
@master_option
@output_option
def rebuild(
    output: Output,
    directory: Path,
    queues: bool,
    index: bool,
    into: Path | None,
    config_file: Path | None,
    changes: tuple[str, ...],
    commit_log: str | None,
    master: str | None,
) -> None:
    """Rebuild the consume queues and the index from the log, with all cores of this machine or a cluster.

    \b
    embermq spark rebuild /data/broker-a
    embermq spark rebuild /data/broker-a --index
    embermq spark rebuild /data/broker-a --into /data/derived --master spark://host:7077

    The files are those of `embermq store rebuild`, byte for byte: built aside, compared with the log entry by entry and
    key by key, and swapped in. Killed at any moment, the same command goes on. Workers must see DIR (and NEW) under
    the same path.
    """
    root = directory.expanduser().absolute()
    # Before Spark is started.
    check_directory(RealFiles(), root, read_only=True, has_log_elsewhere=bool(config_file or commit_log))
    if commit_log is not None:
        changes = (*changes, f"storePathCommitLog={commit_log}")
    settings = settings_of(root, config_file, changes)
    with working(output, master, "embermq rebuild") as (spark, on_progress):
        made = job_rebuild(
            spark,
            root,
            settings=settings,
            queues=queues or not index,
            index=index or not queues,
            into=into,
            on_progress=on_progress,
        )
    show_rebuilt(output, root, made)
