"""How many files this process may have open. Every log file has a descriptor as long as it is in the log.

The usual limit of 1,024 is a soft one: a process may raise it itself, up to the hard one, as a JVM does when it starts.
Here it is raised only when a log comes near it. Any thread.
"""

import resource

_FOR_OTHERS = 512  # queues, index, sockets, and what else the process has open


def allow_log_files(count: int) -> bool:
    """Make room for so many log files, and as many again; False if the hard limit does not allow for them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or count + _FOR_OTHERS <= soft:
        return True
    wanted = 2 * count + _FOR_OTHERS
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if wanted > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            return False
    return count + _FOR_OTHERS <= wanted
