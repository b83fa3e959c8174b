"""Verify: is a store sound? Log, queues, extension, index, checkpoint, config and proofs against each other.

    store_check.py      all of it, in order; findings.py: what is found
    queues.py           queues against the log; seen_queue.py: one queue as the log shows it
    extension.py, index.py, state_files.py   the other families
    single_records.py   records of the log, one at a time

Other packages import from this face.
"""

from embermq.repair.verify.findings import Flaw, Severity
from embermq.repair.verify.store_check import VerifyReport, verify

__all__ = ["Flaw", "Severity", "VerifyReport", "verify"]
