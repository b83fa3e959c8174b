"""Memory: an idle store, and the peak while a store is recovered and rebuilt.

Each in a fresh process. Idle counts everything that is resident, the interpreter and mapped files included. The
peaks count anonymous memory only (RssAnon): pages of mapped files are page cache, which the system takes back.
"""

from pathlib import Path

from bench import fresh
from bench.answers import derived_answer, joined, log_answer
from bench.course import GIB, MIB, Course
from bench.figures import Figure, at_most
from bench.workload import Form, copy_store, fill, messages_in

NAME = "memory"
ABOUT = "an idle store, and the peak of recovery and rebuild"
BODY_BYTES = 1024
PEAK_TARGET_MB = 300
IDLE_TARGET_MB = 100


def run(course: Course) -> list[Figure]:
    log_bytes = course.pick(4 * MIB, 4 * GIB)
    rounds = min(course.rounds, 3)  # Memory does not depend on what else the machine does.
    rss, anonymous = [], []
    peaks: dict[str, list[float]] = {"recovery": [], "rebuild": []}
    answers = set()
    with course.scratch() as scratch:
        for number in range(rounds):
            measured = fresh.watch("idle", scratch / f"idle-{number}", course.size).figures
            rss.append(float(measured["rss_mb"]))
            anonymous.append(float(measured["anonymous_mb"]))
        course.note(f"memory: filling a store of {log_bytes / MIB:,.0f} MiB")
        source = scratch / "source"
        messages = messages_in(log_bytes, BODY_BYTES, Form.TAGS_AND_KEYS)
        fill(source, course.settings(), body_bytes=BODY_BYTES, messages=messages, form=Form.TAGS_AND_KEYS)
        for number in range(rounds):
            for work, values in peaks.items():
                path = scratch / f"{work}-{number}"
                values.append(_peak_mb(course, source, path, work, messages))
                answers.add(joined(log_answer(path), derived_answer(path)))
    assert len(answers) == 1, f"different answers: {answers}"
    answer = answers.pop()
    case = f"{log_bytes / MIB:,.0f} MiB"
    return [
        Figure("idle store", "resident", "MB", rss, at_most(IDLE_TARGET_MB)),
        Figure("idle store", "anonymous", "MB", anonymous),
        *(
            Figure(f"{work} of {case}", "anonymous, peak", "MB", values, at_most(PEAK_TARGET_MB), answer)
            for work, values in peaks.items()
        ),
    ]


def _peak_mb(course: Course, source: Path, path: Path, work: str, messages: int) -> float:
    """Recovery finds queues and index, but no proof of them; rebuild finds the log alone."""
    copy_store(source, path, derived=work == "recovery")
    if work == "recovery":
        (path / "abort").touch()
        for proof in path.glob("embermq.*"):
            proof.unlink()
    watched = fresh.watch("open", path, course.size)
    assert watched.figures["records"] == messages, watched.figures
    return watched.anonymous_bytes_max / 1e6
