"""Requests of administrators (mqadmin, dashboards) and of slaves: one family a file, each with its rows.

    topics.py        topics: made, changed, deleted, listed (17, 21, 215, 305, 351)
    groups.py        consumer groups: made, changed, deleted, listed (200, 201, 207, 352)
    configuration.py settings: read, and changed by an allow-list (25, 26); overrides.py keeps what was changed
    runtime.py       the broker in figures (28, 315)
    connections.py   which clients are there (203, 204, 328, 300, 343, 345)
    progress.py      how far topics and groups are (202, 208, 303, 317)
    offsets.py       offset tables, clones, corrections (43, 45, 308, 314)
    reset.py         offsets set back through the members of a group, and asked of them (222, 223)
    relay.py         questions passed on to one client (307, 309)
    entries.py       the entries of a queue (321)
    upkeep.py        cleaning (306, 316, 329)
    shapes.py        headers and answers that several of them share
    refused.py       what is not there yet, refused by name (37, 50, 51, 53, 323); the state of ACL (52)

What an administrator changes is on the disk before it is answered. A part that belongs to the loop's thread (clients,
statistics) is looked at on the loop; what reads or writes a disk is done on another thread, by a coroutine
(answers/later.py).
"""
