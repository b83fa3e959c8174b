"""`embermq message`: messages of a running cluster, found, shown and traced."""

import click

from embermq.cli.network.asking import asks, fail
from embermq.cli.network.dead_letters import dead_letters
from embermq.cli.network.following import consume, lag, tail
from embermq.cli.network.sending import send
from embermq.cli.network.tables import queue_of, show_found, show_table
from embermq.cli.network.verbs import ClusterVerbs
from embermq.cli.output import Output, TableColumn, number, show_bytes, show_time, show_yes
from embermq.cli.store.shown import body_option, show_message
from embermq.cli.store.times import check_order, time_option
from embermq.cli.topic_words import TopicCommand, topic_parameter
from embermq.client.admin import Admin
from embermq.errors import OptionInvalid
from embermq.model.names import TRACE_TOPIC

FOREVER_MS = 2**63 - 1


@click.group(cls=ClusterVerbs)
def message() -> None:
    """Messages of a running cluster.

    \b
    embermq message send orders 'hello' --tags created --key o-17 -n 127.0.0.1:9876
    embermq message find --topic orders --key o-17
    embermq message tail orders
    embermq message lag billing --watch
    """


for verb in (send, consume, tail, lag, dead_letters):
    message.add_command(verb)


@message.command(cls=TopicCommand)
@topic_parameter()
@click.option("--queue", required=True, metavar="BROKER:ID", help="The queue.")
@click.option("--offset", type=click.IntRange(0), default=0, show_default=True, help="Queue offset of the first.")
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many.")
@click.option("--group", default="", metavar="NAME", help="Whether this group, which is online, would get each.")
@asks
def entries(output: Output, admin: Admin, topic: str, queue: str, offset: int, limit: int, group: str) -> None:
    """Show entries of a consume queue: where their records are in the log; exit code 1 if there is none.

    \b
    embermq message entries orders --queue broker-a:0 --offset 100
    """
    found = admin.messages.entries(queue_of(topic, queue), offset, count=limit, group=group)
    columns = [
        number("queueOffset", "queue offset"),
        number("physicOffset", "physical offset"),
        number("physicSize", "size", show_bytes),
        number("tagsCode", "tag code", str),
        TableColumn("matches", "matches", show_yes),
    ]
    show_table(output, "entries", columns if group else columns[:-1], found, empty="no entries")
    if not found:
        fail()


@message.command(cls=TopicCommand)
@topic_parameter()
@click.option("--key", help="One of the message's keys.")
@click.option("--unique-id", metavar="ID", help="The id that the producer gave it.")
@time_option("--begin", "begin_ms", "Only messages stored at or after this time.")
@time_option("--end", "end_ms", "Only messages stored at or before this time.")
@click.option("--limit", type=click.IntRange(1, 64), default=64, show_default=True, help="Most of each broker.")
@body_option
@asks
def find(
    output: Output,
    admin: Admin,
    topic: str,
    key: str | None,
    unique_id: str | None,
    begin_ms: int | None,
    end_ms: int | None,
    limit: int,
    body: str,
) -> None:
    """Find messages by key or by unique id; exit code 1 if there is none.

    \b
    embermq message find --topic orders --key o-17
    embermq message find --topic orders --unique-id 7F0000010A2B18B4AAC26D4C5E2F0000
    """
    if (key is None) == (unique_id is None):
        raise OptionInvalid("--key", "say what to look for: either --key K or --unique-id ID")
    check_order("--begin", begin_ms, "--end", end_ms)
    begin, end = begin_ms or 0, FOREVER_MS if end_ms is None else end_ms
    if unique_id is not None:
        found = admin.messages.by_unique_id(topic, unique_id)
        found = [one for one in found if begin <= one.message.store_timestamp <= end]
    else:
        assert key is not None
        found = admin.messages.by_key(topic, key, begin_ms=begin, end_ms=end, limit=limit)
    show_found(output, found, f"no message of topic {topic!r} has it", body)
    if not found:
        fail()


@message.command()
@click.argument("message_id", metavar="[ID]", required=False)
@click.option("--topic", help="With --queue and --offset: the topic.")
@click.option("--queue", metavar="BROKER:ID", help="The queue.")
@click.option("--offset", type=click.IntRange(min=0), help="The queue offset.")
@body_option
@asks
def get(
    output: Output,
    admin: Admin,
    message_id: str | None,
    topic: str | None,
    queue: str | None,
    offset: int | None,
    body: str,
) -> None:
    """Show one message by the id that its broker gave it, or by its place; exit code 1 if there is none.

    \b
    embermq message get 7F00000100002A9F00000000000000E8
    embermq message get --topic orders --queue broker-a:0 --offset 17
    """
    if message_id is not None and (topic or queue or offset is not None):
        raise OptionInvalid("ID", "either an id, or --topic, --queue and --offset")
    if message_id is not None:
        found = admin.messages.by_id(message_id)
    elif topic and queue and offset is not None:
        page = admin.messages.page(queue_of(topic, queue), offset, count=1)
        found = next((one for one in page.messages if one.message.queue_offset == offset), None)
    else:
        raise OptionInvalid("ID", "say which message: an id, or --topic, --queue and --offset")
    if found is None:
        raise click.ClickException("there is no such message; it may have been deleted with an old log file")
    show_message(output, found.message, body, found.broker)


@message.command()
@click.argument("message_id", metavar="[ID]", required=False)
@click.option("--key", help="A key of the message, in place of its id.")
@click.option("--trace-topic", default=TRACE_TOPIC, show_default=True, help="Where traces are.")
@time_option("--begin", "begin_ms", "Only traces stored at or after this time.")
@time_option("--end", "end_ms", "Only traces stored at or before this time.")
@asks
def trace(
    output: Output,
    admin: Admin,
    message_id: str | None,
    key: str | None,
    trace_topic: str,
    begin_ms: int | None,
    end_ms: int | None,
) -> None:
    """Show who sent and who consumed a message, as clients with tracing on wrote it down.

    Exit code 1 if nothing is known.

    \b
    embermq message trace 7F0000010A2B18B4AAC26D4C5E2F0000
    embermq message trace --key o-17
    """
    if (message_id is None) == (key is None):
        raise OptionInvalid("ID", "say which message: either its id or --key K")
    times = {"begin_ms": begin_ms or 0, "end_ms": FOREVER_MS if end_ms is None else end_ms}
    if message_id is not None:
        steps = admin.traces.of_message(message_id, topic=trace_topic, **times)
    else:
        assert key is not None
        steps = admin.traces.of_key(key, topic=trace_topic, **times)
    columns = [
        TableColumn("what", "what"),
        TableColumn("timestamp", "at", show_time),
        TableColumn("group", "group"),
        TableColumn("topic", "topic"),
        TableColumn("clientHost", "client"),
        number("costMs", "took", lambda ms: f"{ms:,} ms"),
        TableColumn("status", "status"),
        number("retryTimes", "retry"),
        TableColumn("msgId", "message id"),
    ]
    show_table(output, "steps", columns, steps, empty="no trace of it")
    if not steps:
        fail()
