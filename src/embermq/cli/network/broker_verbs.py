"""`embermq broker status|config|clean|lag|writable`: what is asked of brokers that run.

Without a verb, `embermq broker` runs one (cli/broker.py).
"""

import difflib
from collections.abc import Callable

import click

from embermq.cli.given import parse_pairs
from embermq.cli.network.asking import asks, broker_option, cluster_option
from embermq.cli.network.tables import PROGRESS_COLUMNS, document_of, places_of, show_texts
from embermq.cli.network.verbs import ClusterVerbs
from embermq.cli.output import Output, Rows, TableColumn
from embermq.cli.store import BadInput
from embermq.client.admin import Admin
from embermq.client.calls import BrokerAddress

CLEANED = ("queues", "topics", "log")


@click.command()
@click.option("--match", default="", metavar="TEXT", help="Only names that contain this.")
@cluster_option
@broker_option
@asks
def status(output: Output, admin: Admin, match: str, cluster: str, broker: str) -> None:
    """Show the runtime info of brokers, of one or of all.

    \b
    embermq broker status
    embermq broker status --broker broker-a --match Tps
    """
    _each(output, admin, cluster, broker, lambda place: _matching(admin.brokers.status(place), match))


@click.group(cls=ClusterVerbs)
def config() -> None:
    """Settings of running brokers: read them, change them.

    \b
    embermq broker config get --match flush
    embermq broker config update traceOn=false --broker broker-a
    """


@config.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--match", default="", metavar="TEXT", help="Only names that contain this.")
@cluster_option
@broker_option
@asks
def get(output: Output, admin: Admin, names: tuple[str, ...], match: str, cluster: str, broker: str) -> None:
    """Show settings of brokers, of one or of all.

    \b
    embermq broker config get
    embermq broker config get flushDiskType brokerRole --broker broker-a
    """

    def chosen(settings: dict[str, str]) -> dict[str, str]:
        if unknown := sorted(set(names) - settings.keys()):
            raise BadInput(f"no such setting: {_nearest(unknown, settings)}")
        return {name: text for name, text in settings.items() if match.lower() in name.lower() and _is_one(name, names)}

    _each(output, admin, cluster, broker, lambda place: chosen(admin.brokers.config(place)))


@config.command()
@click.argument("changes", metavar="NAME=VALUE...", nargs=-1, required=True)
@cluster_option
@broker_option
@asks
def update(output: Output, admin: Admin, changes: tuple[str, ...], cluster: str, broker: str) -> None:
    """Change settings of running brokers, of one or of all.

    EmberMQ changes what is safe to change while it runs, and refuses the rest; Apache RocketMQ 4.9 changes what it
    is given and writes its broker.conf.

    \b
    embermq broker config update traceOn=false --broker broker-a
    """
    given = parse_pairs("NAME=VALUE", changes)
    for place in places_of(admin, cluster, broker):
        known = admin.brokers.config(place)
        if unknown := sorted(given.keys() - known.keys()):
            raise BadInput(f"no such setting: {_nearest(unknown, known)}")
    changed = []
    for place in places_of(admin, cluster, broker):
        admin.brokers.change_config(place, given)
        changed.append([place.name, place.address, ", ".join(f"{name}={text}" for name, text in given.items())])
    columns = [
        TableColumn("brokerName", "broker"),
        TableColumn("address", "address"),
        TableColumn("changed", "changed"),
    ]
    output.show(Rows("brokers", "", columns, changed))


@click.command()
@click.argument("broker_name", metavar="BROKER")
@click.option("--over", type=click.IntRange(0), default=0, show_default=True, help="Only queues with this lag or more.")
@click.option("--orderly", is_flag=True, help="Only topics with an order config.")
@asks
def lag(output: Output, admin: Admin, broker_name: str, over: int, orderly: bool) -> None:
    """Show how far every consumer group on a broker is behind, queue by queue.

    \b
    embermq broker lag broker-a --over 1000
    """
    with output.working("asking the broker"):
        groups = admin.groups.of_all(admin.brokers.place(broker_name), is_order=orderly)
    behind = [(one.group, queue) for one in groups for queue in one.queues if queue.lag >= over]
    columns = [TableColumn("group", "consumer group"), *PROGRESS_COLUMNS]
    documents = [{"group": group} | document_of(queue) for group, queue in behind]
    rows = [[document[column.key] for column in columns] for document in documents]
    output.record("lag", sum(one.lag for one in groups))
    output.show(Rows("queues", "", columns, rows, "no queues"))


@click.command()
@click.argument("what", type=click.Choice(CLEANED), nargs=-1, required=True)
@cluster_option
@broker_option
@asks
def clean(output: Output, admin: Admin, what: tuple[str, ...], cluster: str, broker: str) -> None:
    """Have brokers clean up now.

    queues: entries of messages that were deleted. topics: queues of topics that do not exist any more. log: files that
    are older than the time they are kept.

    \b
    embermq broker clean queues topics
    embermq broker clean log --broker broker-a
    """
    cleaned = []
    for place in places_of(admin, cluster, broker):
        for one in dict.fromkeys(what):
            with output.working(f"{place.name}: cleaning {one}"):
                admin.brokers.clean(place, one)
            cleaned.append([place.name, place.address, one])
    columns = [
        TableColumn("brokerName", "broker"),
        TableColumn("address", "address"),
        TableColumn("cleaned", "cleaned"),
    ]
    output.show(Rows("brokers", "", columns, cleaned))


@click.command()
@click.argument("broker_name", metavar="BROKER")
@click.argument("state", type=click.Choice(["on", "off"]))
@asks
def writable(output: Output, admin: Admin, broker_name: str, state: str) -> None:
    """Have producers send to a broker or not: `off` before it is stopped, `on` afterwards.

    The name servers change the permissions of its topics until the broker registers a change.

    \b
    embermq broker writable broker-a off
    """
    topics = admin.brokers.set_writable(broker_name, state == "on")
    for key, value in (("brokerName", broker_name), ("writable", state == "on"), ("topics", topics)):
        output.record(key, value)
    output.say(f"{broker_name}: {topics} topics are {'writable' if state == 'on' else 'read-only'} now")


def _each(
    output: Output, admin: Admin, cluster: str, broker: str, read: Callable[[BrokerAddress], dict[str, str]]
) -> None:
    """The same question to each broker; JSON has the answers by the brokers' names."""
    answers = {place.name or place.address: read(place) for place in places_of(admin, cluster, broker)}
    output.record("brokers", answers)
    if not output.as_json:
        for name, texts in answers.items():
            show_texts(output, name, texts, title=name)


def _matching(texts: dict[str, str], part: str) -> dict[str, str]:
    return {name: text for name, text in texts.items() if part.lower() in name.lower()}


def _is_one(name: str, names: tuple[str, ...]) -> bool:
    return not names or name in names


def _nearest(unknown: list[str], settings: dict[str, str]) -> str:
    parts = []
    for name in unknown:
        near = difflib.get_close_matches(name, settings, n=1)
        parts.append(f"{name} (did you mean {near[0]}?)" if near else name)
    return ", ".join(parts)
