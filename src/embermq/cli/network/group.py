"""`embermq group`: consumer groups of a running cluster."""

from collections.abc import Mapping

import click
import msgspec

from embermq.cli.network.asking import (
    asks,
    broker_option,
    cluster_option,
    confirmed,
    fail,
    show_unreachable,
    yes_option,
)
from embermq.cli.network.group_offsets import clone_offsets, reset_offsets
from embermq.cli.network.tables import PROGRESS_COLUMNS, document_of, places_of, show_table
from embermq.cli.network.verbs import ClusterVerbs
from embermq.cli.output import Output, Rows, TableColumn, number, show_time, show_yes
from embermq.cli.store import BadInput
from embermq.cli.topic_words import TopicCommand, topic_parameter
from embermq.client.admin import Admin, GroupConfig
from embermq.errors import OptionInvalid
from embermq.model.names import PREDEFINED_GROUPS, SYSTEM_GROUP_PREFIX, is_group_name

TRIES_MAX = 2**31 - 1


@click.group(cls=ClusterVerbs)
def group() -> None:
    """Consumer groups of a running cluster.

    \b
    embermq group list -n 127.0.0.1:9876
    embermq group progress billing
    embermq group reset-offsets billing --topic orders --to 2024-01-31T12:00:00
    """


group.add_command(clone_offsets)
group.add_command(reset_offsets)


@group.command("list")
@click.option("--all", "show_all", is_flag=True, help="RocketMQ's own groups too.")
@cluster_option
@asks
def list_groups(output: Output, admin: Admin, show_all: bool, cluster: str) -> None:
    """List consumer groups: members, rate, and how many messages they are behind.

    \b
    embermq group list
    embermq group list --all --output json
    """
    with output.working("asking brokers"):
        names = [name for name in admin.groups.names(cluster) if show_all or not _is_system(name)]
        found = admin.groups.summaries(names)
    columns = [
        TableColumn("group", "consumer group"),
        number("members", "members"),
        TableColumn("consumeType", "type", _short),
        TableColumn("messageModel", "model", str.lower),
        number("consumeTps", "per second", lambda value: f"{value:,.2f}"),
        number("lag", "lag"),
    ]
    show_table(output, "groups", columns, found, empty="no groups")


@group.command(cls=TopicCommand)
@click.argument("group_name", metavar="GROUP")
@topic_parameter(required=False, default="", help="Only this topic.")
@asks
def progress(output: Output, admin: Admin, group_name: str, topic: str) -> None:
    """Show how far a group is in every queue. Brokers that do not answer are named, and the exit code is 1.

    \b
    embermq group progress billing
    embermq group progress billing --topic orders --output json
    """
    if topic:
        admin.topics.route(topic)
    found, silent = admin.groups.reachable_progress(group_name, topic)
    if not found.queues and not silent:
        admin.groups.require(group_name)
    show_table(output, "queues", PROGRESS_COLUMNS, found.queues, empty=f"group {group_name!r} has no offsets")
    output.record("group", group_name)
    output.record("consumeTps", found.consume_tps)
    output.record("lag", found.lag)
    output.say(f"\nlag {found.lag:,} messages, {found.consume_tps:,.2f} consumed per second")
    show_unreachable(output, silent)


@group.command()
@click.argument("group_name", metavar="GROUP")
@asks
def connections(output: Output, admin: Admin, group_name: str) -> None:
    """Show the members of a group and what they subscribe to; exit code 1 if it is not online.

    \b
    embermq group connections billing
    """
    found = admin.groups.connections(group_name)
    output.record("group", group_name)
    output.record("online", found is not None)
    if found is None:
        admin.groups.require(group_name)
        output.say(f"group {group_name!r} is not online")
        fail()
        return
    members = [
        TableColumn("clientId", "client"),
        TableColumn("clientAddr", "address"),
        TableColumn("language", "language"),
        TableColumn("version", "version"),
    ]
    show_table(output, "members", members, found.members)
    subscriptions = [
        TableColumn("topic", "topic"),
        TableColumn("expression", "expression"),
        TableColumn("expressionType", "kind"),
    ]
    show_table(output, "subscriptions", subscriptions, found.subscriptions, title="subscriptions")
    for key, value in (
        ("consumeType", found.consume_type),
        ("messageModel", found.message_model),
        ("consumeFromWhere", found.consume_from_where),
    ):
        output.record(key, value)
    output.say(f"\n{found.consume_type}  {found.message_model}  {found.consume_from_where}")


