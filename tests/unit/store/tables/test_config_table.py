"""Config tables: what RocketMQ wrote is read and written back the same; damage, crashes, versions."""

import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from embermq.files import RealFiles
from embermq.format.config_json import parse_config
from embermq.store.tables import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    FILTERS,
    GROUPS,
    TOPICS,
    ConfigTable,
    ConsumerFilter,
    DataVersion,
    GroupConfig,
    TableFormat,
    TopicConfig,
    TopicGroup,
    bloom_filter_data,
    commit_offsets,
    load_entries,
)
from embermq.testing import FaultyFiles, LossyFiles, ManualClock
from embermq.testing.unsynced import keep_everything, lose_everything, random_fates
from tests.support import golden

ROOT = Path("/store")
CONFIG = ROOT / "config"
FORMATS: list[TableFormat[Any, Any]] = [TOPICS, GROUPS, CONSUMER_OFFSETS, FILTERS, DELAY_OFFSETS]
FILTER_TEXT = (
    '{\n\t"filterDataByTopic":{\n\t\t"orders":{\n\t\t\t"groupFilterData":{\n\t\t\t\t"shop":{\n'
    '\t\t\t\t\t"bloomFilterData":{\n\t\t\t\t\t\t"bitNum":112,\n\t\t\t\t\t\t"bitPos":[14,59,39]\n\t\t\t\t\t},\n'
    '\t\t\t\t\t"bornTime":1700,\n\t\t\t\t\t"clientVersion":3,\n\t\t\t\t\t"consumerGroup":"shop",\n'
    '\t\t\t\t\t"dead":false,\n\t\t\t\t\t"deadTime":0,\n\t\t\t\t\t"expression":"a > 1",\n'
    '\t\t\t\t\t"expressionType":"SQL92",\n\t\t\t\t\t"topic":"orders"\n\t\t\t\t}\n\t\t\t},\n'
    '\t\t\t"topic":"orders"\n\t\t}\n\t}\n}'
)


@pytest.fixture
def disk() -> LossyFiles:
    disk = LossyFiles()
    disk.put(CONFIG, None)
    return disk


def topics_on(files: Any) -> ConfigTable[str, TopicConfig]:
    return ConfigTable(files, ROOT, TOPICS, ManualClock())


def names(files: LossyFiles) -> list[str]:
    return sorted(entry.name for entry in files.list_directory(CONFIG))


# -- what RocketMQ wrote -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", golden.BROKER_STORES)
def test_tables_of_a_broker_are_read_and_written_back_the_same(name: str, tmp_path: Path) -> None:
    root = golden.restore(name, tmp_path)
    for table_format in FORMATS:
        path = table_format.path(root)
        if not path.exists():
            continue
        table: ConfigTable[Any, Any] = ConfigTable(RealFiles(), root, table_format, ManualClock())
        assert table.load() is None
        assert table.text() == path.read_text()
        assert not table.save(), "nothing changed"


def test_a_topic_of_a_broker(tmp_path: Path) -> None:
    root = golden.restore("retry-dlq", tmp_path)
    table = ConfigTable(RealFiles(), root, TOPICS, ManualClock())
    table.load()
    assert table.get("%RETRY%CG_retry") == TopicConfig("%RETRY%CG_retry", 1, 1, perm=6)
    assert table.version.counter > 0
    assert "SELF_TEST_TOPIC" in table


