"""`embermq topic`: topics of a running cluster."""

from collections.abc import Mapping

import click
import msgspec

from embermq.cli.network.asking import (
    asks,
    broker_option,
    cluster_option,
    confirmed,
    show_unreachable,
    yes_option,
)
from embermq.cli.network.tables import PERMISSIONS, document_of, perm_text, places_of, show_rate, show_table
from embermq.cli.network.verbs import ClusterVerbs
from embermq.cli.output import Output, Rows, TableColumn, number, show_time
from embermq.cli.store import BadInput
from embermq.cli.topic_words import TopicCommand, topic_parameter
from embermq.client.admin import Admin, TopicConfig
from embermq.errors import OptionInvalid, RouteMissing
from embermq.model.names import topic_objection

QUEUES_MAX = 65_535


@click.group(cls=ClusterVerbs)
def topic() -> None:
    """Topics of a running cluster.

    \b
    embermq topic list -n 127.0.0.1:9876
    embermq topic create orders --queues 8
    embermq topic status orders
    """


@topic.command("list")
@click.option("--all", "show_all", is_flag=True, help="System, retry and dead-letter topics too.")
@click.option("--details", is_flag=True, help="Clusters and consumer groups of each: asks every broker.")
@cluster_option
@asks
def list_topics(output: Output, admin: Admin, show_all: bool, details: bool, cluster: str) -> None:
    """List topics.

    \b
    embermq topic list
    embermq topic list --all --details --output json
    """
    found = [one for one in admin.topics.listed(cluster) if show_all or one.kind == "normal"]
    columns = [TableColumn("topic", "topic"), TableColumn("kind", "kind")]
    if not details:
        show_table(output, "topics", columns, found, empty="no topics")
        return
    rows = []
    with output.working("asking brokers"):
        for one in found:
            rows.append([one.topic, one.kind, admin.topics.clusters(one.topic), admin.topics.groups(one.topic)])
    columns += [TableColumn("clusters", "clusters", ", ".join), TableColumn("groups", "consumer groups", ", ".join)]
    output.show(Rows("topics", "", columns, rows, "no topics"))


@topic.command(cls=TopicCommand)
@topic_parameter("topic_name")
@asks
def route(output: Output, admin: Admin, topic_name: str) -> None:
    """Show which brokers have a topic.

    \b
    embermq topic route orders
    """
    found = admin.topics.route(topic_name)
    columns = [
        TableColumn("brokerName", "broker"),
        TableColumn("cluster", "cluster"),
        TableColumn("brokerAddrs", "addresses", _addresses),
        number("readQueueNums", "read queues"),
        number("writeQueueNums", "write queues"),
        TableColumn("perm", "perm", perm_text),
    ]
    rows = []
    for data in found.queues:
        broker = found.brokers.get(data.broker_name)
        addresses = {} if broker is None else {str(number): one for number, one in sorted(broker.broker_addrs.items())}
        cluster = None if broker is None else broker.cluster
        rows.append(
            [data.broker_name, cluster, addresses, data.read_queue_nums, data.write_queue_nums, data.perm],
        )
    output.record("topic", topic_name)
    output.show(Rows("brokers", "", columns, rows))
    if found.order_config:
        output.record("orderTopicConf", found.order_config)
        output.say(f"order config  {found.order_config}")


@topic.command(cls=TopicCommand)
@topic_parameter("topic_name")
@asks
def status(output: Output, admin: Admin, topic_name: str) -> None:
    """Show the queues of a topic: offsets, and when they were last written to. Brokers that do not answer are named,
    and the exit code is 1.

    \b
    embermq topic status orders
    """
    found, silent = admin.topics.reachable_status(topic_name)
    columns = [
        TableColumn("brokerName", "broker"),
        number("queueId", "queue", str),
        number("minOffset", "first offset"),
        number("maxOffset", "end offset"),
        TableColumn("lastUpdateTimestamp", "last message", show_time),
    ]
    show_table(output, "queues", columns, found)
    output.record("messages", sum(one.max_offset - one.min_offset for one in found))
    show_unreachable(output, silent)


@topic.command(cls=TopicCommand)
@topic_parameter("topic_name", required=False)
@cluster_option
@asks
def rates(output: Output, admin: Admin, topic_name: str | None, cluster: str) -> None:
    """Show how fast topics are written and read, and how far their groups are behind: of one topic, or of all.

    Rates are those of the last minute; brokers count them anew after a start.

    \b
    embermq topic rates
    embermq topic rates orders --output json
    """
    if topic_name is None:
        chosen = [one.topic for one in admin.topics.listed(cluster) if one.kind == "normal"]
    else:
        chosen = [topic_name]
    with output.working("asking brokers"):
        found = [rate for name in chosen for rate in admin.rates.of_topic(name)]
    columns = [
        TableColumn("topic", "topic"),
        TableColumn("group", "consumer group"),
        number("accumulation", "lag"),
        number("inTps", "in/s", show_rate),
        number("outTps", "out/s", show_rate),
        number("inMsg24Hour", "in, 24 h"),
        number("outMsg24Hour", "out, 24 h"),
    ]
    show_table(output, "topics", columns, found, empty="no topics")


@topic.command(cls=TopicCommand)
@topic_parameter("topic_name")
@asks
def clusters(output: Output, admin: Admin, topic_name: str) -> None:
    """Show the clusters that have a topic.

    \b
    embermq topic clusters orders
    """
    found = admin.topics.clusters(topic_name)
    output.show(Rows("clusters", "", [TableColumn("cluster", "cluster")], [[one] for one in found]))


