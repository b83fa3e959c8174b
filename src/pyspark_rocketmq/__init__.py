"""Where Spark finds the format `rocketmq`.

Spark imports every top-level module whose name begins with `pyspark_` when a format is first looked up, and takes
its `DefaultSource`. That happens in a process of its own and for every user of the environment, also for those
who asked for another format: nothing heavy may be imported from here.
"""

from embermq.spark.reading import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
