"""Messages on their way out of the store, and how far a group is with them.

pulls.py             pulls (11, 361)
held_pulls.py        those that wait for the next message
offset_requests.py   offsets of groups and queues (14, 15, 29 to 32)
queries.py           messages by key and by place (12, 33)
"""
