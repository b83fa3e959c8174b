"""`embermq cluster`: clusters and name servers."""

import click

from embermq.cli.given import parse_pairs
from embermq.cli.network.asking import asks, cluster_option, confirmed, fail, yes_option
from embermq.cli.network.tables import show_rate, show_table, show_texts
from embermq.cli.network.verbs import ClusterVerbs
from embermq.cli.output import Output, TableColumn, number, show_time
from embermq.client.admin import Admin


@click.group(cls=ClusterVerbs)
def cluster() -> None:
    """Clusters: their brokers and name servers.

    \b
    embermq cluster list -n 127.0.0.1:9876
    """


@cluster.command("list")
@cluster_option
@asks
def list_brokers(output: Output, admin: Admin, cluster: str) -> None:
    """List the brokers of every cluster with their rates; exit code 1 if one does not answer.

    \b
    embermq cluster list
    embermq cluster list --cluster DefaultCluster --output json
    """
    with output.working("asking brokers"):
        found = admin.brokers.listed(cluster)
    columns = [
        TableColumn("cluster", "cluster"),
        TableColumn("brokerName", "broker"),
        number("brokerId", "id", str),
        TableColumn("address", "address"),
        TableColumn("version", "version"),
        number("inTps", "in/s", show_rate),
        number("outTps", "out/s", show_rate),
        number("msgInToday", "in today"),
        number("msgOutToday", "out today"),
        number("diskUsedPercent", "disk used", lambda value: f"{value:.0f} %"),
        TableColumn("earliestMessageTimestamp", "oldest message", show_time),
    ]
    show_table(output, "brokers", columns, found, empty="no brokers")
    silent = [one for one in found if one.problem is not None]
    for one in silent:
        output.say(f"{one.broker_name}: {one.problem}")
    if silent:
        fail()


@cluster.command("name-servers")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Change a setting of each. Repeatable.")
@asks
def name_servers(output: Output, admin: Admin, changes: tuple[str, ...]) -> None:
    """Show the settings of each name server; with --set, change some first.

    \b
    embermq cluster name-servers -n "10.0.0.1:9876;10.0.0.2:9876"
    embermq cluster name-servers --set orderMessageEnable=true
    """
    if changes:
        admin.brokers.change_name_server_config(parse_pairs("--set", changes))
    found = admin.brokers.name_server_config()
    output.record("nameServers", found)
    if not output.as_json:
        for address, settings in found.items():
            show_texts(output, address, settings, title=address)


@cluster.group(cls=ClusterVerbs)
def kv() -> None:
    """Texts that name servers keep by namespace and key, such as the order config of topics (ORDER_TOPIC_CONFIG).

    \b
    embermq cluster kv get ORDER_TOPIC_CONFIG orders
    """


@kv.command()
@click.argument("namespace")
@click.argument("key", required=False)
@asks
def get(output: Output, admin: Admin, namespace: str, key: str | None) -> None:
    """Show one text, or all of a namespace; exit code 1 if there is none.

    \b
    embermq cluster kv get ORDER_TOPIC_CONFIG
    """
    if key is None:
        found = admin.kv_configs.of_namespace(namespace)
    else:
        value = admin.kv_configs.get(namespace, key)
        found = {} if value is None else {key: value}
    if not found:
        output.record("values", {})
        output.say("nothing")
        fail()
    show_texts(output, "values", found)


@kv.command("set")
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
@asks
def set_value(output: Output, admin: Admin, namespace: str, key: str, value: str) -> None:
    """Set a text on every name server.

    \b
    embermq cluster kv set ORDER_TOPIC_CONFIG orders 'broker-a:4;broker-b:4'
    """
    admin.kv_configs.put(namespace, key, value)
    show_texts(output, "values", {key: value})


@kv.command()
@click.argument("namespace")
@click.argument("key")
@yes_option
@asks
def delete(output: Output, admin: Admin, namespace: str, key: str, yes: bool) -> None:
    """Delete a text on every name server.

    \b
    embermq cluster kv delete ORDER_TOPIC_CONFIG orders --yes
    """
    confirmed(f"Delete {namespace} {key} on every name server?", yes)
    admin.kv_configs.delete(namespace, key)
    output.record("deleted", key)
    output.say(f"{namespace} {key}: deleted")
