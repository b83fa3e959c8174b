"""What cannot be stored or opened: one clear line each, and nothing changed on the disk."""

import hashlib
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embermq import BatchItem, FetchStatus, Message, MessageBatch, MessageStore
from embermq.errors import (
    BatchInvalid,
    BodyTooLarge,
    EmberError,
    MessageIdInvalid,
    MessageRejected,
    PropertiesTooLarge,
    PropertyInvalid,
    QueueIdInvalid,
    RecordTooLarge,
    StoreError,
    StorePathInvalid,
    TopicNameInvalid,
)
from embermq.model import flags
from embermq.settings import KernelUse
from embermq.testing.builder import StoreBuilder

LINE_CHARACTERS_MAX = 300
BODY_MAX = 2000


def tree(root: Path) -> dict[str, str]:
    """Everything below a directory, with a sum of each file."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        for path in sorted(root.rglob("*"))
    }


def assert_one_line(error: BaseException) -> None:
    text = str(error)
    assert text
    assert "\n" not in text
    assert len(text) <= LINE_CHARACTERS_MAX, text


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", segment_bytes=65536, message_bytes_max=BODY_MAX, kernels=KernelUse.NEVER)


REJECTED: list[tuple[str, Callable[[], Any], type[EmberError], str]] = [
    ("body too large", lambda: Message("T", b"x" * (BODY_MAX + 1)), BodyTooLarge, "2,001"),
    ("topic empty", lambda: Message("", b"x"), TopicNameInvalid, "1 to 127"),
    ("topic with a slash", lambda: Message("a/b", b"x"), TopicNameInvalid, "'/'"),
    ("topic that climbs", lambda: Message("../../etc", b"x"), TopicNameInvalid, "'.'"),
    ("topic dot dot", lambda: Message("..", b"x"), TopicNameInvalid, "'.'"),
    ("topic with NUL", lambda: Message("a\0b", b"x"), TopicNameInvalid, "\\x00"),
    ("topic with a space", lambda: Message("a b", b"x"), TopicNameInvalid, "' '"),
    ("topic with a newline at its end", lambda: Message("ab\n", b"x"), TopicNameInvalid, "\\n"),
    ("topic with an umlaut", lambda: Message("tür", b"x"), TopicNameInvalid, "'ü'"),
    ("topic of 128 characters", lambda: Message("t" * 128, b"x"), TopicNameInvalid, "128"),
    ("topic that is no text", lambda: Message(5, b"x"), TopicNameInvalid, "5"),  # type: ignore[arg-type]
    ("queue id negative", lambda: Message("T", b"x", queue_id=-1), QueueIdInvalid, "-1"),
    ("queue id too large", lambda: Message("T", b"x", queue_id=2**31), QueueIdInvalid, "2147483648"),
    ("queue id no number", lambda: Message("T", b"x", queue_id="0"), QueueIdInvalid, "'0'"),  # type: ignore[arg-type]
    ("queue id a truth", lambda: Message("T", b"x", queue_id=True), QueueIdInvalid, "True"),
    ("properties too long", lambda: Message("T", b"x", properties={"p": "v" * 32766}), PropertiesTooLarge, "32,768"),
    ("tags too long", lambda: Message("T", b"x", tags="v" * 32768), PropertiesTooLarge, "32,767"),
    ("key with a space", lambda: Message("T", b"x", keys=["a b"]), PropertyInvalid, "'a b'"),
    ("empty key", lambda: Message("T", b"x", keys=["a", ""]), PropertyInvalid, "''"),
    ("property with 0x01", lambda: Message("T", b"x", properties={"p": "a\x01b"}), PropertyInvalid, "p"),
    ("property with 0x02", lambda: Message("T", b"x", properties={"a\x02": "b"}), PropertyInvalid, "a"),
    ("tag given twice", lambda: Message("T", b"x", tags="a", properties={"TAGS": "b"}), PropertyInvalid, "TAGS"),
    ("delay no number", lambda: Message("T", b"x", properties={"DELAY": "soon"}), PropertyInvalid, "'soon'"),
    ("flag too large", lambda: Message("T", b"x", flag=2**31), MessageRejected, "flag"),
    ("reconsume times", lambda: Message("T", b"x", reconsume_times=-(2**31) - 1), MessageRejected, "reconsume"),
    ("prepared offset", lambda: Message("T", b"x", prepared_transaction_offset=2**63), MessageRejected, "prepared"),
]


@pytest.mark.parametrize(("what", "make", "error", "text"), REJECTED, ids=[row[0] for row in REJECTED])
def test_a_message_that_cannot_be_stored(
    builder: StoreBuilder, what: str, make: Callable[[], Message], error: type[EmberError], text: str
) -> None:
    with builder.open() as store:
        before = store.max_physical
        store.engine.services.housekeeping.stop()
        files = tree(builder.root)
        for send in (
            lambda: store.append(make()),
            lambda: store.append_many([Message("T", b"good"), make()]),
            lambda: store.append_async(make()),
        ):
            with pytest.raises(error) as refused:
                send()
            assert text in str(refused.value)
            assert_one_line(refused.value)
            assert isinstance(refused.value, MessageRejected)
        assert store.max_physical == before
        assert tree(builder.root) == files
        assert store.append(Message("T", b"good")).queue_offset == 0


def test_what_just_fits(builder: StoreBuilder) -> None:
    with builder.open() as store:
        for good in (
            Message("T", b"x" * BODY_MAX),
            Message("t" * 127, b"x"),
            Message("T", b"x", properties={"p": "v" * 32765}),
            Message("%RETRY%a|b-c_D9", b""),
            Message("T", b"x", queue_id=2**31 - 1),
        ):
            receipt = store.append(good)
            found = store.at(receipt.physical_offset)
            assert found is not None
            assert found.body == good.body
            assert found.topic == good.topic


def test_a_record_one_byte_too_large_for_a_whole_file(builder: StoreBuilder) -> None:
    """RocketMQ makes a fresh file one blank and answers PUT_OK."""
    roomy = builder.changed(message_bytes_max=1 << 20, segment_bytes=8192)
    with roomy.open() as store:
        fitting = 8192 - 8 - 92  # blank, fixed fields and a topic of one character
        with pytest.raises(RecordTooLarge) as refused:
            store.append(Message("T", b"x" * (fitting + 1)))
        assert_one_line(refused.value)
        assert store.max_physical == 0
        receipt = store.append(Message("T", b"x" * fitting))
        assert receipt.size == 8192 - 8
        stored = store.at(receipt.physical_offset)
        assert stored is not None
        assert store.append(Message("T", b"next")).physical_offset == 8192


BATCHES: list[tuple[str, Callable[[], MessageBatch]]] = [
    ("empty", lambda: MessageBatch(Message("T"), [])),
    ("delayed", lambda: MessageBatch(Message("T", delay_level=2), [BatchItem(b"x")])),
    ("prepared", lambda: MessageBatch(Message("T", sys_flag=flags.PREPARED), [BatchItem(b"x")])),
    ("too large", lambda: MessageBatch(Message("T"), [BatchItem(b"x" * 1900) for _ in range(40)])),
]


@pytest.mark.parametrize(("what", "make"), BATCHES, ids=[row[0] for row in BATCHES])
def test_a_batch_that_cannot_be_stored(builder: StoreBuilder, what: str, make: Callable[[], MessageBatch]) -> None:
    with builder.open() as store:
        with pytest.raises(BatchInvalid) as refused:
            store.append_batch(make())
        assert_one_line(refused.value)
        assert store.max_physical == 0


def test_one_bad_item_stops_a_batch_before_anything_is_stored(builder: StoreBuilder) -> None:
    with builder.open() as store:
        with pytest.raises(BodyTooLarge):
            store.append_batch(MessageBatch(Message("T"), [BatchItem(b"good"), BatchItem(b"x" * (BODY_MAX + 1))]))
        with pytest.raises(TopicNameInvalid):
            store.append_batch(MessageBatch(Message("../T"), [BatchItem(b"good")]))
        with pytest.raises(PropertiesTooLarge):
            store.append_batch(MessageBatch(Message("T"), [BatchItem(b"good", {"p": "v" * 32766})]))
        assert store.max_physical == 0


def test_the_v6_bits_are_computed_and_never_taken(builder: StoreBuilder) -> None:
    """Set by a caller with v4 hosts they made the record 24 bytes too long, and a restart lost what followed."""
    with builder.open() as store:
        first = store.append(Message("T", b"x", sys_flag=flags.HOST_V6_MASK))
        plain = store.append(Message("T", b"x"))
        assert first.size == plain.size
    with builder.open() as again:
        assert [one.sys_flag for one in again.fetch("T", 0, 0).messages] == [0, 0]


def test_questions_that_make_no_sense(builder: StoreBuilder) -> None:
    with builder.open() as store:
        receipt = store.append(Message("T", b"x", keys=["k"]))
        for ask in (
            lambda: store.fetch("T", 0, 0, -1),
            lambda: store.fetch("", 0, 0),
            lambda: store.find("", "k"),
            lambda: store.max_offset("", 0),
            lambda: store.at(-1),
        ):
            with pytest.raises(StoreError) as refused:
                ask()
            assert_one_line(refused.value)
        for text in ("", "xyz", "0" * 31, receipt.message_id + "0", "g" * 32):
            with pytest.raises(MessageIdInvalid) as bad:
                store.get(text)
            assert_one_line(bad.value)
        assert store.fetch("T", 0, -1).status == "OFFSET_TOO_SMALL"
        assert store.at(1) is None
        assert store.at(10**12) is None
        assert store.get(receipt.message_id[:-16] + "7" * 16) is None
        assert store.fetch("T", 0, -1).status is FetchStatus.OFFSET_TOO_SMALL
        assert store.fetch("T", 0, -1).next_offset == 0
        assert store.fetch("T", -1, 0).status is FetchStatus.NO_MESSAGE_IN_QUEUE
        assert store.fetch("Nowhere", 0, 0).status is FetchStatus.NO_MESSAGE_IN_QUEUE
        assert store.fetch("T", 0, 2).status is FetchStatus.OFFSET_OVERFLOW_BADLY
        assert store.find("T", "") == []
        assert store.find("T", "k", 10, 5) == []
        assert (store.min_offset("No", 0), store.max_offset("No", 0), store.offset_at("No", 0, 0)) == (0, 0, 0)
        assert list(store.scan(10**12)) == []


# -- places that cannot be a store -------------------------------------------------------------------------------


def refuse(builder: StoreBuilder, text: str, *, read_only: bool = False) -> None:
    """Opening is refused in one line that holds `text` and the path, and nothing around it changes."""
    before = tree(builder.root.parent)
    with pytest.raises(StorePathInvalid) as refused:
        builder.open(read_only=read_only)
    assert text in str(refused.value), refused.value
    assert str(builder.root) in str(refused.value)
    assert_one_line(refused.value)
    assert tree(builder.root.parent) == before


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_where_the_directory_should_be(builder: StoreBuilder, read_only: bool) -> None:
    builder.root.write_text("hello")
    refuse(builder, "is a file", read_only=read_only)


def test_a_file_on_the_way_to_the_directory(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("hello")
    below = StoreBuilder(tmp_path / "store" / "below")
    with pytest.raises(StorePathInvalid) as refused:
        below.open()
    assert_one_line(refused.value)
    assert (tmp_path / "store").read_text() == "hello"


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "config"])
def test_a_file_where_a_part_of_the_store_should_be(builder: StoreBuilder, name: str) -> None:
    builder.open().close()
    parts = builder.root / name
    if parts.exists():
        for path in sorted(parts.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        parts.rmdir()
    parts.write_text("hello")
    refuse(builder, "file where a directory should be")


def test_a_directory_of_somebody_else(builder: StoreBuilder) -> None:
    builder.root.mkdir()
    (builder.root / "thesis.tex").write_text("hello")
    refuse(builder, "thesis.tex")
    refuse(builder, "thesis.tex", read_only=True)


def test_nothing_to_read(builder: StoreBuilder) -> None:
    refuse(builder, "no such directory", read_only=True)
    builder.root.mkdir()
    refuse(builder, "empty", read_only=True)


def test_an_empty_directory_becomes_a_store(builder: StoreBuilder) -> None:
    builder.root.mkdir()
    with builder.open() as store:
        assert store.append(Message("T", b"x")).ok


NOBODY = 65534


@pytest.mark.skipif(sys.platform != "linux", reason="needs fork and setuid")
@pytest.mark.parametrize("mode", [0o000, 0o555])
def test_a_directory_without_permission(tmp_path: Path, mode: int) -> None:
    """As root everything is permitted, so a child gives its privileges up."""
    os.chmod(tmp_path, 0o755)
    for parent in tmp_path.parents:
        if parent != Path("/") and os.getuid() == 0 and not parent.stat().st_mode & stat.S_IXOTH:
            os.chmod(parent, parent.stat().st_mode | stat.S_IXOTH)
    closed = tmp_path / "closed"
    closed.mkdir()
    os.chmod(closed, mode)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        answer = "nothing was raised"
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            MessageStore.open(closed / "store")
        except StorePathInvalid as problem:
            answer = "refused: " + str(problem)
        except BaseException as problem:
            answer = repr(problem)
        os.write(write_end, answer.encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        answer = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    os.chmod(closed, 0o755)
    assert answer.startswith("refused: "), answer
    assert "\n" not in answer
    assert str(closed) in answer
    assert list(closed.iterdir()) == []
