"""Topics of a running cluster as tables. Driver side.

cluster_messages(spark, "127.0.0.1:9876", ["orders"])
cluster_topics("127.0.0.1:9876")
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from embermq.spark.options.values import parse_addresses
from embermq.spark.reading.tables import table
from embermq.spark.wire.cluster import Cluster, ClusterPlace


def cluster_topics(name_server: str) -> list[str]:
    """All topics, those of the system too; NameServersUnreachable."""
    with Cluster(ClusterPlace(parse_addresses("nameServer", name_server)), patient=False) as cluster:
        return sorted(cluster.run(cluster.topics()))


def cluster_messages(
    spark: SparkSession, name_server: str, topics: Sequence[str] | None = None, *, include_system: bool = False
) -> DataFrame:
    """Every message of a cluster that consumers can pull, or of some topics, in the columns of the format."""
    return table(spark, nameServer=name_server, topic=topics or None, includeSystemTopics=include_system)
