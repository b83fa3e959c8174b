"""Messages on their way into the store.

sends.py       one send after another (10, 310, 320): the checks in RocketMQ's order, the append, the answer
headers.py     the headers of sends, long and short
runs.py        many sends at once, of all connections, before the request table is asked
replies.py     replies of consumers to producers that wait for one (324, 325)
send_back.py   messages given back by consumers (36): retries and dead letters
"""

from embermq.broker.sending.replies import ReplyForwarding
from embermq.broker.sending.runs import SendRuns
from embermq.broker.sending.send_back import SendBacks
from embermq.broker.sending.sends import Sends

__all__ = ["ReplyForwarding", "SendBacks", "SendRuns", "Sends"]
