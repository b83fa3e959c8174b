"""A tap's copy into a lake (`embermq tap --archive`): an archive run whenever the copy has grown, and one at the end.

Progress is the lake's own: killed anywhere, the next run goes on where the lake ends. Expired log files of the copy
stay until the lake has them. What fails is said and tried again; at the end it is a failure of the command. Loaded only
with `--archive`: what it imports needs pyspark. The loop's thread; Spark is asked on another one.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import embermq.spark
from embermq.spark.jobs import Archived, archive_guard
from embermq.spark.lake import Lake
from embermq.store.services import OldSegment, RetentionGuard

TURN_SECONDS = 30.0


class LakeFeed:
    """Keeps a lake up to date with a store that grows."""

    def __init__(self, directory: Path, lake: str, say: Callable[[Archived], None]) -> None:
        """EmberError if no lake can be there, or one that is no archive."""
        self._directory, self._lake, self._say = directory, lake, say
        self._session: Any = None
        self._guard: RetentionGuard | None = None  # None before the first run, which finds out the broker's name.
        self._done_end = -1  # The lake has the copy up to here; -1: not known.
        Lake.open(lake, include_system=True)

    def may_go(self, old: OldSegment) -> bool:
        """A guard for retention: log files of the copy stay until the lake has them."""
        return self._guard is not None and self._guard(old)

    async def follow(self, stored_end: Callable[[], int], stop: asyncio.Event) -> None:
        """Archive in turns until `stop`."""
        while not stop.is_set():
            try:
                await asyncio.wait_for(stop.wait(), TURN_SECONDS)
            except TimeoutError:
                if stored_end() > self._done_end:
                    try:
                        await self.archive()
                    except Exception as problem:  # Of Spark, a file system: the copy goes on without the lake.
                        click.echo(f"embermq: not archived, and tried again in a while: {problem}", err=True)

    async def archive(self) -> None:
        """Everything that the copy has now."""
        done = await asyncio.to_thread(self._archive)
        self._done_end = done.end
        if done.end > done.start:
            self._say(done)

    def _archive(self) -> Archived:
        if self._session is None:
            self._session = embermq.spark.session("embermq tap")
        (done,) = embermq.spark.archive(self._session, [str(self._directory)], self._lake)
        self._guard = self._guard or archive_guard(self._lake, done.broker_name)
        return done

    def close(self) -> None:
        if self._session is not None:
            self._session.stop()
