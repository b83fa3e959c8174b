"""`embermq cluster`: clusters and name servers."""

import click

from embermq.cli.network.asking import asks, cluster_option, fail
from embermq.cli.network.tables import show_table, show_texts
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
        number("inTps", "in/s", _rate),
        number("outTps", "out/s", _rate),
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
@asks
def name_servers(output: Output, admin: Admin) -> None:
    """Show the settings of each name server.

    \b
    embermq cluster name-servers -n "10.0.0.1:9876;10.0.0.2:9876"
    """
    found = admin.brokers.name_server_config()
    output.record("nameServers", found)
    if not output.as_json:
        for address, settings in found.items():
            show_texts(output, address, settings, title=address)


def _rate(value: float) -> str:
    return f"{value:,.2f}"
