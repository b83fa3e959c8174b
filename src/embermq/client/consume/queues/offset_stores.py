"""Where a group's offsets are kept: at the brokers (clustering), or in a file of this machine (broadcasting).

    clustering      each queue's offset at its broker (14, 15): one for the whole group
    broadcasting    one file for each client: <directory>/<client id>/<group>/offsets.json, and .bak, the version
                    before it, in the format of RocketMQ's Java client; the client id must stay the same between runs

`save` is given what is to be kept; the loop's thread only. The file is written off the loop.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from embermq.client.calls import consumer_offset, update_consumer_offset
from embermq.client.instance import Instance
from embermq.client.message_queue import MessageQueue, parse_queue
from embermq.errors import BrokerUnreachable, ClientError, OffsetsUnreadable
from embermq.remoting import key_object, parse_json, write_json, write_object_keyed

log = logging.getLogger(__name__)

FILE_BYTES_MAX = 16 << 20
NAME = "offsets.json"


class OffsetStore(Protocol):
    """Where offsets survive the consumer."""

    async def load(self, queue: MessageQueue) -> int | None:
        """The offset of a queue; None if there is none. ClientError: it cannot be said now."""
        ...

    async def save(self, offsets: Mapping[MessageQueue, int], *, is_sure: bool) -> None:
        """Keep these. `is_sure`: wait until they are kept; ClientError for one that is not."""
        ...


class BrokerOffsets:
    """Offsets of a group at the brokers."""

    def __init__(self, instance: Instance, group: str) -> None:
        self._instance, self._group = instance, group

    async def load(self, queue: MessageQueue) -> int | None:
        to = self._instance.routes.broker(queue.broker)
        if to is None:
            raise BrokerUnreachable(
                queue.broker, "?", "QUERY_CONSUMER_OFFSET", "it is in no route", topic=queue.topic, is_sent=False
            )
        return await consumer_offset(
            self._instance.caller, to, self._group, queue, self._instance.settings.call_timeout
        )

    async def save(self, offsets: Mapping[MessageQueue, int], *, is_sure: bool) -> None:
        seconds = self._instance.settings.call_timeout if is_sure else None
        saving = [self._save(queue, offset, seconds) for queue, offset in offsets.items() if offset >= 0]
        outcomes = await asyncio.gather(*saving, return_exceptions=True)
        problems = [one for one in outcomes if isinstance(one, BaseException)]
        for problem in problems:
            if not isinstance(problem, ClientError):
                raise problem
            log.warning("event=commit_failed group=%s reason=%r", self._group, str(problem))
        if problems and is_sure:
            raise problems[0]

    async def _save(self, queue: MessageQueue, offset: int, seconds: float | None) -> None:
        to = self._instance.routes.broker(queue.broker)
        if to is None:
            raise BrokerUnreachable(
                queue.broker, "?", "UPDATE_CONSUMER_OFFSET", "it is in no route", topic=queue.topic, is_sent=False
            )
        await update_consumer_offset(self._instance.caller, to, self._group, queue, offset, seconds)


class FileOffsets:
    """Offsets of one client in a file."""

    def __init__(self, directory: Path | None, client_id: str, group: str) -> None:
        root = directory if directory is not None else Path.home() / ".rocketmq_offsets"
        self.path = root / client_id / group / NAME
        self._known: dict[MessageQueue, int] | None = None
        self._turn = asyncio.Lock()

    async def load(self, queue: MessageQueue) -> int | None:
        if self._known is None:
            self._known = await asyncio.to_thread(read_offsets, self.path)
        return self._known.get(queue)

    async def save(self, offsets: Mapping[MessageQueue, int], *, is_sure: bool) -> None:
        async with self._turn:
            if self._known is None:
                self._known = await asyncio.to_thread(read_offsets, self.path)
            changed = {**self._known, **offsets}
            if changed == self._known:
                return
            try:
                await asyncio.to_thread(write_offsets, self.path, changed)
            except OSError as problem:
                raise OffsetsUnreadable(self.path, f"cannot be written: {problem.strerror or problem}") from None
            self._known = changed


def read_offsets(path: Path) -> dict[MessageQueue, int]:
    """The offsets of a file, or of its backup where it is missing or damaged; none if there is neither.
    OffsetsUnreadable when there is something that cannot be read: to begin anew would skip or repeat messages."""
    problem = ""
    for one in (path, _backup(path)):
        try:
            content = one.read_bytes() if one.stat().st_size <= FILE_BYTES_MAX else b"?"
            if content.strip():
                return parse_offsets(content)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as reason:
            problem = problem or str(reason)
    if problem:
        raise OffsetsUnreadable(path, f"cannot be read: {problem}")
    return {}


def parse_offsets(content: bytes) -> dict[MessageQueue, int]:
    """The offsets of the Java client's document; ValueError when it is none."""
    document = parse_json(content, FILE_BYTES_MAX)
    table = document.get("offsetTable") if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise ValueError("there is no offsetTable in it")
    return {parse_queue(key_object(key)): int(offset) for key, offset in table.items()}


def encode_offsets(offsets: Mapping[MessageQueue, int]) -> bytes:
    """A document that the Java client reads."""
    table = write_object_keyed((queue.document(), offset) for queue, offset in sorted(offsets.items()))
    return write_json({"offsetTable": table})


def write_offsets(path: Path, offsets: Mapping[MessageQueue, int]) -> None:
    """Replace the file, its last version becomes the backup; after a crash at any step one of the two is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".tmp")
    with open(fresh, "wb") as file:
        file.write(encode_offsets(offsets))
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        os.replace(path, _backup(path))
    os.replace(fresh, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")