@group.command()
@click.argument("group_name", metavar="[GROUP]", required=False)
@cluster_option
@asks
def producers(output: Output, admin: Admin, group_name: str | None, cluster: str) -> None:
    """Show the producers that are connected, of all groups or of one.

    \b
    embermq group producers
    embermq group producers shop
    """
    found = [one for one in admin.groups.producers(cluster) if group_name in (None, one.group)]
    columns = [
        TableColumn("group", "producer group"),
        TableColumn("clientId", "client"),
        TableColumn("clientAddr", "address"),
        TableColumn("language", "language"),
        TableColumn("version", "version"),
        TableColumn("brokerName", "broker"),
        TableColumn("lastUpdateTimestamp", "last heartbeat", show_time),
    ]
    show_table(output, "producers", columns, found, empty="no producers")
    if group_name is not None and not found:
        fail()


@group.command()
@click.argument("group_name", metavar="GROUP")
@click.option("--client", default="", metavar="ID", help="Only this member.")
@click.option("--jstack", is_flag=True, help="Stacks of the threads too, where the member gives them.")
@asks
def status(output: Output, admin: Admin, group_name: str, client: str, jstack: bool) -> None:
    """Ask the members of a group what they hold: queues, offsets, speed. Exit code 1 if none is online.

    \b
    embermq group status billing
    embermq group status billing --client 10.0.0.7@4711 --jstack
    """
    online = admin.groups.connections(group_name)
    if online is None:
        admin.groups.require(group_name)
        raise click.ClickException(f"group {group_name!r} is not online")
    ids = [one.client_id for one in online.members]
    if client and client not in ids:
        raise BadInput(f"group {group_name!r} has no member {client!r}; its members: {', '.join(ids)}")
    found = [admin.groups.running_info(group_name, one, jstack=jstack) for one in ([client] if client else ids)]
    if output.as_json:
        output.record("members", [document_of(one) for one in found])
        return
    queues = [
        TableColumn("topic", "topic"),
        TableColumn("brokerName", "broker"),
        number("queueId", "queue", str),
        number("commitOffset", "offset"),
        number("cachedMsgCount", "held"),
        TableColumn("lastConsumeTimestamp", "last consumed", show_time),
        TableColumn("locked", "locked", show_yes),
    ]
    speeds = [
        TableColumn("topic", "topic"),
        number("pullTps", "pulled/s", _speed),
        number("consumeOkTps", "consumed/s", _speed),
        number("consumeFailedTps", "failed/s", _speed),
        number("consumeRt", "ms each", _speed),
    ]
    for one in found:
        show_table(output, "queues", queues, one.queues, title=one.client_id, empty="it has no queues")
        show_table(output, "topics", speeds, one.topics, title="speed", empty="nothing consumed")
        if one.jstack:
            output.say(one.jstack)


@group.command()
@click.argument("group_name", metavar="GROUP")
@asks
def config(output: Output, admin: Admin, group_name: str) -> None:
    """Show the configuration of a group on each broker.

    \b
    embermq group config billing
    """
    admin.groups.require(group_name)
    _show_configs(output, admin.groups.configs(group_name))


@group.command()
@click.argument("group_name", metavar="GROUP")
@click.option(
    "--retries", type=click.IntRange(-1, TRIES_MAX), default=16, show_default=True, help="Tries before death."
)
@click.option("--retry-queues", type=click.IntRange(0, 65_535), default=1, show_default=True, help="Retry queues.")
@click.option("--broadcast/--no-broadcast", default=True, help="Whether members may broadcast.")
@click.option("--disabled", is_flag=True, help="Members get no messages.")
@cluster_option
@broker_option
@asks
def create(
    output: Output,
    admin: Admin,
    group_name: str,
    retries: int,
    retry_queues: int,
    broadcast: bool,
    disabled: bool,
    cluster: str,
    broker: str,
) -> None:
    """Create a group on every broker, on those of a cluster, or on one.

    \b
    embermq group create billing
    embermq group create billing --retries 3 --cluster DefaultCluster
    """
    if not is_group_name(group_name):
        raise BadInput(f"group {group_name!r}: a name has 1 to 255 characters")
    places = places_of(admin, cluster, broker)
    known = admin.groups.configs(group_name)
    if taken := sorted(place.name for place in places if place.name in known):
        raise BadInput(f"group {group_name!r} exists on {', '.join(taken)}; change it with: embermq group update")
    config = GroupConfig(
        group_name,
        consume_enable=not disabled,
        consume_broadcast_enable=broadcast,
        retry_queue_nums=retry_queues,
        retry_max_times=retries,
    )
    admin.groups.put(config, places)
    _show_configs(output, {place.name or place.address: config for place in places})


