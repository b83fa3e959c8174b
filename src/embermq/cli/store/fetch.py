"""`embermq store fetch`: messages of one queue, in order."""

from collections.abc import Iterator
from pathlib import Path

import click

from embermq.cli.output import NamedValue, NamedValues, Output, output_option, show_count
from embermq.cli.store.options import directory_argument
from embermq.cli.store.shown import body_option, show_messages
from embermq.cli.store.times import option_ms
from embermq.cli.topic_words import TopicCommand, topic_parameter
from embermq.errors import QueueUnknown
from embermq.format.java import string_hash
from embermq.format.queue_entry import BLANK_SIZE
from embermq.inspect import QueueSpan, Survey, message_at, require_topic
from embermq.model.message import StoredMessage
from embermq.model.properties import PARKING_TOPICS, tag_texts

ENTRIES_PER_READ = 1024
_HASHES = range(-(2**31), 2**31)


@click.command(cls=TopicCommand)
@directory_argument
@topic_parameter()
@click.argument("queue_id", metavar="QUEUE", type=click.IntRange(min=0))
@click.option("--offset", default="earliest", show_default=True, help="A queue offset, earliest, or a time.")
@click.option("--count", type=click.IntRange(min=1), default=32, show_default=True, help="Maximum number of messages.")
@click.option("--tags", default="*", show_default=True, help="Tags to select, for example `paid || shipped`.")
@body_option
@output_option
def fetch(
    output: Output, directory: Path, topic: str, queue_id: int, offset: str, count: int, tags: str, body: str
) -> None:
    """Show messages of one QUEUE of TOPIC, as a consumer receives them.

    \b
    embermq store fetch ~/store orders 0
    embermq store fetch ~/store orders 0 --offset 1200 --count 10 --tags 'paid || shipped'
    embermq store fetch ~/store orders 0 --offset 2024-01-31T12:00
    """
    survey = Survey.open(directory)
    span = _queue(survey, topic, queue_id)
    start = _queue_offset(survey, span, offset)
    messages: list[StoredMessage] = []
    next_offset = start
    for queue_offset, message in _messages(survey, span, start, tag_texts(tags)):
        next_offset = queue_offset + 1
        if message is not None:
            messages.append(message)
            if len(messages) == count:
                break
    show_messages(output, messages, "no message from there on", body)
    output.show(
        NamedValues(
            "queue",
            "",
            [
                NamedValue("min_offset", "first offset", span.min_offset, show_count),
                NamedValue("max_offset", "end offset", span.max_offset, show_count),
                NamedValue("next_offset", "next to read", next_offset, show_count),
            ],
        )
    )


def _queue(survey: Survey, topic: str, queue_id: int) -> QueueSpan:
    """Say what there is instead, so that a slip of the pen does not look like an empty queue."""
    require_topic(survey, topic)
    queues = survey.queues()
    if (topic, queue_id) not in queues:
        known = sorted(number for name, number in queues if name == topic)
        raise QueueUnknown(topic, queue_id, f"; queues: {', '.join(map(str, known[:10]))}")
    return queues[topic, queue_id]


def _queue_offset(survey: Survey, span: QueueSpan, text: str) -> int:
    if text == "earliest":
        return span.min_offset
    if text.isascii() and text.isdigit():
        return min(max(int(text), span.min_offset), span.max_offset)
    return survey.offset_at(span.topic, span.queue_id, option_ms("--offset", text))


def _messages(
    survey: Survey, span: QueueSpan, start: int, wanted: frozenset[str] | None
) -> Iterator[tuple[int, StoredMessage | None]]:
    """Queue offsets and their messages; None where there is none to be read, or none with a wanted tag."""
    hashes = None if wanted is None or span.topic in PARKING_TOPICS else {string_hash(tag) for tag in wanted}
    while start < span.max_offset:
        entries = survey.entries(span.topic, span.queue_id, start, min(start + ENTRIES_PER_READ, span.max_offset))
        if not len(entries):
            return
        for at, (physical_offset, size, code) in enumerate(entries.tolist(), start=start):
            # A tag code that is no hash is the address of more about the message: then the message tells.
            if size <= 0 or size == BLANK_SIZE or (hashes is not None and code in _HASHES and code not in hashes):
                yield at, None
                continue
            message = message_at(survey, physical_offset)
            is_own = message is not None and _place(message) == (span.topic, span.queue_id, at)
            has_tag = message is not None and (wanted is None or message.tags in wanted)
            yield at, message if is_own and has_tag else None
        start += len(entries)


def _place(message: StoredMessage) -> tuple[str, int, int]:
    return message.topic, message.queue_id, message.queue_offset
