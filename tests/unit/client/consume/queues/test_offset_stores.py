"""The offsets file of a broadcasting consumer: Java's format, its backup, and what cannot be read."""

import asyncio
from pathlib import Path

import pytest

from embermq.client.consume.queues.offset_stores import (
    FileOffsets,
    encode_offsets,
    parse_offsets,
    read_offsets,
    write_offsets,
)
from embermq.client.message_queue import MessageQueue
from embermq.errors import OffsetsUnreadable

Q0, Q1 = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
# As RocketMQ's Java client writes it.
JAVA = b"""{
\t"offsetTable":{{
\t\t\t"brokerName":"b",
\t\t\t"queueId":1,
\t\t\t"topic":"T"
\t\t}:7,{
\t\t\t"brokerName":"b",
\t\t\t"queueId":0,
\t\t\t"topic":"T"
\t\t}:5
\t}
}"""


def test_the_java_client_s_file_is_read() -> None:
    assert parse_offsets(JAVA) == {Q0: 5, Q1: 7}


def test_what_is_written_is_java_s_form() -> None:
    text = encode_offsets({Q1: 7, Q0: 5})
    assert text == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5,{"brokerName":"b","queueId":1,"topic":"T"}:7}}'
    )
    assert parse_offsets(text) == {Q0: 5, Q1: 7}


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"offsetTable":3}', b'{"offsetTable":{"x":1}}', b"{{{", b"\xff"])
def test_what_is_no_offsets_file_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        parse_offsets(content)


def test_the_version_before_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "c" / "g" / "offsets.json"
    assert read_offsets(path) == {}
    write_offsets(path, {Q0: 1})
    write_offsets(path, {Q0: 2})
    assert read_offsets(path) == {Q0: 2}
    assert parse_offsets(path.with_name("offsets.json.bak").read_bytes()) == {Q0: 1}
    assert sorted(one.name for one in path.parent.iterdir()) == ["offsets.json", "offsets.json.bak"]


@pytest.mark.parametrize("damage", [b"", b"{broken", None])
def test_a_damaged_or_missing_file_is_replaced_by_its_backup(tmp_path: Path, damage: bytes | None) -> None:
    path = tmp_path / "offsets.json"
    write_offsets(path, {Q0: 1})
    write_offsets(path, {Q0: 2})
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    assert read_offsets(path) == {Q0: 1}


def test_damage_without_a_backup_is_no_reason_to_begin_anew(tmp_path: Path) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(b"{broken")
    with pytest.raises(OffsetsUnreadable, match="move it away") as caught:
        read_offsets(path)
    assert caught.value.path == path


def test_saves_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = FileOffsets(tmp_path, "c", "g")
        queues = [MessageQueue("T", "b", number) for number in range(10)]
        await asyncio.gather(*(store.save({queue: queue.queue_id}, is_sure=True) for queue in queues))
        assert read_offsets(store.path) == {queue: queue.queue_id for queue in queues}
        assert await store.load(queues[3]) == 3
        assert await store.load(Q0._replace(topic="other")) is None

    asyncio.run(scenario())


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        (tmp_path / "c").write_text("in the way")
        store = FileOffsets(tmp_path, "c", "g")
        with pytest.raises(OffsetsUnreadable, match=r"offsets\.json cannot be"):
            await store.save({Q0: 1}, is_sure=True)

    asyncio.run(scenario())
