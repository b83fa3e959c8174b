"""A store RocketMQ closed cleanly, opened by us, gives every recorded answer.

Also with read_only=True, and then no byte and no time in the directory changes.
"""

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq import MessageStore, StoreSettings
from embermq.testing import ManualClock
from tests.support import golden, golden_answers

Opened = tuple[MessageStore, golden.Manifest]


def open_copy(store: Path, facts: golden.Manifest, *, read_only: bool = False) -> MessageStore:
    """The clock stands just behind the last message, so that nothing looks old enough to be deleted."""
    settings = StoreSettings.from_properties(facts.properties())
    clock = ManualClock(facts.last_store_time() + 1)
    return MessageStore.open(store, settings, read_only=read_only, clock=clock)


@pytest.fixture(scope="module", params=golden.CLEAN_STORES)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    facts = golden.manifest(request.param)
    copy = golden.restore(request.param, tmp_path_factory.mktemp(request.param))
    with open_copy(copy, facts) as store:
        yield store, facts


@pytest.mark.parametrize("family", golden_answers.FAMILIES)
def test_answers(opened: Opened, family: str) -> None:
    golden_answers.FAMILIES[family](*opened)


@pytest.mark.parametrize("name", golden.CLEAN_STORES)
def test_read_only_changes_nothing(name: str, tmp_path: Path) -> None:
    facts = golden.manifest(name)
    copy = golden.restore(name, tmp_path)
    before = golden.tree_state(copy)
    with open_copy(copy, facts, read_only=True) as store:
        for family in golden_answers.FAMILIES.values():
            family(store, facts)
    assert golden.tree_state(copy) == before


@pytest.mark.parametrize("name", golden.CLEAN_STORES)
def test_opening_and_closing_keeps_the_data(name: str, tmp_path: Path) -> None:
    """A visit without a write leaves log, queues and index as RocketMQ wrote them.

    The first time the index is made again, since nothing proves it: other names, the same contents.
    """
    facts = golden.manifest(name)
    copy = golden.restore(name, tmp_path)
    families = ("commitlog", "consumequeue", "consumequeue_ext")
    before = {family: golden.content(copy / family) for family in families}
    index_before = golden.content(copy / "index", names=False)
    with open_copy(copy, facts):
        pass
    assert {family: golden.content(copy / family) for family in families} == before
    if facts.answers.min_phy_offset == 0:  # Else RocketMQ's index still has keys of deleted messages.
        assert golden.content(copy / "index", names=False) == index_before
    assert not (copy / "abort").exists()


@pytest.mark.parametrize("name", ["compressed", "compressed-raw"])
def test_payload_is_the_plain_body(name: str, tmp_path: Path) -> None:
    facts = golden.manifest(name)
    copy = golden.restore(name, tmp_path)
    kinds = set()
    with open_copy(copy, facts, read_only=True) as store:
        for message in store.scan():
            plain = message.properties.get("plain")  # `<length>:<crc32>`, from the client
            if plain is not None:
                length, _, checksum = plain.partition(":")
            elif "plainLen" in message.properties:
                length, checksum = message.properties["plainLen"], message.properties["plainCrc32"]
            else:
                continue
            assert (len(message.payload), zlib.crc32(message.payload)) == (int(length), int(checksum))
            kinds.add(message.sys_flag & 0x701)
    assert {0x101, 0x201, 0x301} <= kinds
