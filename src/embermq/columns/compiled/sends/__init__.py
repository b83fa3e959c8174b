"""Sends, and ends of transactions, as a broker gets them, many at once: from frames to rows of a run, and from their
places to answers.

frames.py       SendReader: the frames of a run, one after another
ends.py         EndReader: ends of transactions, and the half messages they decide
heads.py        whole frames, and whether they are familiar
header.py       their headers, JSON and binary
properties.py   the property string of a record, made from that of a send
replies.py      the answers
"""
