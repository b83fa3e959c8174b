"""`embermq store get`: one message, by its id or by its place in the log."""

import sys
from pathlib import Path

import click

from embermq.cli.output import Output, output_option
from embermq.cli.store.by_id import stored_with_id
from embermq.cli.store.options import directory_argument
from embermq.cli.store.shown import BODY_FORMS, show_message
from embermq.inspect import Survey, message_at
from embermq.model.message import StoredMessage

_BYTES = "bytes"


@click.command()
@directory_argument
@click.argument("id_word", metavar="[ID]", required=False)
@click.option("--id", "message_id", metavar="ID", help="Message id: 32 or 56 hexadecimal digits.")
@click.option("--at", "place", type=click.IntRange(min=0), metavar="OFFSET", help="Physical offset of the message.")
@click.option(
    "--body",
    type=click.Choice([_BYTES, *BODY_FORMS]),
    is_flag=False,
    flag_value=_BYTES,
    default="base64",
    show_default=True,
    help="Encoding of the body in JSON. With bytes, or no value: write only the body to standard output.",
)
@output_option
def get(
    output: Output, directory: Path, id_word: str | None, message_id: str | None, place: int | None, body: str
) -> None:
    """Show one message by its id or by its physical offset.

    \b
    embermq store get ~/store --id 7F00000100002A9F00000000000000E8
    embermq store get ~/store --at 232
    embermq store get ~/store --at 232 --body > picture.png
    """
    message_id = message_id or id_word
    if (message_id is None) == (place is None):
        raise click.UsageError("say which message: either --id ID or --at OFFSET")
    if body == _BYTES and output.as_json:
        raise click.UsageError("--body bytes writes the body as it is; with --output json it is base64 or text")
    survey = Survey.open(directory)
    message = (
        stored_with_id(survey, message_id, directory) if message_id is not None else _at(survey, place or 0, directory)
    )
    if body == _BYTES:
        sys.stdout.buffer.write(message.payload)
    else:
        show_message(output, message, body)


def _at(survey: Survey, place: int, directory: Path) -> StoredMessage:
    message = message_at(survey, place)
    if message is None:
        if survey.log_min <= place < survey.log_end:
            near = f"the next record begins at {survey.record_start(place)}"
        else:
            near = f"the log goes from {survey.log_min} to {survey.log_end}"
        raise click.ClickException(f"no message starts at physical offset {place} of {directory}; {near}")
    return message
