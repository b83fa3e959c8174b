"""Settings of a store, a broker and a name server, under the names of Apache RocketMQ's files and under ours.

store_settings.py   StoreSettings: every setting, one declaration each; where values come from
broker_settings.py  BrokerSettings: what a broker in front of the store has besides
broker_conf.py      both from one broker.conf, the environment and the command line
namesrv_settings.py NamesrvSettings: the same for a name server
values.py           one value: from text, checked, back to text
names.py            what to say about keys that are unknown, foreign or without effect
java_properties.py  the syntax of broker.conf
"""

from embermq.settings.broker_conf import BrokerConf, read_broker_conf
from embermq.settings.broker_settings import BrokerSettings
from embermq.settings.java_properties import PropertiesSyntaxError, parse_properties
from embermq.settings.namesrv_settings import NamesrvSettings
from embermq.settings.store_settings import StoreSettings
from embermq.settings.values import BrokerRole, FlushDisk, KernelUse

__all__ = [
    "BrokerConf",
    "BrokerRole",
    "BrokerSettings",
    "FlushDisk",
    "KernelUse",
    "NamesrvSettings",
    "PropertiesSyntaxError",
    "StoreSettings",
    "parse_properties",
    "read_broker_conf",
]
