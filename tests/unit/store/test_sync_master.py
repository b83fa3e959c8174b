"""brokerRole=SYNC_MASTER promises a replica for each acknowledged message. A store alone replicates nothing, so it is
not opened for appends under that role unless a broker replicates it or the settings waive the promise; reading and
maintenance go on."""

import io
from pathlib import Path

import pytest

from embermq import BrokerRole, Message, MessageStore, StoreSettings, errors
from embermq.repair.load.load import Source, load_messages
from embermq.repair.salvage.salvaging import salvage
from embermq.store import open_for_maintenance
from embermq.testing import LossyFiles
from tests.support import golden

SMALL = StoreSettings(
    segment_bytes=64 << 10,
    queue_file_bytes=20 * 50,
    index_slots_max=100,
    index_entries_max=400,
    disk_full_percent=100,
    disk_clean_percent=100,
)
SYNC_MASTER = SMALL.replace(role=BrokerRole.SYNC_MASTER)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with three messages, closed."""
    with MessageStore.open(tmp_path / "s", SMALL) as store:
        for n in range(3):
            store.append(Message("orders", b"%d" % n))
    return tmp_path / "s"


def test_it_is_not_opened_for_appends_and_nothing_is_touched(tmp_path: Path) -> None:
    with pytest.raises(errors.ReplicaMissing) as refused:
        MessageStore.open(tmp_path / "s", SYNC_MASTER)
    line = str(refused.value)
    assert "\n" not in line
    for part in ("brokerRole=SYNC_MASTER", "replica", "brokerRole=ASYNC_MASTER", "emberAllowUnreplicated=true"):
        assert part in line
    assert isinstance(refused.value, errors.StoreError)
    assert not (tmp_path / "s").exists()


def test_a_store_that_is_there_stays_as_it_is(root: Path) -> None:
    before = golden.tree_state(root)
    with pytest.raises(errors.ReplicaMissing):
        MessageStore.open(root, SYNC_MASTER)
    assert golden.tree_state(root) == before


def test_the_promise_can_be_waived(root: Path) -> None:
    waived = StoreSettings.from_properties(SYNC_MASTER.to_properties() | {"emberAllowUnreplicated": "true"})
    with MessageStore.open(root, waived) as store:
        assert store.append(Message("orders", b"3")).ok
        assert store.max_offset("orders", 0) == 4


def test_one_that_replicates_may_open_it_and_is_told_what_to_wait_for(root: Path) -> None:
    with MessageStore.open(root, SYNC_MASTER, replicated=True) as store:
        promised = [store.promises_replica]
        receipt, end = store.append_unconfirmed(Message("orders", b"3"))
        assert end == receipt.physical_offset + receipt.size == store.max_physical
        assert store.append_unconfirmed(Message("orders", b"4", wait_for_store=False))[1] == 0
        store.set_role(BrokerRole.ASYNC_MASTER)
        promised.append(store.promises_replica)
        assert store.append_unconfirmed(Message("orders", b"5"))[1] == 0
        store.set_role(BrokerRole.SYNC_MASTER)
        promised.append(store.promises_replica)
    assert promised == [True, False, True]


def test_growth_is_told_until_it_is_ended(root: Path) -> None:
    with MessageStore.open(root, SMALL) as store:
        grown: list[int] = []
        end = store.on_growth(lambda: grown.append(store.max_physical))
        store.append(Message("orders", b"3"))
        assert grown == [store.max_physical]
        end()
        store.append(Message("orders", b"4"))
        assert len(grown) == 1


def test_it_is_opened_to_be_read(root: Path) -> None:
    with MessageStore.open(root, SYNC_MASTER, read_only=True) as store:
        assert len(store.fetch("orders", 0, 0).messages) == 3


def test_every_kind_of_opening_that_appends_is_refused(root: Path) -> None:
    with pytest.raises(errors.ReplicaMissing):
        open_for_maintenance(root, SYNC_MASTER)
    with pytest.raises(errors.ReplicaMissing):
        load_messages(root, SYNC_MASTER, Source(io.BytesIO(b'{"topic": "t"}'), "some.jsonl"))


def test_a_salvage_needs_no_replica() -> None:
    files = LossyFiles()
    with MessageStore.open(Path("/s"), SMALL, files=files) as store:
        store.append(Message("orders", b"0"))
    salvage(Path("/s"), Path("/copy"), SYNC_MASTER, files=files)
    with MessageStore.open(Path("/copy"), SMALL, files=files) as store:
        assert store.max_offset("orders", 0) == 1
