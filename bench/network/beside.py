"""Servers side by side: started for a round, measured in turn, stopped, and their logs compared.

All servers of a round run at the same time and rest while another is measured, so both sides of a ratio see the same
minute of the machine. The order changes with every round. What a round left in the logs is hashed after the servers
have ended: RocketMQ's log and ours must hold the same messages.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from bench.answers import DIGITS, walk
from bench.course import Course, not_measured
from bench.figures import Figure, Target
from bench.network.generator import Load
from bench.network.servers import Kind, Server, Settings, embermq
from embermq.columns.rows import C_BODY_LEN, C_PHYSICAL, C_QUEUE_ID, C_SIZE

ROUNDS_MAX = 3
OURS, REFERENCE = "EmberMQ", "RocketMQ"
_CRC = np.arange(8, 12)  # of a record: the sum of its body

Runs = dict[str, list[Load]]  # by the name of the server: a run for each round


def rounds_of(course: Course) -> int:
    return min(course.rounds, ROUNDS_MAX)


def present(course: Course, kinds: Sequence[Kind]) -> tuple[list[Kind], dict[str, str]]:
    """The peers that can run here, and why others cannot."""
    if not course.peers:
        return [], {}
    lacking = {kind.name: why for kind in kinds if (why := kind.missing()) is not None}
    return [kind for kind in kinds if kind.name not in lacking], lacking


@contextmanager
def running(
    course: Course, directory: Path, kinds: Sequence[Kind], settings: Settings | None = None
) -> Iterator[list[Server]]:
    """Ours and the peers, all started."""
    chosen = settings or {}
    with ExitStack() as stack:
        servers = [stack.enter_context(ours(course).start(directory / OURS, chosen))]
        servers += [stack.enter_context(kind.start(directory / kind.name, chosen)) for kind in kinds]
        yield servers


def ours(course: Course) -> Kind:
    return Kind(OURS, partial(embermq, small=course.size == "smoke"), lambda: None)


def in_turn(servers: Sequence[Server], number: int) -> list[Server]:
    """Another one first in every round."""
    at = number % len(servers)
    return [*servers[at:], *servers[:at]]


def log_messages(store: Path, *, places: bool = True) -> str:
    """A hash of what a log holds, in any order: sums of bodies, and with `places` queues and sizes as well."""
    from embermq.columns.compiled.scan import scan

    found = []
    for data, base, rows, _ in walk(store, scan):
        sums = data[(rows[:, C_PHYSICAL] - base)[:, None] + _CRC].copy().view(">u4")[:, 0].astype(np.int64)
        columns = [sums, rows[:, C_BODY_LEN]]
        if places:
            columns += [rows[:, C_QUEUE_ID], rows[:, C_SIZE]]
        found.append(np.stack(columns, axis=1))
    messages = np.concatenate(found)
    messages = messages[np.lexsort(messages.T)]
    return hashlib.sha256(np.ascontiguousarray(messages).data).hexdigest()[:DIGITS]


def same_answer(stores: Sequence[Path], *, places: bool = True) -> str:
    """The hash of every log, which must be one."""
    answers = {str(store): log_messages(store, places=places) for store in stores}
    assert len(set(answers.values())) == 1, f"the logs differ: {answers}"
    return next(iter(answers.values()))


def collect() -> dict[str, Runs]:
    """Case -> server -> runs."""
    return defaultdict(lambda: defaultdict(list))


def values(runs: Sequence[Load], field: str, scale: float = 1.0) -> list[float]:
    return [float(run[field]) * scale for run in runs]


def over(ours_values: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [own / their for own, their in zip(ours_values, theirs, strict=True)]


def ratio_figures(
    case: str,
    measure: str,
    runs: Runs,
    field: str,
    *,
    target: Target | None = None,
    inverse: bool = False,
    lacking: dict[str, str] | None = None,
) -> list[Figure]:
    """Ours over each peer's, or theirs over ours with `inverse`; the target is that of RocketMQ."""
    figures = []
    for name, theirs in runs.items():
        if name == OURS:
            continue
        pair = (values(runs[OURS], field), values(theirs, field))
        pair = pair[::-1] if inverse else pair
        words = f"{name} / {OURS}" if inverse else f"{OURS} / {name}"
        figures.append(Figure(case, f"{measure}, {words}", "x", over(*pair), target if name == REFERENCE else None))
    for name, why in (lacking or {}).items():
        figures.append(not_measured(case, f"{measure}, {OURS} / {name}", "x", why))
    return figures
