"""What went in a store while a verb looked at it, reported when the verb is done."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from embermq.cli.output import Output
from embermq.files import RealFiles
from embermq.inspect import Watched


@contextmanager
def telling_changes(output: Output, directory: Path) -> Iterator[None]:
    """Watch a store directory, and tell what was removed or replaced there in between."""
    watched = Watched(RealFiles(), directory)
    yield
    watched.look()
    tell_changes(output, watched.changes)


def tell_changes(output: Output, changes: Sequence[str]) -> None:
    """For programs `meanwhile`, a list; for people a line each."""
    output.record("meanwhile", list(changes))
    for change in changes:
        output.say(f"while this ran: {change}")
