"""`embermq message dead-letters`: what the consumers of a group gave up on, and the way back."""

import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import TypeVar

import click

from embermq.cli.network.asking import asks, confirmed, fail, yes_option
from embermq.cli.network.tables import show_table
from embermq.cli.network.verbs import ClusterVerbs
from embermq.cli.output import Output, TableColumn, number, show_bytes, show_time
from embermq.cli.store.shown import body_option, document_of, named_document
from embermq.cli.store.times import check_order, time_option
from embermq.client.admin import Admin, Chosen, Resent, letter_of
from embermq.errors import OptionInvalid
from embermq.model.names import retry_topic

FOREVER_MS = 2**63 - 1
F = TypeVar("F", bound=Callable[..., object])

_COLUMNS = (
    TableColumn("msgId", "message id"),
    TableColumn("topic", "came from"),
    TableColumn("keys", "keys"),
    TableColumn("tags", "tags"),
    number("attempts", "attempts"),
    TableColumn("deadTimestamp", "died", show_time),
    number("size", "size", show_bytes),
)


def choosing_options(command: F) -> F:
    """Which dead letters: all, by time, by key, or single ones."""
    options = [
        time_option("--begin", "begin_ms", "Only those that died at or after this time."),
        time_option("--end", "end_ms", "Only those that died before this time."),
        click.option("--key", help="Only those with this key, or this unique id."),
        click.option("--id", "msg_ids", multiple=True, metavar="ID", help="Only this one; may be given several times."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.group("dead-letters", cls=ClusterVerbs)
def dead_letters() -> None:
    """Dead letters: list them, send them again, write them to a file.

    \b
    embermq message dead-letters list billing
    embermq message dead-letters resend billing --key o-17
    """


@dead_letters.command("list")
@click.argument("group", metavar="GROUP")
@choosing_options
@click.option("--limit", type=click.IntRange(min=1), help="Most dead letters shown: the newest.")
@asks
def list_letters(
    output: Output,
    admin: Admin,
    group: str,
    begin_ms: int | None,
    end_ms: int | None,
    key: str | None,
    msg_ids: tuple[str, ...],
    limit: int | None,
) -> None:
    """List the dead letters of a group: where they came from, how often they were tried, when they died.

    \b
    embermq message dead-letters list billing
    embermq message dead-letters list billing --begin 2024-01-31 --key o-17 --output json
    """
    chosen = _chosen(begin_ms, end_ms, key, msg_ids)
    with output.working(f"reading dead letters of {group}"):
        letters = [letter_of(group, one) for one in admin.dead_letters.scan(group, chosen)]
    letters.sort(key=lambda one: (one.dead_timestamp, one.broker_name, one.queue_offset))
    shown = letters if limit is None else letters[-limit:]
    show_table(output, "deadLetters", _COLUMNS, shown, empty="no dead letters")
    output.record("found", len(letters))


@dead_letters.command()
@click.argument("group", metavar="GROUP")
@choosing_options
@click.option("--to-topic", metavar="TOPIC", help="Send them there, not to the topics they came from.")
@click.option("--to-group", is_flag=True, help="Only this group gets them again: through its retry topic.")
@click.option("--again", is_flag=True, help="Also those that were sent again before.")
@click.option("--dry-run", is_flag=True, help="Only show which would be sent, and where.")
@yes_option
@asks
def resend(
    output: Output,
    admin: Admin,
    group: str,
    begin_ms: int | None,
    end_ms: int | None,
    key: str | None,
    msg_ids: tuple[str, ...],
    to_topic: str | None,
    to_group: bool,
    again: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Send dead letters again, to the topics they came from, one by one; exit code 1 if one could not be sent.

    Every group of the topic gets them; with --to-group only this one. They stay among the dead letters, and one that
    was sent again is not sent twice.

    \b
    embermq message dead-letters resend billing --id 7F00000100002A9F00000000000000E8
    embermq message dead-letters resend billing --begin 2024-01-31 --to-group --yes
    """
    if to_topic is not None and to_group:
        raise OptionInvalid("--to-group", "either --to-topic or --to-group")
    target = retry_topic(group) if to_group else to_topic
    if target is not None:
        admin.topics.route(target)
    chosen = _chosen(begin_ms, end_ms, key, msg_ids)
    if not dry_run:
        which = "these" if key is not None or msg_ids or begin_ms is not None or end_ms is not None else "all"
        confirmed(f"Send {which} dead letters of {group!r} again?", yes)
    done: list[Resent] = []
    with output.working("sending"):
        for one in admin.dead_letters.scan(group, chosen):
            if dry_run:
                done.append(Resent(one.message.message_id, target or letter_of(group, one).topic, "planned"))
            else:
                done.append(admin.dead_letters.resend(group, one, to_topic=target, again=again))
    _show_outcomes(output, done)
    if any(one.outcome == "failed" for one in done):
        fail()


@dead_letters.command()
@click.argument("group", metavar="GROUP")
@choosing_options
@click.option("--to", "file", required=True, metavar="FILE.jsonl", type=click.Path(path_type=Path), help="A new file.")
@body_option
@asks
def export(
    output: Output,
    admin: Admin,
    group: str,
    begin_ms: int | None,
    end_ms: int | None,
    key: str | None,
    msg_ids: tuple[str, ...],
    file: Path,
    body: str,
) -> None:
    """Write dead letters to a file, all they have, one JSON object a line: the form of `embermq store dump`.

    \b
    embermq message dead-letters export billing --to dead.jsonl
    """
    found, exported = admin.dead_letters.scan(group, _chosen(begin_ms, end_ms, key, msg_ids)), 0
    first = next(found, None)  # What cannot be asked for leaves no file behind.
    try:
        with output.working(f"writing {file}"), file.open("x", encoding="utf-8") as written:
            for one in chain([] if first is None else [first], found):
                document = named_document(one.broker, document_of(one.message, body))
                written.write(json.dumps(document, ensure_ascii=False) + "\n")
                exported += 1
    except FileExistsError:
        raise OptionInvalid("--to", "there is a file of this name already", value=str(file)) from None
    except OSError as problem:
        raise OptionInvalid("--to", problem.strerror or str(problem), value=str(file)) from None
    output.record("file", str(file))
    output.record("exported", exported)
    output.say(f"{exported:,} dead letters in {file}")


def _chosen(begin_ms: int | None, end_ms: int | None, key: str | None, msg_ids: tuple[str, ...]) -> Chosen:
    check_order("--begin", begin_ms, "--end", end_ms)
    if key is not None and msg_ids:
        raise OptionInvalid("--key", "either --key or --id")
    return Chosen(begin_ms or 0, FOREVER_MS if end_ms is None else end_ms, key, msg_ids)


def _show_outcomes(output: Output, outcomes: list[Resent]) -> None:
    columns = [
        TableColumn("msgId", "message id"),
        TableColumn("topic", "to topic"),
        TableColumn("outcome", "outcome"),
        TableColumn("newMsgId", "new id"),
        TableColumn("reason", "why"),
    ]
    show_table(output, "deadLetters", columns, outcomes, empty="no dead letters")
    counts: dict[str, int] = {}
    for one in outcomes:
        counts[one.outcome] = counts.get(one.outcome, 0) + 1
    output.record("counts", counts)
    if outcomes:
        output.say("\n" + ", ".join(f"{number_of:,} {outcome}" for outcome, number_of in sorted(counts.items())))
