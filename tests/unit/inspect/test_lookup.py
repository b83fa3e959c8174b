"""Single messages by place, id and key, from outside."""

import shutil
from pathlib import Path

import pytest

from embermq import Message, MessageStore, StoreSettings
from embermq.errors import MessageIdInvalid
from embermq.inspect.lookup import (
    find_by_reading,
    find_messages,
    message_at,
    message_by_id,
    nearest_topics,
    store_hosts,
)
from embermq.inspect.snapshot import Survey
from embermq.model.hosts import Host
from embermq.model.ids import message_id
from tests.support import golden

SMALL = StoreSettings(
    segment_bytes=8192,
    queue_file_bytes=2000,
    index_slots_max=100,
    index_entries_max=400,
    disk_full_percent=100,
    disk_clean_percent=100,
)


@pytest.fixture(scope="module")
def index_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.restore("index", tmp_path_factory.mktemp("index"))


@pytest.fixture(scope="module")
def no_index_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = golden.restore("index", tmp_path_factory.mktemp("no-index"))
    shutil.rmtree(path / "index")
    return path


def test_messages_by_place(index_store: Path) -> None:
    survey = Survey.open(index_store)
    for record in golden.manifest("index").records:
        found = message_at(survey, record.phy)
        if record.blank:
            assert found is None
        else:
            assert found is not None
            assert (found.message_id, found.size) == (record.offset_msg_id, record.size)
            assert message_at(survey, record.phy + 1) is None
    for place in (-1, survey.log_end, survey.log_end + 1, 1 << 60):
        assert message_at(survey, place) is None


def test_a_file_that_was_deleted_meanwhile_is_no_surprise(tmp_path: Path) -> None:
    path = golden.restore("index", tmp_path)
    survey = Survey.open(path)
    survey.segments[0].path.unlink()
    assert message_at(survey, 0) is None


def expected_places(topic: str, key: str) -> list[int]:
    """What has this key, by the manifest alone."""
    places = []
    for record in golden.manifest("index").records:
        text = record.properties_string or ""
        pairs = dict(pair.split("\x01", 1) for pair in text.split("\x02") if "\x01" in pair)
        words = [pairs.get("UNIQ_KEY", ""), *pairs.get("KEYS", "").split(" ")]
        if record.topic == topic and key in words and not record.blank:
            places.append(record.phy)
    return places


@pytest.mark.parametrize("which", ["index_store", "no_index_store"])
def test_every_key_of_rocketmq(which: str, request: pytest.FixtureRequest) -> None:
    survey = Survey.open(request.getfixturevalue(which))
    manifest = golden.manifest("index")
    queries = {(query.topic, query.key) for query in manifest.answers.query_message if query.key}
    assert len(queries) > 20
    for topic, key in sorted(queries):
        found = find_messages(survey, topic, key)
        assert found.by_index is (which == "index_store")
        assert [message.physical_offset for message in found.messages] == expected_places(topic, key), (topic, key)


@pytest.mark.parametrize("with_index", [True, False])
def test_times_and_limits(tmp_path: Path, with_index: bool) -> None:
    times = []
    with MessageStore.open(tmp_path / "store", SMALL.replace(index=with_index)) as store:
        for number in range(30):
            receipt = store.append(Message("t", b"%d" % number, keys=["same", f"own-{number}"]))
            times.append(receipt.store_timestamp)
        store.append(Message("other", b"x", keys=["same"]))
    survey = Survey.open(tmp_path / "store")

    def bodies(begin_ms: int = 0, end_ms: int | None = None, limit: int | None = None) -> list[int]:
        found = find_messages(survey, "t", "same", begin_ms, end_ms, limit)
        assert found.by_index is with_index
        return [int(message.body) for message in found.messages]

    assert bodies() == list(range(30))
    assert bodies(limit=3) == [27, 28, 29]
    assert bodies(begin_ms=times[10]) == [number for number in range(30) if times[number] >= times[10]]
    assert bodies(end_ms=times[10]) == [number for number in range(30) if times[number] <= times[10]]
    assert bodies(begin_ms=times[-1] + 1) == []
    assert [one.body for one in find_messages(survey, "t", "own-7").messages] == [b"7"]
    for absent in ("own-", "sam", "same own-7", "nothing"):
        assert find_messages(survey, "t", absent).messages == []


def test_a_key_is_looked_for_among_keys_only(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        store.append(Message("word", b"word", tags="word", properties={"word": "word"}))
        place = store.append(Message("word", b"word", keys=["word"])).physical_offset
    assert list(find_by_reading(Survey.open(tmp_path / "store"), "word")) == [(place, "word")]


# -- ids -------------------------------------------------------------------------------------------------------


def test_messages_by_id(index_store: Path) -> None:
    survey = Survey.open(index_store)
    record = golden.manifest("index").records[5]
    answer = message_by_id(survey, record.offset_msg_id)
    assert answer.message is not None
    assert answer.message.physical_offset == record.phy
    assert answer.foreign_host is None


def test_an_id_of_another_store_says_whose(index_store: Path) -> None:
    survey = Survey.open(index_store)
    own = golden.host(golden.manifest("index").records[0].store_host)
    assert store_hosts(survey) == {own}
    foreign = Host("172.16.0.9", 10911)
    for place in (golden.manifest("index").records[5].phy, 12_345_678):
        answer = message_by_id(survey, message_id(foreign, place))
        assert answer.message is None
        assert answer.foreign_host == foreign
        assert answer.own_hosts == (own,)


def test_an_id_of_this_store_that_leads_nowhere_is_not_foreign(index_store: Path) -> None:
    own = golden.host(golden.manifest("index").records[0].store_host)
    for place in (1, 12_345_678):
        answer = message_by_id(Survey.open(index_store), message_id(own, place))
        assert (answer.message, answer.foreign_host) == (None, None)


def test_an_empty_store_knows_no_hosts(tmp_path: Path) -> None:
    MessageStore.open(tmp_path / "store", SMALL).close()
    answer = message_by_id(Survey.open(tmp_path / "store"), message_id(Host("1.2.3.4", 5), 0))
    assert (answer.message, answer.foreign_host) == (None, None)


def test_text_that_is_no_id(index_store: Path) -> None:
    with pytest.raises(MessageIdInvalid):
        message_by_id(Survey.open(index_store), "nonsense")


def test_nearest_topics() -> None:
    topics = {"orders", "orders-eu", "payments", "users"}
    assert nearest_topics("order", topics)[0] == "orders"
    assert nearest_topics("zzz", topics) == ["orders", "orders-eu", "payments"]
    assert nearest_topics("x", []) == []
