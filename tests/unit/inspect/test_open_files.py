"""Descriptors that a survey holds: they go with it."""

import gc
import os
from pathlib import Path

import pytest

from embermq import Message, MessageStore
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
def test_queue_files_are_closed_with_the_survey_without_a_collection(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        store.append_many(Message(f"topic-{number}", b"x", keys=["k"]) for number in range(20))
    del store
    gc.collect()
    gc.disable()
    try:
        survey = Survey.open(tmp_path)
        assert len(survey.queues()) == 20
        assert survey.find_key("topic-7", "k", 0, 1 << 62) is not None
        assert held_below(tmp_path) >= 20
        del survey
        assert held_below(tmp_path) == 0
    finally:
        gc.enable()
