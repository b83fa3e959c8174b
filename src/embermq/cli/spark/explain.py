"""`embermq spark explain`: what a read would do, with the plan a query gets. Starts no JVM."""

from dataclasses import asdict

import click

from embermq.cli.output import NamedValue, NamedValues, Output, Rows, number, output_option, show_bytes
from embermq.cli.spark.common import log_options
from embermq.cli.spark.refused import no_name_server
from embermq.spark.planning import StoreExplained, explain_read
from embermq.spark.reading import option_texts

# People are shown so many slices of a store; programs get all of them.
SLICES_SHOWN_MAX = 20

_METHODS = {"log": "in order", "queue": "through the queues", "places": "by the key index"}


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@no_name_server(
    "how files are read is what can be explained; a read with the option nameServer pulls the ranges of offsets that"
    " its options name, and `embermq topic status TOPIC -n ADDRESSES` shows what there is"
)
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
def explain(output: Output, paths: tuple[str, ...], options: tuple[str, ...]) -> None:
    """Show what spark.read.format("rocketmq").load(PATH) would do, and why.

    \b
    embermq spark explain ~/store -o topic=orders
    embermq spark explain '/data/broker-*' -o startingTimestamp=1700000000000 --output json

    A PATH is a store directory or a glob of them. Nothing is written and no Spark is started.
    """
    stores = explain_read(option_texts(dict(_name_and_value(option) for option in options), paths))
    if output.as_json:
        output.record("stores", [asdict(store) for store in stores])
        return
    for store in stores:
        output.show(_facts(store), _slices(store))
        if len(store.slices) > SLICES_SHOWN_MAX:
            output.say(f"and {len(store.slices) - SLICES_SHOWN_MAX} more like these")


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
