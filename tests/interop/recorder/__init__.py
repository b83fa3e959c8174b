"""The recorder: the same raw requests to two brokers, and what each sent back, frame by frame.

    wire.py        Step and Player: frames written and read by hand over plain sockets
    binary.py      the binary form of a header
    answers.py     what a broker sent, with addresses, ports, ids and times of this run taken out
    sends.py       steps that store: sends, batches, replies, messages given back
    reads.py       steps that read: pulls, offsets, queries
    clients.py     steps of clients: heartbeats, members, locks, requests passed on to them
    admins.py      steps of administrators
    habits.py      steps in the manner of real clients, and with binary headers
    wanted.py      the differences there are on purpose, with a reason each

A step is named; its name says in a failure which request was answered differently. The order matters: later steps see
what earlier ones did. Physical offsets are compared as they are, so both logs hold records of the same sizes.
"""
