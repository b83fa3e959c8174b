"""`embermq spark explain`: what a read would do, with the plan a query gets. Starts no JVM."""

from dataclasses import asdict

import click

from embermq.cli.output import (
    NamedValue,
    NamedValues,
    Output,
    Rows,
    TableColumn,
    number,
    output_option,
    show_bytes,
    show_count,
)
from embermq.cli.spark.common import cluster_options, log_options
from embermq.errors import OptionInvalid
from embermq.spark.planning import StoreExplained, explain_read
from embermq.spark.reading import option_texts
from embermq.spark.wire import ClusterExplained, explain_pulls

# People are shown so many slices of a store; programs get all of them.
SLICES_SHOWN_MAX = 20

_METHODS = {"log": "in order", "queue": "through the queues", "places": "by the key index"}


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@cluster_options
@click.option(
    "--option",
    "-o",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Read option, for example topic=orders. Repeatable.",
)
@log_options
@output_option
def explain(
    output: Output, paths: tuple[str, ...], name_server: str | None, access: dict[str, str], options: tuple[str, ...]
) -> None:
    """Show what spark.read.format("rocketmq").load(PATH) would do, and why.

    \b
    embermq spark explain ~/store -o topic=orders
    embermq spark explain '/data/broker-*' -o startingTimestamp=1700000000000 --output json
    embermq spark explain --name-server 127.0.0.1:9876 -o topic=orders

    A PATH is a store directory or a glob of them. Nothing is written and no Spark is started.
    """
    given = dict(_name_and_value(option) for option in options)
    if name_server is not None:
        if paths:
            raise OptionInvalid("name-server", "not together with stores; name one of the two", value=name_server)
        _show_cluster(output, explain_pulls(option_texts(given | access | {"nameServer": name_server}, None)))
        return
    if not paths:
        raise OptionInvalid("store", "name at least one store, or a name server")
    stores = explain_read(option_texts(given, paths))
    if output.as_json:
        output.record("stores", [asdict(store) for store in stores])
        return
    for store in stores:
        output.show(_facts(store), _slices(store))
        _say_what_is_left_out(output, len(store.slices))


def _show_cluster(output: Output, found: ClusterExplained) -> None:
    if output.as_json:
        output.record("cluster", asdict(found))
        return
    facts = [
        NamedValue("filter", "brokers filter by", found.filter),
        NamedValue("queues", "queues", found.queues, show_count),
        NamedValue("messages", "messages", found.messages, show_count),
        NamedValue("bytes", "about", found.bytes, show_bytes),
    ]
    columns = [
        number("task", "task"),
        TableColumn("broker", "broker"),
        number("queues", "queues"),
        number("messages", "messages"),
        number("bytes", "about", show_bytes),
    ]
    shown = found.slices[:SLICES_SHOWN_MAX]
    rows = [[task, one.broker_name, one.queues, one.messages, one.bytes] for task, one in enumerate(shown)]
    output.show(
        NamedValues("cluster", found.cluster, facts), Rows("slices", "", columns, rows, empty="nothing to read")
    )
    _say_what_is_left_out(output, len(found.slices))


def _say_what_is_left_out(output: Output, slices: int) -> None:
    if slices > SLICES_SHOWN_MAX:
        output.say(f"and {slices - SLICES_SHOWN_MAX:,} more like these")


def _name_and_value(option: str) -> tuple[str, str]:
    name, equals, value = option.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{option!r} has no =; NAME=VALUE is expected", param_hint="--option")
    return name, value


def _facts(store: StoreExplained) -> NamedValues:
    return NamedValues(
        "store",
        store.broker_name,
        [
            NamedValue("path", "store", store.path),
            NamedValue("log", "log", f"from {store.log_start:,} to {store.log_end:,}"),
            NamedValue("method", "is read", _METHODS[store.method]),
            NamedValue("reason", "because", store.reason),
            NamedValue("bytes", "about", store.bytes, show_bytes),
        ],
    )


def _slices(store: StoreExplained) -> Rows:
    columns = [
        number("task", "task"),
        number("log_start", "log from"),
        number("log_end", "to"),
        number("bytes", "about", show_bytes),
    ]
    fields = ["log_start", "log_end", "bytes"]
    for field in ("queues", "records"):
        if any(getattr(slice_, field) is not None for slice_ in store.slices):
            columns.append(number(field, field))
            fields.append(field)
    shown = store.slices[:SLICES_SHOWN_MAX]
    rows = [[task, *(getattr(slice_, field) for field in fields)] for task, slice_ in enumerate(shown)]
    return Rows("slices", "", columns, rows, empty="nothing to read")
