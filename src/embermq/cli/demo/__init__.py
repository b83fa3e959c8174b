"""`embermq demo`: a broker with producers and consumers over sockets, killed in the middle; then Spark on its store.

command.py     the command: the acts in order, and the verdict
traffic.py     first act: the processes, the kill, the restart, rates and lag by the second
children.py    processes seen from outside: started, listened to, killed
producer.py    a process that sends orders; consumer.py one that consumes them in order
check.py       is everything there that was acknowledged, in order, and was it consumed?
questions.py   the history of one order, and other questions to the store
with_spark.py  second act, where pyspark is installed
orders.py      the made-up stream of orders; settings.py the store's settings
"""

from typing import TYPE_CHECKING

from embermq.lazy import lazy_names

if TYPE_CHECKING:
    from embermq.cli.demo.command import demo

__all__ = ["demo"]

# The processes of the demo import modules of this package, and not the command.
__getattr__, __dir__ = lazy_names(__name__, {"demo": "embermq.cli.demo.command"})
