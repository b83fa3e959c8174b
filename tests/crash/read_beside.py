"""Readers beside a writing process that is killed and started again: each reader must show unbroken rows, with all that
was acknowledged before it began to open."""

import random
from pathlib import Path
from typing import Any

from embermq import MessageStore, StoreSettings
from tests.crash.kills import Child
from tests.crash.read_beside_child import GOES, QUEUES, STAYS

LIVES_OF_A_CHILD = 1_000_000
KILLS_OF_A_STORE = 3  # Then comes a new one: readers look at all of it each time.


class Acknowledged:
    """What a child has said so far."""

    def __init__(self) -> None:
        self.ends = {(topic, queue_id): 0 for topic in (STAYS, GOES) for queue_id in range(QUEUES)}
        self.life = 0
        self._lines = 0

    def hear(self, child: Child) -> None:
        lines = child.lines
        for line in lines[self._lines :]:
            topic, queue_id, life, end = line.split()
            if int(end):
                self.ends[topic.decode(), int(queue_id)] = int(end)
            else:
                self.life = int(life)
                self.ends |= {(GOES, queue): 0 for queue in range(QUEUES)}
        self._lines = len(lines)

    def forget_child(self) -> None:
        self._lines = 0


class ReadBeside:
    """Opens readers beside children that write to stores below `directory`."""

    def __init__(self, directory: Path, settings: dict[str, Any], seed: int) -> None:
        self._directory, self._settings, self._source = directory, settings, random.Random(seed)
        self._root = directory
        self.acknowledged = Acknowledged()
        self.openings = 0
        self.messages = 0  # Looked at by readers, over all openings.

    def run(self, kills: int, openings: int) -> None:
        """So many children, each killed after so many openings of readers."""
        for number in range(kills):
            if number % KILLS_OF_A_STORE == 0:
                self._root, self.acknowledged = self._directory / f"store{number}", Acknowledged()
            child = Child.writing(self._root, number * LIVES_OF_A_CHILD, self._settings, "read_beside_child")
            try:
                while len(child.lines) < 40:
                    child.hear(60.0)
                for _ in range(openings):
                    child.hear(60.0)
                    self._read(child)
            finally:
                child.kill_quietly()
            self._read(child)  # What was killed.
            self._open_for_writing(child)
            self.acknowledged.forget_child()

    def _read(self, child: Child) -> None:
        self.openings += 1
        self.acknowledged.hear(child)
        ends, life = dict(self.acknowledged.ends), self.acknowledged.life
        with MessageStore.open(self._root, StoreSettings(**self._settings), read_only=True) as reader:
            for (topic, queue_id), end in ends.items():
                self._check_queue(reader, topic, queue_id, end, life)

    def _check_queue(self, reader: MessageStore, topic: str, queue_id: int, end: int, life: int) -> None:
        found = self._rows(reader, topic, queue_id)
        self.messages += len(found)
        offsets = [offset for offset, _, _ in found]
        low, high = reader.min_offset(topic, queue_id), reader.max_offset(topic, queue_id)
        where = (topic, queue_id, low, high, reader.recovery.reason)
        assert offsets == list(range(low, high)), (where, sorted(set(range(low, high)) - set(offsets)))
        assert [said for _, _, said in found] == offsets, where
        lives = {one for _, one, _ in found}
        assert len(lives) <= 1, (where, lives)
        if topic == STAYS or lives == {life}:
            assert high >= end, (where, end)
        else:
            assert not lives or lives > {life} or max(lives) >= life - 1, (where, lives, life)
        for offset in self._source.sample(offsets, min(3, len(offsets))):
            keys = {one.queue_offset for one in reader.find(topic, f"{queue_id}-{offset}")}
            assert offset in keys, (where, offset)

    @staticmethod
    def _rows(reader: MessageStore, topic: str, queue_id: int) -> list[tuple[int, int, int]]:
        """Offset, life and what the body says the offset is, of all messages of a queue."""
        at, found = reader.min_offset(topic, queue_id), []
        while at < reader.max_offset(topic, queue_id):
            outcome = reader.fetch(topic, queue_id, at, 512)
            for one in outcome.messages:
                life, said = one.body.split()[:2]
                found.append((one.queue_offset, int(life), int(said)))
            assert outcome.next_offset > at
            at = outcome.next_offset
        return found

    def _open_for_writing(self, child: Child) -> None:
        """All that was acknowledged is there, whatever readers saw."""
        self.acknowledged.hear(child)
        with MessageStore.open(self._root, StoreSettings(**self._settings)) as store:
            for queue_id in range(QUEUES):
                assert store.max_offset(STAYS, queue_id) >= self.acknowledged.ends[STAYS, queue_id]
