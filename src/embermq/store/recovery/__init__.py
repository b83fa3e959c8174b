"""From whatever lies on the disk to a store whose parts agree with each other.

    opening.py   the steps of an opening
    parts.py     what an opening gives: the log, the queues, the index, the lock
    plan.py      where to begin to walk, from the proofs; pure
    replay.py    the walk, and the table of what a stop means
    reading.py, derived_trust.py   an opening that writes nothing, and what it may believe

Other packages import from this face, not from the modules behind it.
"""

from embermq.store.recovery.derived_trust import DerivedTrust
from embermq.store.recovery.opening import decide_opening
from embermq.store.recovery.parts import DerivedFiles
from embermq.store.recovery.plan import IndexPlan
from embermq.store.recovery.replay import Plan, Recovery, RecoveryReport

__all__ = ["DerivedFiles", "DerivedTrust", "IndexPlan", "Plan", "Recovery", "RecoveryReport", "decide_opening"]
