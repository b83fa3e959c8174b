"""Deleting, cleaning and delivering on request, a round of the scrub, put totals by topic, and the end of a store.

Whatever removes files asks first whether this process still has the store for itself. Any thread.
"""

import time
from collections.abc import Collection
from pathlib import Path

from embermq.errors import StoreError
from embermq.store.access import check_topic
from embermq.store.engine import Engine
from embermq.store.layout.destroying import destroy_files
from embermq.store.services.retention import Cleaned
from embermq.store.services.scrub import ScrubReport
from embermq.store.services.upkeep import TopicPuts, clean_expired_queues, clean_unused_topics


class Upkeep:
    """Upkeep of the store of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._access = engine, engine.access

    def _check_may_remove(self) -> None:
        self._access.check_writable()
        self._engine.check_fence()

    def deliver_due(self, timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        self._engine.catch_up()
        return all(one.look_now(deadline - time.monotonic()) for one in self._engine.services.delivering)

    def delete_expired(self, before_ms: int | None) -> Cleaned:
        self._check_may_remove()
        return self._engine.services.retention.delete_expired(before_ms)

    def delete_topic(self, topic: str) -> int:
        self._check_may_remove()
        check_topic(topic)
        deletion = self._engine.services.topic_deletion
        if deletion is None:
            raise StoreError("this store keeps no queues (dispatch=none): there is no topic to delete")
        return deletion.delete(topic)

    def clean_unused_topics(self, live: Collection[str]) -> list[str]:
        self._check_may_remove()
        self._engine.catch_up()
        queues, deletion = self._engine.queues, self._engine.services.topic_deletion
        return [] if queues is None or deletion is None else clean_unused_topics(queues, deletion, live)

    def clean_expired_queues(self) -> list[tuple[str, int]]:
        self._check_may_remove()
        engine = self._engine
        if engine.queues is None:
            return []
        make_durable = engine.services.housekeeping.make_durable
        return clean_expired_queues(engine.path, engine.parts.files, engine.log, engine.queues, make_durable)

    def scrub(self) -> ScrubReport:
        self._access.check_writable()
        self._engine.catch_up()
        return self._engine.services.scrub.run_round()

    def put_totals(self) -> dict[str, TopicPuts]:
        self._access.check_open()
        self._engine.catch_up()
        return {} if self._engine.put_totals is None else self._engine.put_totals.read()

    def destroy(self) -> list[Path]:
        self._access.check_writable()
        directories = list(self._engine.log.segments.directories)
        self._engine.close()
        return destroy_files(self._engine.parts.files, self._engine.path, directories)