@topic.command(cls=TopicCommand)
@topic_parameter("topic_name")
@asks
def groups(output: Output, admin: Admin, topic_name: str) -> None:
    """Show the consumer groups of a topic: those that read it, and those that have offsets in it.

    \b
    embermq topic groups orders
    """
    found = admin.topics.groups(topic_name)
    output.show(Rows("groups", "", [TableColumn("group", "consumer group")], [[one] for one in found], "no groups"))


@topic.command(cls=TopicCommand)
@topic_parameter("topic_name")
@asks
def config(output: Output, admin: Admin, topic_name: str) -> None:
    """Show the configuration of a topic on each broker that has it.

    \b
    embermq topic config orders
    """
    _show_configs(output, admin.topics.configs(topic_name))


@topic.command(cls=TopicCommand)
@topic_parameter("topic_name")
@click.option("--queues", type=click.IntRange(1, QUEUES_MAX), default=8, show_default=True, help="Queues per broker.")
@click.option("--read-queues", type=click.IntRange(1, QUEUES_MAX), help="Queues to read, if not as many as --queues.")
@click.option("--perm", type=click.Choice(list(PERMISSIONS)), default="rw", show_default=True, help="Permissions.")
@click.option("--order", is_flag=True, help="An order config for it in the name servers.")
@cluster_option
@broker_option
@asks
def create(
    output: Output,
    admin: Admin,
    topic_name: str,
    queues: int,
    read_queues: int | None,
    perm: str,
    order: bool,
    cluster: str,
    broker: str,
) -> None:
    """Create a topic on every broker, on those of a cluster, or on one.

    \b
    embermq topic create orders
    embermq topic create orders --queues 16 --cluster DefaultCluster
    embermq topic create audit --broker broker-a --perm r
    """
    _check_name(topic_name)
    places = places_of(admin, cluster, broker)
    known = _known(admin, topic_name)
    if taken := sorted(place.name for place in places if place.name in known):
        raise BadInput(f"topic {topic_name!r} exists on {', '.join(taken)}; change it with: embermq topic update")
    config = TopicConfig(topic_name, read_queues or queues, queues, PERMISSIONS[perm], order=order)
    admin.topics.put(config, places)
    _show_configs(output, {place.name or place.address: config for place in places})


@topic.command(cls=TopicCommand)
@topic_parameter("topic_name")
@click.option("--queues", type=click.IntRange(1, QUEUES_MAX), help="Queues per broker.")
@click.option("--read-queues", type=click.IntRange(1, QUEUES_MAX), help="Queues to read, if not as many as --queues.")
@click.option("--perm", type=click.Choice(list(PERMISSIONS)), help="Permissions.")
@cluster_option
@broker_option
@asks
def update(
    output: Output,
    admin: Admin,
    topic_name: str,
    queues: int | None,
    read_queues: int | None,
    perm: str | None,
    cluster: str,
    broker: str,
) -> None:
    """Change a topic where it exists; what is not given stays.

    \b
    embermq topic update orders --queues 16
    embermq topic update orders --perm r --broker broker-a
    """
    if queues is None and read_queues is None and perm is None:
        raise OptionInvalid("--queues", "nothing to change is given: --queues, --read-queues or --perm")
    places = {place.name: place for place in places_of(admin, cluster, broker)}
    changed: dict[str, TopicConfig] = {}
    for name, config in admin.topics.configs(topic_name).items():
        if name in places:
            changed[name] = msgspec.structs.replace(
                config,
                write_queue_nums=queues or config.write_queue_nums,
                read_queue_nums=read_queues or queues or config.read_queue_nums,
                perm=config.perm if perm is None else PERMISSIONS[perm],
            )
    if not changed:
        raise BadInput(f"topic {topic_name!r} does not exist on {', '.join(places)}; create it there first")
    for name, config in changed.items():
        admin.topics.put(config, [places[name]])
    _show_configs(output, changed)


@topic.command(cls=TopicCommand)
@topic_parameter("topic_name")
@cluster_option
@yes_option
@asks
def delete(output: Output, admin: Admin, topic_name: str, cluster: str, yes: bool) -> None:
    """Delete a topic on every broker that has it, or on those of a cluster.

    Its messages cannot be read any more, and are removed from the disk with the log files they lie in.

    \b
    embermq topic delete orders --yes
    """
    admin.topics.route(topic_name)
    confirmed(f"Delete topic {topic_name!r}?", yes)
    deleted = admin.topics.delete(topic_name, cluster)
    output.record("topic", topic_name)
    output.record("deletedOn", deleted)
    output.say(f"deleted on {', '.join(deleted)}")


def _show_configs(output: Output, configs: Mapping[str, TopicConfig]) -> None:
    columns = [
        TableColumn("brokerName", "broker"),
        TableColumn("topicName", "topic"),
        number("readQueueNums", "read queues"),
        number("writeQueueNums", "write queues"),
        TableColumn("perm", "perm", perm_text),
        TableColumn("order", "order", lambda value: "yes" if value else "no"),
    ]
    documents = [{"brokerName": name} | document_of(config) for name, config in configs.items()]
    if output.as_json:
        output.record("topics", documents)
    else:
        output.show(Rows("topics", "", columns, [[one[column.key] for column in columns] for one in documents]))


def _known(admin: Admin, topic_name: str) -> Mapping[str, TopicConfig]:
    try:
        return admin.topics.configs(topic_name)
    except RouteMissing:
        return {}


def _check_name(topic_name: str) -> None:
    if (objection := topic_objection(topic_name)) is not None:
        raise BadInput(f"topic {topic_name!r}: {objection}")


def _addresses(addresses: Mapping[str, str]) -> str:
    return ", ".join(f"{number}={address}" for number, address in addresses.items())
