"""`embermq message consume`, `tail` and `lag`: messages as they lie in the queues, as they come, and how many wait."""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count

import click
import msgspec
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from embermq.cli.network.asking import asks
from embermq.cli.network.tables import document_of as document_of_struct
from embermq.cli.network.tables import queue_of, show_found, show_table
from embermq.cli.output import Output, Rows, TableColumn, number, show_body, show_clock
from embermq.cli.store.shown import body_option, document_of, named_document, readable_body
from embermq.cli.store.times import option_ms
from embermq.cli.topic_words import TopicCommand, topic_parameter
from embermq.client import MessageQueue
from embermq.client.admin import Admin, FoundMessage, Progress, WantedMessages
from embermq.client.calls import SQL92
from embermq.errors import NameUnknown, OptionInvalid

WAIT_SECONDS = 1.0

tags_option = click.option("--tags", default="*", show_default=True, help="Only these tags: 'a || b'.")
sql_option = click.option("--sql", help="Only messages for which this SQL92 condition holds.")
queue_option = click.option("--queue", metavar="BROKER:ID", help="Only this queue.")


@click.command(cls=TopicCommand)
@topic_parameter()
@click.option(
    "--from", "start", default="earliest", show_default=True, metavar="TIME|earliest|latest", help="Begin here."
)
@click.option("--offset", type=click.IntRange(min=0), help="With --queue: begin at this queue offset.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Most messages shown.")
@click.option("--group", default="", help="Go on at the offsets of this group, and commit what was shown.")
@queue_option
@tags_option
@sql_option
@body_option
@asks
def consume(
    output: Output,
    admin: Admin,
    topic: str,
    start: str,
    offset: int | None,
    limit: int,
    group: str,
    queue: str | None,
    tags: str,
    sql: str | None,
    body: str,
) -> None:
    """Show messages of a topic up to its end, queue by queue. No group's progress changes, unless one is named.

    \b
    embermq message consume orders --limit 10
    embermq message consume orders --from 2024-01-31T12:00:00 --tags 'paid || sent' --output json
    embermq message consume orders --queue broker-a:0 --offset 17 --limit 1
    embermq message consume orders --group billing --limit 10
    """
    if offset is not None and queue is None:
        raise OptionInvalid("--offset", "an offset is one of a queue: give --queue BROKER:ID too")
    if group and admin.groups.connections(group) is not None:
        raise OptionInvalid("--group", "it is online; its own members consume", value=group)
    found: list[FoundMessage] = []
    wanted = _wanted(tags, sql)
    for place, begin in _starts(admin, topic, queue, start, offset, group):
        at = begin
        with output.working(f"reading {place}"):
            for page in _pages(admin, place, begin, wanted, limit - len(found)):
                found += page
                at = page[-1].message.queue_offset + 1
        if group and at > begin:
            admin.offsets.set(group, place, at)
        if len(found) >= limit:
            break
    show_found(output, found, f"no messages in {topic}", body)


@click.command(cls=TopicCommand)
@topic_parameter()
@click.option(
    "--from", "start", default="latest", show_default=True, metavar="TIME|earliest|latest", help="Begin here."
)
@click.option("--limit", type=click.IntRange(min=1), help="Leave after so many.")
@queue_option
@tags_option
@sql_option
@body_option
@asks
def tail(
    output: Output,
    admin: Admin,
    topic: str,
    start: str,
    limit: int | None,
    queue: str | None,
    tags: str,
    sql: str | None,
    body: str,
) -> None:
    """Show messages of a topic as they come, a line each, until interrupted. JSON is an object a line.

    \b
    embermq message tail orders
    embermq message tail orders --from earliest --limit 10 --output json
    """
    positions = _starts(admin, topic, queue, start, None, "")
    shown = 0
    output.say(f"following {len(positions)} queues of {topic}")
    with admin.messages.tail(positions, _wanted(tags, sql)) as followed:
        while limit is None or shown < limit:
            came = followed.next(WAIT_SECONDS)
            for one in came if limit is None else came[: limit - shown]:
                output.line(named_document(one.broker, document_of(one.message, body)), _text_line(one))
                shown += 1


@click.command(cls=TopicCommand)
@click.argument("group_name", metavar="GROUP")
@topic_parameter(required=False, default="", help="Only this topic.")
@click.option("--watch", is_flag=True, help="Again and again, until interrupted. JSON is an object a line.")
@click.option("--every", "seconds", type=click.FloatRange(min=0.1), default=2.0, show_default=True, help="Seconds.")
@click.option("--times", type=click.IntRange(min=1), help="With --watch: leave after so many.")
@asks
def lag(
    output: Output, admin: Admin, group_name: str, topic: str, watch: bool, seconds: float, times: int | None
) -> None:
    """Show how many messages a group has not consumed yet, by topic.

    \b
    embermq message lag billing
    embermq message lag billing --watch --every 5
    """
    if topic:
        admin.topics.route(topic)
    before = admin.groups.progress(group_name, topic)
    if not before.queues:
        admin.groups.require(group_name)
    if not watch:
        show_table(output, "topics", _LAG_COLUMNS, topic_lags(before, None, 0.0), empty=f"{group_name} has no offsets")
        output.record("group", group_name)
        output.record("lag", before.lag)
        return
    _watch(output, admin, before, topic, seconds, times)