def test_groups_and_filters_have_rocketmqs_form(disk: LossyFiles) -> None:
    groups = ConfigTable(disk, ROOT, GROUPS, ManualClock())
    groups.put("shop", GroupConfig("shop", retry_max_times=3))
    assert parse_config(groups.text())["subscriptionGroupTable"]["shop"] == {
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "groupName": "shop",
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 3,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    disk.put(FILTERS.path(ROOT), FILTER_TEXT.encode())
    filters = ConfigTable(disk, ROOT, FILTERS, ManualClock())
    assert filters.load() is None
    [(key, one)] = filters.entries().items()
    assert key == TopicGroup("orders", "shop")
    assert (one.bits, one.bits_max, one.is_dead) == ((14, 59, 39), 112, False)
    assert one == ConsumerFilter(
        "orders", "shop", "a > 1", born_time=1700, client_version=3, others=bloom_filter_data((14, 59, 39), 112)
    )
    assert filters.text() == FILTER_TEXT


def test_fields_of_newer_versions_are_kept(disk: LossyFiles) -> None:
    text = (
        b'{"dataVersion":{"counter":4,"stateVersion":2,"timestamp":9},"extra":[1],'
        b'"topicConfigTable":{"a":{"attributes":{"x":"y"},"perm":6,"topicName":"a"}}}'
    )
    disk.put(TOPICS.path(ROOT), text)
    table = topics_on(disk)
    assert table.load() is None
    assert table.version == DataVersion(9, 4, 2)
    table.put("b", TopicConfig("b"))
    table.save()
    written = parse_config(disk.read_all(TOPICS.path(ROOT)).decode())
    assert written["extra"] == [1]
    assert written["topicConfigTable"]["a"]["attributes"] == {"x": "y"}
    assert (written["dataVersion"]["counter"], written["dataVersion"]["stateVersion"]) == (5, 2)


def test_integer_keys_with_and_without_quotes(disk: LossyFiles) -> None:
    disk.put(CONSUMER_OFFSETS.path(ROOT), b'{"offsetTable":{"t@g":{0:5,"1":6}}}')
    table = ConfigTable(disk, ROOT, CONSUMER_OFFSETS, ManualClock())
    table.load()
    commit_offsets(table, "t", "g", [(1, 7), (2, 1)])
    commit_offsets(table, "u", "g", [(0, 3)])
    table.save()
    text = disk.read_all(CONSUMER_OFFSETS.path(ROOT))
    assert text == b'{\n\t"offsetTable":{\n\t\t"t@g":{0:5,1:7,2:1\n\t\t},\n\t\t"u@g":{0:3\n\t\t}\n\t}\n}'


# -- versions and saving -----------------------------------------------------------------------------------


def test_each_change_gives_a_new_version_and_one_save_writes_them_all(disk: LossyFiles) -> None:
    clock = ManualClock()
    table = ConfigTable(disk, ROOT, TOPICS, clock)
    before = table.version
    clock.advance(s=1)
    table.put("a", TopicConfig("a"))
    table.put("a", TopicConfig("a"))
    assert table.version == DataVersion(clock.now_ms(), before.counter + 1)
    table.put_all({"b": TopicConfig("b"), "c": TopicConfig("c")})
    assert table.remove("c") == TopicConfig("c")
    assert table.remove("c") is None
    assert table.version.counter == before.counter + 4
    assert table.has_unsaved_changes
    assert table.save()
    assert not table.save()
    assert names(disk) == ["topics.json"]
    table.put("d", TopicConfig("d"))
    table.save()
    assert names(disk) == ["topics.json", "topics.json.bak"]
    again = topics_on(disk)
    assert again.load() is None
    assert (again.entries(), again.version) == (table.entries(), table.version)
    assert sorted(load_entries(disk, ROOT, TOPICS)) == ["a", "b", "d"]


def test_a_replica_takes_over_table_and_version(disk: LossyFiles) -> None:
    table = topics_on(disk)
    table.put("old", TopicConfig("old"))
    table.assign({"new": TopicConfig("new")}, DataVersion(77, 5))
    table.save()
    again = topics_on(disk)
    again.load()
    assert (again.version, list(again.entries())) == (DataVersion(77, 5), ["new"])
    changes = again.has_unsaved_changes
    again.assign({"new": TopicConfig("new")}, DataVersion(77, 5))
    assert again.has_unsaved_changes is changes is False


def test_callers_that_wait_for_one_another_share_a_write(tmp_path: Path) -> None:
    """While one save holds the file, any number of changes and savers wait; the next write has all of them."""
    inside, go_on = threading.Event(), threading.Event()

    class SlowFiles(RealFiles):
        writes = 0

        def replace_file(self, path: Path, data: bytes) -> None:
            type(self).writes += 1
            inside.set()
            assert go_on.wait(10)
            super().replace_file(path, data)

    table = ConfigTable(SlowFiles(), tmp_path, DELAY_OFFSETS, ManualClock())
    table.put(1, 1)
    threads = [threading.Thread(target=table.save)]
    threads[0].start()
    assert inside.wait(10)
    for level in range(2, 8):
        table.put(level, 1)  # Not held up by the write under way.
        threads.append(threading.Thread(target=table.save))
        threads[-1].start()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert SlowFiles.writes == 3, "the first, then backup and file once for all the others"
    assert len(load_entries(RealFiles(), tmp_path, DELAY_OFFSETS)) == 7


# -- damage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b"{", b"[]", b"\xff", b'{"topicConfigTable":3}', b'{"a":' * 100_000])
def test_a_damaged_file_falls_back_and_is_kept_as_evidence(disk: LossyFiles, damage: bytes) -> None:
    table = topics_on(disk)
    table.put("a", TopicConfig("a"))
    table.save()
    table.put("b", TopicConfig("b"))
    table.save()
    disk.replace_file(TOPICS.path(ROOT), damage)
    again = topics_on(disk)
    finding = again.load()
    assert finding is not None
    assert finding.endswith("its backup is used")
    assert list(again.entries()) == ["a"]
    assert disk.read_all(TOPICS.path(ROOT)) == damage, "loading writes nothing"
    assert again.is_damaged
    assert again.save(), "the file is made good again"
    assert names(disk) == ["topics.json", "topics.json.bak", "topics.json.damaged-1"]
    assert disk.read_all(CONFIG / "topics.json.damaged-1") == damage
    assert list(load_entries(disk, ROOT, TOPICS)) == ["a"]
    assert parse_config(disk.read_all(CONFIG / "topics.json.bak").decode())["topicConfigTable"].keys() == {"a"}


def test_neither_file_nor_backup(disk: LossyFiles) -> None:
    disk.put(TOPICS.path(ROOT), b"{")
    disk.put(CONFIG / "topics.json.bak", b"[]")
    table = topics_on(disk)
    finding = table.load()
    assert finding is not None
    assert "its backup has no topicConfigTable" in finding
    assert len(table) == 0
    table.put("a", TopicConfig("a"))
    table.save()
    assert disk.read_all(CONFIG / "topics.json.damaged-1") == b"{"
    assert disk.read_all(CONFIG / "topics.json.bak.damaged-1") == b"[]"


def test_one_bad_entry_costs_that_entry_only(disk: LossyFiles) -> None:
    text = b'{"topicConfigTable":{"a":{"perm":6},"b":{"perm":"6"},"c":4}}'
    disk.put(TOPICS.path(ROOT), text)
    table = topics_on(disk)
    assert table.load() == "b has perm = '6'; c is 4, not an object; left out"
    assert list(table.entries()) == ["a"]
    table.save()
    assert disk.read_all(CONFIG / "topics.json.damaged-1") == text
    assert "topics.json.bak" not in names(disk), "a file with bad entries is no good backup"


def test_empty_files_leave_no_evidence(disk: LossyFiles) -> None:
    disk.put(TOPICS.path(ROOT), b"\0" * 40)
    table = topics_on(disk)
    assert table.load() == "empty; there is no good backup"
    assert not table.is_damaged
    table.put("a", TopicConfig("a"))
    table.save()
    assert names(disk) == ["topics.json"]


def test_evidence_is_bounded_and_not_kept_twice(disk: LossyFiles) -> None:
    for turn in range(12):
        disk.replace_file(TOPICS.path(ROOT), b"{%d" % (turn // 2))
        table = topics_on(disk)
        table.load()
        table.put("a", TopicConfig("a"))
        table.save()
    assert [name for name in names(disk) if "damaged" in name] == [f"topics.json.damaged-{n}" for n in range(1, 7)]
    for turn in range(100, 105):
        disk.replace_file(TOPICS.path(ROOT), b"{%d" % turn)
        table = topics_on(disk)
        table.load()
        table.save()
    assert len([name for name in names(disk) if "damaged" in name]) == 8
    assert disk.read_all(CONFIG / "topics.json.damaged-8") == b"{104"


def test_a_directory_or_a_bad_disk_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "config" / "topics.json").mkdir(parents=True)
    table = ConfigTable(RealFiles(), tmp_path, TOPICS, ManualClock())
    finding = table.load()
    assert finding is not None
    assert finding.startswith("cannot be read")
    table.put("a", TopicConfig("a"))
    table.save()
    assert (tmp_path / "config" / "topics.json.damaged-1").is_dir()
    assert list(load_entries(RealFiles(), tmp_path, TOPICS)) == ["a"]


def test_a_save_that_fails_is_made_up_for(tmp_path: Path) -> None:
    for kind in ("create", "pwrite", "sync", "rename", "sync_directory"):
        for nth in (1, 2):
            files = FaultyFiles(RealFiles())
            root = tmp_path / f"{kind}{nth}"
            table = ConfigTable(files, root, DELAY_OFFSETS, ManualClock())
            table.put(1, 1)
            table.save()
            table.put(1, 2)
            files.fail(kind, nth=nth, error=errno.ENOSPC)
            with pytest.raises(OSError, match="No space"):
                table.save()
            assert load_entries(RealFiles(), root, DELAY_OFFSETS) in ({1: 1}, {1: 2})
            assert table.has_unsaved_changes
            assert table.save()
            assert load_entries(RealFiles(), root, DELAY_OFFSETS) == {1: 2}


# -- crashes -----------------------------------------------------------------------------------------------


SEEDS = range(6)


def old_table(is_damaged: bool) -> tuple[LossyFiles, dict[int, int]]:
    """A disk with a table and its backup, the file damaged or not; and what a reader sees."""
    disk = LossyFiles()
    disk.put(CONFIG, None)
    table = ConfigTable(disk, ROOT, DELAY_OFFSETS, ManualClock())
    for offset in (1, 2):
        table.put(1, offset)
        table.save()
    if not is_damaged:
        return disk, {1: 2}
    disk.replace_file(DELAY_OFFSETS.path(ROOT), b"{")
    return disk, {1: 1}


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_crash_at_every_step_leaves_the_old_or_the_new_table(is_damaged: bool) -> None:
    """And evidence of damage is there as long as the damaged file is not, and never lost."""
    disk, old = old_table(is_damaged)
    for step in range(1, 100):
        disk, _ = old_table(is_damaged)
        faulty = FaultyFiles(disk)
        table = ConfigTable(faulty, ROOT, DELAY_OFFSETS, ManualClock())
        table.load()
        table.put(1, 3)
        crashed: list[LossyFiles] = []

        def crash(disk: LossyFiles = disk, crashed: list[LossyFiles] = crashed) -> None:
            fates = [lose_everything, keep_everything, *(random_fates(seed) for seed in SEEDS)]
            crashed += [disk.crash(fate) for fate in fates]

        faulty.before(step=step, call=crash)
        table.save()
        if not crashed:
            assert step > 8, "a save has many steps"
            break
        for after in crashed:
            assert load_entries(after, ROOT, DELAY_OFFSETS) in (old, {1: 3})
            if is_damaged:
                places = [DELAY_OFFSETS.path(ROOT), CONFIG / "delayOffset.json.damaged-1"]
                assert any(after.exists(place) and after.read_all(place) == b"{" for place in places)
            again = ConfigTable(after, ROOT, DELAY_OFFSETS, ManualClock())
            again.load()
            again.put(1, 4)
            again.save()
            assert load_entries(after.crash(lose_everything), ROOT, DELAY_OFFSETS) == {1: 4}
    for fate in (lose_everything, keep_everything):
        assert load_entries(disk.crash(fate), ROOT, DELAY_OFFSETS) == {1: 3}, "saved is saved"
