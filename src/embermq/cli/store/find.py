"""`embermq store find`: messages by key."""

import time
from pathlib import Path

import click

from embermq.cli.output import NamedValue, NamedValues, Output, output_option, show_seconds
from embermq.cli.store.options import directory_argument
from embermq.cli.store.shown import body_option, show_messages
from embermq.cli.store.times import check_order, time_option
from embermq.cli.topic_words import TopicCommand, topic_parameter
from embermq.inspect import Survey, find_messages, require_topic


@click.command(cls=TopicCommand)
@directory_argument
@topic_parameter(required=False)
@click.argument("key_word", metavar="[KEY]", required=False)
@click.option("--key", help="Key or unique key of the message.")
@time_option("--begin", "begin_ms", "Only messages stored at or after this time.")
@time_option("--end", "end_ms", "Only messages stored at or before this time.")
@click.option("--limit", type=click.IntRange(min=1), default=64, show_default=True, help="Maximum number of messages.")
@body_option
@output_option
def find(
    output: Output,
    directory: Path,
    topic: str | None,
    key_word: str | None,
    key: str | None,
    begin_ms: int | None,
    end_ms: int | None,
    limit: int,
    body: str,
) -> None:
    """Find messages of a topic by key. If there are more than the limit, the newest are shown.

    \b
    embermq store find ~/store --topic orders --key o-17
    embermq store find ~/store --topic orders --key o-17 --begin 2024-01-31 --end 2024-02-01
    embermq store find ~/store orders o-17                  the same in fewer letters

    The index answers where there is one that knows everything; otherwise the log is read.
    """
    key = key or key_word
    if not topic or not key:
        raise click.UsageError("say what to look for: --topic T --key K")
    check_order("--begin", begin_ms, "--end", end_ms)
    survey = Survey.open(directory)
    began = time.perf_counter()
    with output.working(f"looking for {key}"):
        found = find_messages(survey, topic, key, begin_ms or 0, end_ms, limit)
    seconds = time.perf_counter() - began
    if not found.messages:
        require_topic(survey, topic)
    show_messages(output, found.messages, f"no message of topic {topic!r} has the key {key!r}", body)
    output.show(
        NamedValues(
            "query",
            "",
            [
                NamedValue("seconds", "looked up in", seconds, show_seconds),
                NamedValue("by", "by", "index" if found.by_index else "reading the log"),
            ],
        )
    )
    if not found.messages:
        click.get_current_context().exit(1)
