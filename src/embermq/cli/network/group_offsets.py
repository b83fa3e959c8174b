"""`embermq group reset-offsets` and `clone-offsets`."""

import click

from embermq.cli.network.asking import asks, confirmed, yes_option
from embermq.cli.network.tables import queue_of, show_table
from embermq.cli.output import Output, Rows, TableColumn, number
from embermq.cli.store.times import option_ms
from embermq.cli.topic_words import TopicCommand, topic_parameter
from embermq.client import MessageQueue
from embermq.client.admin import EARLIEST, LATEST, Admin, Reset, ResetQueue
from embermq.errors import OptionInvalid

ENDS = {"earliest": EARLIEST, "latest": LATEST}

_COLUMNS = (
    TableColumn("topic", "topic"),
    TableColumn("brokerName", "broker"),
    number("queueId", "queue", str),
    number("before", "before"),
    number("after", "after"),
)


@click.command("reset-offsets", cls=TopicCommand)
@click.argument("group_name", metavar="GROUP")
@topic_parameter()
@click.option("--to", "target", metavar="TIME|earliest|latest", help="Go on with the first message at this time.")
@click.option("--offset", type=click.IntRange(min=0), help="With --queue: go on at this offset.")
@click.option("--queue", metavar="BROKER:ID", help="With --offset: the queue.")
@click.option("--only-back", is_flag=True, help="Leave a queue where it is if messages would be skipped.")
@click.option("--dry-run", is_flag=True, help="Only show what would be set.")
@yes_option
@asks
def reset_offsets(
    output: Output,
    admin: Admin,
    group_name: str,
    topic: str,
    target: str | None,
    offset: int | None,
    queue: str | None,
    only_back: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Have a group consume again, or skip, from a time on.

    Members that are online are notified to drop what they hold and go on there; the offsets of a group that is not
    online are set at the brokers.

    \b
    embermq group reset-offsets billing --topic orders --to 2024-01-31T12:00:00 --dry-run
    embermq group reset-offsets billing --topic orders --to latest --yes
    embermq group reset-offsets billing --topic orders --queue broker-a:0 --offset 17 --yes
    """
    if (target is None) == (offset is None) or (offset is None) != (queue is None):
        raise OptionInvalid("--to", "say where to go on: --to TIME, or --queue BROKER:ID with --offset N")
    if target is not None:
        timestamp_ms = ENDS[target] if target in ENDS else option_ms("--to", target)
        if not dry_run:
            confirmed(f"Have group {group_name!r} go on at {target} in topic {topic!r}?", yes)
        found = admin.offsets.reset(group_name, topic, timestamp_ms, only_back=only_back, dry_run=dry_run)
    else:
        assert queue is not None
        assert offset is not None
        found = _set(admin, group_name, queue_of(topic, queue), offset, dry_run, yes)
    show_table(output, "queues", _COLUMNS, found.queues)
    for key, value in (("group", group_name), ("online", found.is_online), ("dryRun", dry_run)):
        output.record(key, value)
    if found.is_online and not dry_run:
        output.say("members were notified; the group's progress changes when they commit")


def _set(admin: Admin, group_name: str, queue: MessageQueue, offset: int, dry_run: bool, yes: bool) -> Reset:
    if dry_run:
        planned = ResetQueue(queue.topic, queue.broker, queue.queue_id, None, offset)
        return Reset(group_name, queue.topic, False, [planned])
    confirmed(f"Have group {group_name!r} go on at offset {offset} of {queue}?", yes)
    return Reset(group_name, queue.topic, False, [admin.offsets.set(group_name, queue, offset)])


@click.command("clone-offsets", cls=TopicCommand)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@topic_parameter(required=False, default="", help="Only this topic.")
@asks
def clone_offsets(output: Output, admin: Admin, source: str, target: str, topic: str) -> None:
    """Give group TO the offsets of group FROM: it goes on where that one is.

    \b
    embermq group clone-offsets billing billing-blue
    embermq group clone-offsets billing billing-blue --topic orders
    """
    admin.groups.require(source)
    topics = admin.offsets.clone(source, target, topic)
    output.record("from", source)
    output.record("to", target)
    output.show(Rows("topics", "", [TableColumn("topic", "topic")], [[one] for one in topics], "no offsets to copy"))
