"""The name server: where brokers register, and clients ask which broker has a topic.

    registration.py    what a broker says of itself
    register_body.py   the body of a registration: JSON, bare JSON, compressed
    route_table.py     RouteTable: brokers, topics, clusters; state without a socket or a clock
    kv_config.py       KvConfig: texts by namespace and key, in one JSON file
    live_settings.py   LiveSettings: the settings of a running name server, and those that a request may change
    headers.py         headers of the requests
    bodies.py          bodies of the answers
    requests.py        every request as a row, and its handler
    counters.py        what is counted
    server.py          NameServer: all of it on an asyncio loop

Several name servers know nothing of one another: a broker registers with each. Other packages import from this face.
"""

from embermq.namesrv.counters import NamesrvCounters
from embermq.namesrv.live_settings import CHANGEABLE
from embermq.namesrv.server import NameServer

__all__ = ["CHANGEABLE", "NameServer", "NamesrvCounters"]
