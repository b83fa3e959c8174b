"""Stores RocketMQ left broken: we recover what it recovers, or more.

`DIFFERENCES` names every point where our result is meant to be another one; everything else is equal.
"""

from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.testing import ManualClock
from tests.support import golden, golden_answers

# name -> why. The tests below name the entry where they allow the difference.
DIFFERENCES = {
    "due times survive recovery": (
        "RocketMQ reads the delay levels only after an abnormal recovery: messages parked there"
        " get a tag hash in place of their due time and are delivered at once; ours keep their due time"
    ),
    "no index entry past the log": ("after lost pages RocketMQ keeps the keys of messages that are gone; ours are cut"),
    "no key twice": "RocketMQ may index the message at the border of a full index file a second time",
    "a short log file is opened": (
        "RocketMQ refuses to start when a log file has the wrong length; ours keeps its whole records"
    ),
    "stale bytes": ("RocketMQ leaves old bytes behind the point where it cut log and queues; ours may differ"),
}


def open_copy(store: Path, facts: golden.Manifest, *, read_only: bool = False) -> MessageStore:
    settings = StoreSettings.from_properties(facts.properties())
    return MessageStore.open(store, settings, read_only=read_only, clock=ManualClock(facts.last_store_time() + 1))


def check_queries(store: MessageStore, facts: golden.Manifest) -> None:
    """Raw index answers, less what DIFFERENCES takes out: entries past the log, repeated entries.

    A reader cannot cut the index files: what they say past the log's end is there, and `find` leaves it out.
    """
    end = facts.answers.max_phy_offset
    for query in facts.answers.query_message:
        expected = list(dict.fromkeys(phy for phy in query.index_offsets if phy < end))
        got = golden_answers.raw_index_answer(store, query)
        if store.stats().read_only and any(phy >= end for phy in got):
            if len(got) == query.max_num:
                continue  # The limit was used up by entries past the end.
            got = [phy for phy in got if phy < end]
        assert got == expected, query


def check_all(store: MessageStore, facts: golden.Manifest) -> None:
    for name, family in golden_answers.FAMILIES.items():
        if name not in ("index_offsets", "fetches_by_tag"):
            family(store, facts)
    check_queries(store, facts)
    by_tag = facts.answers.get_message_by_tag
    if facts.name == "unclean-behind":  # "due times survive recovery": no tag hash to fetch by.
        by_tag = [row for row in by_tag if row.topic != "SCHEDULE_TOPIC_XXXX"]
    for row in by_tag:
        got = golden_answers.fetched(store, row.topic, row.queue_id, row.get, row.sub)
        assert got == golden_answers.recorded(row.get), golden_answers.label(row)


@pytest.mark.parametrize("name", golden.UNCLEAN_STORES)
def test_unclean_store_is_recovered(name: str, tmp_path: Path) -> None:
    facts = golden.manifest(name)
    recovered = facts.recovered
    assert recovered is not None
    copy = golden.restore(name, tmp_path)
    with open_copy(copy, facts) as store:
        state = recovered.after_start
        assert (store.min_physical, store.max_physical) == (state.min_physical, state.max_physical)
        assert {queue: (store.min_offset(*queue), store.max_offset(*queue)) for queue in state.by_queue()} == {
            queue: row[:2] for queue, row in state.by_queue().items()
        }
        check_all(store, facts)
    assert not (copy / "abort").exists()


@pytest.mark.parametrize("name", golden.UNCLEAN_STORES)
def test_recovered_files(name: str, tmp_path: Path) -> None:
    """Log and queue files are those of `after/`, up to the ends RocketMQ gives them."""
    facts = golden.manifest(name)
    recovered = facts.recovered
    assert recovered is not None
    ours = golden.restore(name, tmp_path)
    theirs = golden.restore(name, tmp_path, "after")
    with open_copy(ours, facts):
        pass
    end = recovered.after_start.max_physical
    assert [p.name for p in sorted((ours / "commitlog").iterdir())] == [
        p.name for p in sorted((theirs / "commitlog").iterdir())
    ]
    for path in sorted((theirs / "commitlog").iterdir()):
        sound = max(0, min(end - int(path.name), path.stat().st_size))
        assert (ours / "commitlog" / path.name).read_bytes()[:sound] == path.read_bytes()[:sound]
    for (topic, queue_id), (_, entries, _) in recovered.after_start.by_queue().items():
        queue = f"consumequeue/{topic}/{queue_id}"
        mine, reference = joined(ours / queue)[: entries * 20], joined(theirs / queue)[: entries * 20]
        if (name, topic) == ("unclean-behind", "SCHEDULE_TOPIC_XXXX"):
            # "due times survive recovery"
            due = {record.phy: record.tags_code for record in facts.records}
            rows = [
                (mine[at : at + 12], int.from_bytes(mine[at + 12 : at + 20], "big")) for at in range(0, len(mine), 20)
            ]
            assert [head for head, _ in rows] == [reference[at : at + 12] for at in range(0, len(reference), 20)]
            assert [code for _, code in rows] == [due[int.from_bytes(head[:8], "big")] for head, _ in rows]
            assert mine != reference
        else:
            assert mine == reference, queue


