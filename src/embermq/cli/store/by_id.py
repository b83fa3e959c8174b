"""A message by its id, for `get` and `trace`; and what to say when there is none.

Two kinds of ids look alike, 32 hexadecimal digits: the one a broker gives (`offsetMsgId`: address and place in the log)
and the one a client gives (`msgId`, the property UNIQ_KEY), which is a key and found by the index.
"""

from pathlib import Path

import click

from embermq.cli.store import BadInput
from embermq.inspect import Survey, message_by_id
from embermq.model.message import StoredMessage


def stored_with_id(survey: Survey, message_id: str, directory: Path) -> StoredMessage:
    """The message. BadInput if the id names another broker, ClickException if nothing is there."""
    answer = message_by_id(survey, message_id)
    as_key = f"an id that a client gave is a key: `embermq store find {directory} --topic TOPIC --key {message_id}`"
    if answer.foreign_host is not None:
        own = ", ".join(map(str, answer.own_hosts))
        raise BadInput(
            f"{message_id} is an id of the store at {answer.foreign_host}; {directory} is that of {own}; {as_key}"
        )
    if answer.message is None:
        raise click.ClickException(f"there is no message {message_id} in {directory}; {as_key}")
    return answer.message
