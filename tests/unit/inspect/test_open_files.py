"""Descriptors that a survey holds: a bounded number, which goes with it."""

import gc
import os
from pathlib import Path

import pytest

from embermq import Message, MessageStore
from embermq.files import READ_OPEN_MAX
from embermq.inspect import Survey

DESCRIPTORS = Path("/proc/self/fd")


def held_below(root: Path) -> int:
    """How many files below `root` this process has open."""
    held = 0
    for name in os.listdir(DESCRIPTORS):
        try:
            held += Path(os.readlink(DESCRIPTORS / name)).is_relative_to(root)
        except FileNotFoundError:  # The listing's own.
            pass
    return held


@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="needs /proc")
@pytest.mark.parametrize("queues", [20, READ_OPEN_MAX + 20])
def test_queue_files_are_closed_with_the_survey_without_a_collection(queues: int, tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        store.append_many(Message(f"topic-{number}", b"x", keys=["k"]) for number in range(queues))
    del store
    gc.collect()
    gc.disable()
    try:
        survey = Survey.open(tmp_path)
        assert len(survey.queues()) == queues
        assert survey.find_key("topic-7", "k", 0, 1 << 62) is not None
        assert held_below(tmp_path) in range(queues if queues <= READ_OPEN_MAX else 0, READ_OPEN_MAX + 1)
        del survey
        assert held_below(tmp_path) == 0
    finally:
        gc.enable()