def joined(queue: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(queue.iterdir()))


@pytest.mark.parametrize("name", golden.UNCLEAN_STORES)
def test_unclean_store_read_only(name: str, tmp_path: Path) -> None:
    """Recovery in memory: the same answers, and the directory stays as it was."""
    facts = golden.manifest(name)
    copy = golden.restore(name, tmp_path)
    before = golden.tree_state(copy)
    with open_copy(copy, facts, read_only=True) as store:
        check_all(store, facts)
    assert golden.tree_state(copy) == before


@pytest.mark.parametrize("name", golden.UNCLEAN_STORES)
def test_appending_goes_on_after_recovery(name: str, tmp_path: Path) -> None:
    facts = golden.manifest(name)
    copy = golden.restore(name, tmp_path)
    state = {(row.topic, row.queue_id): row.max for row in facts.answers.queues}
    with open_copy(copy, facts) as store:
        end = store.max_physical
        for (topic, queue_id), next_offset in state.items():
            if topic != "SCHEDULE_TOPIC_XXXX":
                receipt = store.append(Message(topic, b"after recovery", queue_id=queue_id))
                assert receipt.queue_offset == next_offset
                assert receipt.physical_offset >= end
                end = receipt.physical_offset + receipt.size
    with open_copy(copy, facts) as store:
        for (topic, queue_id), next_offset in state.items():
            if topic != "SCHEDULE_TOPIC_XXXX":
                fetched = store.fetch(topic, queue_id, next_offset)
                assert [message.body for message in fetched.messages] == [b"after recovery"]


TORN = golden.torn_tail()


@pytest.mark.parametrize("abort", [False, True], ids=["normal", "abnormal"])
@pytest.mark.parametrize("torn", TORN.patches, ids=lambda patch: patch.what.split("(")[0].strip().replace(" ", "-"))
def test_torn_tail(torn: golden.TornPatch, abort: bool, tmp_path: Path) -> None:
    facts = golden.manifest(TORN.base)
    copy = golden.restore(TORN.base, tmp_path)
    torn.patch.apply(copy)
    golden.set_times(copy, facts.files)
    if abort:
        (copy / "abort").touch()
    outcome = torn.abnormal if abort else torn.normal
    whole = [record for record in facts.records if not record.blank]
    expected = outcome.after_start
    if not outcome.load:  # "a short log file is opened"
        assert torn.patch.truncate is not None
        expected = next(patch.normal.after_start for patch in TORN.patches if patch.what == "whole last record zero")
    assert expected is not None
    with open_copy(copy, facts) as store:
        assert (store.min_physical, store.max_physical) == (expected.min_physical, expected.max_physical)
        got = {queue: (store.min_offset(*queue), store.max_offset(*queue)) for queue in expected.by_queue()}
        assert got == {queue: row[:2] for queue, row in expected.by_queue().items()}
        kept = [record.phy for record in whole if record.phy < expected.max_physical]
        assert [message.physical_offset for message in store.scan()] == kept
        if outcome.load:
            assert kept[-1] == outcome.last_record
        receipt = store.append(Message("T_3", b"goes on", queue_id=3))
        assert receipt.physical_offset == expected.max_physical
        assert receipt.queue_offset == expected.by_queue()["T_3", 3][1]
    with open_copy(copy, facts) as store:
        message = store.at(receipt.physical_offset)
        assert message is not None
        assert message.body == b"goes on"
        assert store.dispatch_behind_bytes == 0