@group.command()
@click.argument("group_name", metavar="GROUP")
@click.option("--retries", type=click.IntRange(-1, TRIES_MAX), help="Tries before death.")
@click.option("--retry-queues", type=click.IntRange(0, 65_535), help="Retry queues.")
@click.option("--broadcast/--no-broadcast", default=None, help="Whether members may broadcast.")
@click.option("--enable/--disable", "enabled", default=None, help="Whether members get messages.")
@cluster_option
@broker_option
@asks
def update(
    output: Output,
    admin: Admin,
    group_name: str,
    retries: int | None,
    retry_queues: int | None,
    broadcast: bool | None,
    enabled: bool | None,
    cluster: str,
    broker: str,
) -> None:
    """Change a group where it exists; what is not given stays.

    \b
    embermq group update billing --retries 3
    embermq group update billing --disable --broker broker-a
    """
    given = {
        "retry_max_times": retries,
        "retry_queue_nums": retry_queues,
        "consume_broadcast_enable": broadcast,
        "consume_enable": enabled,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise OptionInvalid("--retries", "nothing to change is given")
    places = {place.name: place for place in places_of(admin, cluster, broker)}
    admin.groups.require(group_name)
    known = admin.groups.configs(group_name)
    changed = {name: msgspec.structs.replace(known[name], **changes) for name in known if name in places}
    if not changed:
        raise BadInput(f"group {group_name!r} does not exist on {', '.join(places)}; create it there first")
    for name, config in changed.items():
        admin.groups.put(config, [places[name]])
    _show_configs(output, changed)


@group.command()
@click.argument("group_name", metavar="GROUP")
@click.option("--keep-offsets", is_flag=True, help="A group of this name that is made later goes on where it was.")
@cluster_option
@broker_option
@yes_option
@asks
def delete(
    output: Output, admin: Admin, group_name: str, keep_offsets: bool, cluster: str, broker: str, yes: bool
) -> None:
    """Delete a group with its offsets, its retry topic and its dead letters.

    \b
    embermq group delete billing --yes
    """
    known = admin.groups.require(group_name)
    places = [place for place in places_of(admin, cluster, broker) if place.name in known]
    confirmed(f"Delete group {group_name!r} with its retries and dead letters?", yes)
    admin.groups.delete(group_name, places, keep_offsets=keep_offsets)
    deleted = [place.name for place in places]
    output.record("group", group_name)
    output.record("deletedOn", deleted)
    output.say(f"deleted on {', '.join(deleted)}")


def _show_configs(output: Output, configs: Mapping[str, GroupConfig]) -> None:
    columns = [
        TableColumn("brokerName", "broker"),
        TableColumn("groupName", "consumer group"),
        TableColumn("consumeEnable", "enabled", show_yes),
        TableColumn("consumeBroadcastEnable", "broadcast", show_yes),
        number("retryMaxTimes", "retries"),
        number("retryQueueNums", "retry queues"),
    ]
    documents = [{"brokerName": name} | document_of(config) for name, config in configs.items()]
    if output.as_json:
        output.record("groups", documents)
    else:
        output.show(Rows("groups", "", columns, [[one[column.key] for column in columns] for one in documents]))


def _is_system(name: str) -> bool:
    return name in PREDEFINED_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)


def _short(consume_type: str) -> str:
    return {"CONSUME_PASSIVELY": "push", "CONSUME_ACTIVELY": "pull"}.get(consume_type, consume_type)


def _speed(value: float) -> str:
    return f"{value:,.2f}"
