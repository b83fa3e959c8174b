"""`embermq store drop`: a topic goes, with its queues."""

from pathlib import Path

import click

from embermq.cli.output import NamedValue, NamedValues, Output, output_option, show_count, show_yes
from embermq.cli.store import BadInput
from embermq.cli.store.options import directory_argument, settings_for, writing_options
from embermq.cli.topic_words import TopicCommand, topic_parameter
from embermq.errors import StoreLocked
from embermq.inspect import Survey, require_topic
from embermq.store import open_for_maintenance
from embermq.store.services import KEPT_TOPICS


@click.command(cls=TopicCommand)
@directory_argument
@topic_parameter()
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, without deleting it.")
@writing_options
@output_option
def drop(
    output: Output, directory: Path, topic: str, dry_run: bool, config_file: Path | None, changes: tuple[str, ...]
) -> None:
    """Delete TOPIC and its queues from a store that is not running. Queue offsets of the topic start at 0 again.

    \b
    embermq store drop ~/store orders --dry-run      how many queues and messages
    embermq store drop ~/store orders                delete it

    Its messages stay in the log until their files expire: dump, find and get still show them. The store must not be
    open elsewhere; a process that has it open calls `store.delete_topic(TOPIC)`. Consumer offsets and the topic's
    configuration belong to the broker and are not touched: reset them there.
    """
    if topic in KEPT_TOPICS:
        raise BadInput(f"topic {topic!r} belongs to the store itself and cannot be deleted")
    survey = Survey.open(directory)
    require_topic(survey, topic)
    queues = [span for (name, _), span in survey.queues().items() if name == topic]
    messages = sum(span.max_offset - span.min_offset for span in queues)
    if not dry_run:
        _drop(directory, topic, config_file, changes)
    facts = [
        NamedValue("path", "directory", str(directory)),
        NamedValue("topic", "topic", topic),
        NamedValue("dry_run", "only looked", dry_run, show_yes),
        NamedValue("queues", "queues", len(queues), show_count),
        NamedValue("messages", "messages in them", messages, show_count),
    ]
    output.show(NamedValues("dropped", "would be deleted" if dry_run else "deleted", facts))


def _drop(directory: Path, topic: str, config_file: Path | None, changes: tuple[str, ...]) -> None:
    settings = settings_for(directory, config_file, changes).replace(allow_unreplicated=True)  # Nothing is appended.
    try:
        store = open_for_maintenance(directory, settings)
    except StoreLocked as locked:
        who = f"process {locked.holder_pid}" if locked.holder_pid else "another process"
        raise BadInput(
            f"{directory} is open in {who}; stop it first, or have it call store.delete_topic({topic!r})"
        ) from locked
    with store:
        store.delete_topic(topic)
