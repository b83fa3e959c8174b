"""Answers that cannot be given at once, and the codes in them.

acknowledgements.py   sends that wait for the disk or for a slave
later.py              requests whose answer waits for a disk, a name server or a client
store_codes.py        what a store answers, as response codes
"""

from embermq.broker.answers.acknowledgements import Acknowledgements
from embermq.broker.answers.later import Later
from embermq.broker.answers.store_codes import PUT_CODES, STORED, pull_code, refusal_status

__all__ = ["Acknowledgements", "Later", "PUT_CODES", "STORED", "pull_code", "refusal_status"]
