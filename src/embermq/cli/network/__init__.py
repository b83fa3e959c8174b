"""What the command line asks of a running cluster, of EmberMQ or Apache RocketMQ: topic, group, message, cluster, and
the verbs of broker. One file a noun, or a part of one.

    asking.py              what all of them share: -n, the account; verbs.py one line for each mistake
    tables.py              answers as tables and JSON
    topic.py               topics
    group.py               consumer groups; group_offsets.py their offsets
    message.py             messages by key, id and place, and traced; sending.py send; following.py consume, tail, lag
    dead_letters.py        dead letters
    cluster.py             clusters
    broker_verbs.py        brokers

    0    done
    1    it could not be done, or not all of it, or nothing was found
    2    it could not be tried: the command line, an unknown name, name servers that do not answer

Nothing here imports numpy, numba or pyspark.
"""
