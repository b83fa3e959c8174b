"""Verify: is a store sound? Log, queues, extension, index, checkpoint, config and proofs against each other."""

from embermq.repair.verify.findings import Flaw, Severity
from embermq.repair.verify.store_check import VerifyReport, verify

__all__ = ["Flaw", "Severity", "VerifyReport", "verify"]