class TopicLag(msgspec.Struct, frozen=True, rename="camel"):
    """One group in one topic. Rates are per second, between two looks; None after the first one."""

    topic: str
    lag: int
    in_rate: float | None
    out_rate: float | None


_LAG_COLUMNS = (
    TableColumn("topic", "topic"),
    number("lag", "lag"),
    number("inRate", "in/s", lambda value: f"{value:,.1f}"),
    number("outRate", "out/s", lambda value: f"{value:,.1f}"),
)


def topic_lags(now: Progress, before: Progress | None, seconds: float) -> list[TopicLag]:
    """How many messages wait in each topic, and how fast that changes. Pure."""
    found = []
    past = _totals(before) if before is not None else {}
    for topic, (end, consumed) in sorted(_totals(now).items()):
        was = past.get(topic)
        rates = (None, None) if was is None else ((end - was[0]) / seconds, (consumed - was[1]) / seconds)
        found.append(TopicLag(topic, end - consumed, *rates))
    return found


def _totals(progress: Progress) -> dict[str, tuple[int, int]]:
    """Messages that were stored and that were consumed, by topic."""
    totals: dict[str, tuple[int, int]] = {}
    for queue in progress.queues:
        end, consumed = totals.get(queue.topic, (0, 0))
        totals[queue.topic] = (end + queue.broker_offset, consumed + queue.consumer_offset)
    return totals


def _watch(output: Output, admin: Admin, before: Progress, topic: str, seconds: float, times: int | None) -> None:
    at = time.monotonic()
    is_drawn = output.console.is_terminal and not output.as_json
    with Live(console=output.console, auto_refresh=False) if is_drawn else nullcontext() as live:
        for number_of_looks in count(1):
            time.sleep(seconds)
            now, now_at = admin.groups.progress(before.group, topic), time.monotonic()
            lags = topic_lags(now, before, now_at - at)
            if live is not None:
                live.update(lag_picture(output, now, lags), refresh=True)
            else:
                documents = [document_of_struct(one) for one in lags]
                document = {"timestamp": _now_ms(), "group": now.group, "lag": now.lag, "topics": documents}
                output.line(document, _lag_line(now, lags))
            before, at = now, now_at
            if times is not None and number_of_looks >= times:
                return


def lag_picture(output: Output, now: Progress, lags: list[TopicLag]) -> RenderableType:
    """The lags as a terminal shows them."""
    documents = [document_of_struct(one) for one in lags]
    rows = [[one[column.key] for column in _LAG_COLUMNS] for one in documents]
    title = Text(f"{now.group}   lag {now.lag:,}   {show_clock(_now_ms())[:8]}", style="bold")
    return Group(title, output.drawn(Rows("topics", "", _LAG_COLUMNS, rows)))


def _lag_line(now: Progress, lags: list[TopicLag]) -> str:
    parts = [f"{one.topic} {one.lag:,} (in {one.in_rate or 0:,.1f}/s, out {one.out_rate or 0:,.1f}/s)" for one in lags]
    return "  ".join([show_clock(_now_ms())[:8], f"lag {now.lag:,}", *parts])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# -- reading -------------------------------------------------------------------------------------------------------


def _wanted(tags: str, sql: str | None) -> WantedMessages:
    if sql is not None and tags != "*":
        raise OptionInvalid("--sql", "either --tags or --sql")
    return WantedMessages(tags) if sql is None else WantedMessages(sql, SQL92)


def _starts(
    admin: Admin, topic: str, queue: str | None, start: str, offset: int | None, group: str
) -> list[tuple[MessageQueue, int]]:
    """The queues that are meant, and where to begin in each; what is not there is said."""
    queues = admin.messages.queues(topic)
    if queue is not None:
        wanted = queue_of(topic, queue)
        if wanted not in queues:
            raise NameUnknown(
                "queue", queue, (), f"topic {topic!r} has {', '.join(_queue_text(one) for one in queues)}"
            )
        queues = [wanted]
    if offset is not None:
        return [(one, offset) for one in queues]
    if group:
        committed = {
            (one.broker_name, one.queue_id): one.consumer_offset for one in admin.groups.progress(group, topic).queues
        }
        return [(one, max(committed.get((one.broker, one.queue_id), 0), admin.messages.span(one)[0])) for one in queues]
    if start in ("earliest", "latest"):
        return [(one, admin.messages.span(one)[start == "latest"]) for one in queues]
    timestamp_ms = option_ms("--from", start)
    return [(one, admin.messages.offset_at(one, timestamp_ms)) for one in queues]


def _queue_text(queue: MessageQueue) -> str:
    return f"{queue.broker}:{queue.queue_id}"


def _pages(
    admin: Admin, queue: MessageQueue, begin: int, wanted: WantedMessages, limit: int
) -> Iterator[list[FoundMessage]]:
    """Messages of one queue up to its end of now, at most so many."""
    end, at = admin.messages.span(queue)[1], begin
    while limit > 0 and at < end:
        page = admin.messages.page(queue, at, wanted=wanted, count=min(32, limit))
        if page.messages:
            yield page.messages[:limit]
            limit -= len(page.messages)
        if page.is_end:
            return
        at = page.next_offset


def _text_line(found: FoundMessage) -> str:
    message = found.message
    labels = " ".join(filter(None, (message.tags, *message.keys)))
    place = f"{found.broker}:{message.queue_id}@{message.queue_offset}"
    return "  ".join(
        filter(None, (show_clock(message.store_timestamp), place, labels, show_body(readable_body(message))))
    )
