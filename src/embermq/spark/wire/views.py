"""Topics of a running cluster as tables. Driver side.

cluster_messages(spark, "127.0.0.1:9876", ["orders"])
cluster_topics("127.0.0.1:9876")

`access` are options of the format: account, TLS, namespace.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from embermq.spark.options.read_options import parse
from embermq.spark.reading.tables import table
from embermq.spark.wire.batch_reader import place_of
from embermq.spark.wire.cluster import Cluster


def cluster_topics(name_server: str, access: Mapping[str, str] | None = None) -> list[str]:
    """All topics, those of the system too; NameServersUnreachable."""
    place = place_of(parse({"nameServer": name_server, **(access or {})}, streaming=False))
    with Cluster(place, patient=False) as cluster:
        return sorted(cluster.run(cluster.topics()))


def cluster_messages(
    spark: SparkSession,
    name_server: str,
    topics: Sequence[str] | None = None,
    *,
    include_system: bool = False,
    access: Mapping[str, str] | None = None,
) -> DataFrame:
    """Every message of a cluster that consumers can pull, or of some topics, in the columns of the format."""
    more = access or {}
    return table(spark, nameServer=name_server, topic=topics or None, includeSystemTopics=include_system, **more)
