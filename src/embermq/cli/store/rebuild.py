"""`embermq store rebuild`: queues and index again from the log."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from embermq import StoreSettings
from embermq.cli.output import NamedValue, NamedValues, Output, output_option, show_bytes, show_count, show_seconds
from embermq.cli.store.options import directory_argument, settings_for, writing_options
from embermq.cli.store.verify import progress_line
from embermq.files import RealFiles
from embermq.repair.rebuild import Rebuilt, settings_as_found
from embermq.repair.rebuild import rebuild as rebuild_store
from embermq.settings.store_settings import NAMES
from embermq.store.log import Damage


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
@writing_options
@output_option
def rebuild(
    output: Output,
    directory: Path,
    queues: bool,
    index: bool,
    into: Path | None,
    config_file: Path | None,
    changes: tuple[str, ...],
) -> None:
    """Rebuild the consume queues and the index from the log.

    \b
    embermq store rebuild ~/store                          both
    embermq store rebuild ~/store --queues                 the queues alone
    embermq store rebuild ~/store --into /tmp/derived      beside a store that may be running

    They are built aside, compared with the log entry by entry and key by key, and swapped in. Killed at any moment, the
    same command goes on where it was. File sizes are those found in the store; give `--config broker.conf` if it had
    its own `messageDelayLevel`. Filter bits of an extension are not made again: readers then look at the messages.
    """
    settings = settings_of(directory, config_file, changes)
    with _progress(output) as progress:
        made = rebuild_store(
            directory, settings, queues=queues or not index, index=index or not queues, into=into, progress=progress
        )
    show_rebuilt(output, directory, made)


def settings_of(directory: Path, config_file: Path | None, changes: tuple[str, ...]) -> StoreSettings:
    """Settings as they are given; where nothing is said, as the store's files show them."""
    settings = settings_for(directory, config_file, changes)
    if config_file is not None:
        return settings
    spoken = {NAMES.attributes.get(pair.partition("=")[0]) for pair in changes}
    found = settings_as_found(RealFiles(), directory)
    return settings.replace(**{name: value for name, value in found.items() if name not in spoken})


def show_rebuilt(output: Output, directory: Path, made: Rebuilt) -> None:
    """What was made, and what is damaged; with damage the exit code is 1."""
    output.show(_facts(made))
    output.record("torn_tail", [_place(one) for one in made.torn_tail])
    for tail in made.torn_tail:
        output.say(
            f"torn tail: physical offset {tail.physical_offset:,}: {tail.reason}; what a crash left behind the last"
            " record, which the next start cuts off"
        )
    for damage in made.damages:
        output.say(f"damaged: physical offset {damage.physical_offset:,}, {show_bytes(damage.length)}: {damage.reason}")
    output.record("damages", [_place(one) for one in made.damages])
    output.record("kept", [str(path) for path in made.kept])
    for path in made.kept:
        output.say(f"kept: {path}: not made by a store, and a file that was made again has its name; move it away")
    if made.damages:
        output.say(f"the log is damaged; `embermq store salvage {directory} --into NEW` keeps what is whole")
        click.get_current_context().exit(1)


def _place(damage: Damage) -> dict[str, object]:
    return {"physical_offset": damage.physical_offset, "length_bytes": damage.length, "reason": damage.reason}


def _facts(made: Rebuilt) -> NamedValues:
    facts = [
        NamedValue("target", "made in", str(made.target)),
        NamedValue("families", "made again", [str(family) for family in made.families], " and ".join),
        NamedValue("log_bytes", "from a log of", made.log_end - made.log_min, show_bytes),
        NamedValue("records", "records walked", made.records, show_count),
        NamedValue("queues", "queues", made.queues, show_count),
        NamedValue("queue_entries", "queue entries", made.queue_entries, show_count),
        NamedValue("index_entries", "index entries", made.index_entries, show_count),
        NamedValue("resumed_at", "went on at offset", made.resumed_at, show_count),
        NamedValue("seconds", "took", made.seconds, show_seconds),
    ]
    return NamedValues("rebuilt", "rebuilt", [fact for fact in facts if fact.value is not None])


@contextmanager
def _progress(output: Output) -> Iterator[Callable[[str, int, int], None]]:
    """One line for both parts of the work."""
    with progress_line(output, "rebuilding") as line:
        # Building reads the log once, comparing once more.
        yield lambda what, done, total: line(done if what == "building" else total + done, 2 * total)
