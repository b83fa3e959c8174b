"""What there is of this machine."""

import os


def cores() -> int:
    """In local mode there is something to do for each. On a cluster, minPartitions is for that."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
