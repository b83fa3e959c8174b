"""The config directory as a reader sees it."""

from pathlib import Path

import pytest

from embermq.files import RealFiles
from embermq.store.tables import ConfigFile, ConsumerProgress, config_files, consumer_progress
from tests.support import golden

FILES = RealFiles()


def test_what_a_broker_wrote(tmp_path: Path) -> None:
    store = golden.restore("retry-dlq", tmp_path)
    found = {one.name: one for one in config_files(FILES, store)}
    assert all(one.fault is None for one in found.values())
    assert {"topics.json", "consumerOffset.json", "delayOffset.json"} <= set(found)
    progress = consumer_progress(FILES, store)
    assert ConsumerProgress("%RETRY%CG_retry", "CG_retry", 0, 9) in progress
    assert {one.topic for one in progress} == {"RetryTopic", "%RETRY%CG_retry"}
    assert progress == sorted(progress, key=lambda one: (one.topic, one.group, one.queue_id))


def test_no_config(tmp_path: Path) -> None:
    assert config_files(FILES, tmp_path) == []
    assert consumer_progress(FILES, tmp_path) == []


@pytest.mark.parametrize(
    ("content", "fault"),
    [(b"", "empty"), (b"\0\0", "empty"), (b"{", "cannot be read"), (b"[]", "has no offsetTable"), (b"\xff", "cannot")],
)
def test_a_damaged_file_and_its_backup(tmp_path: Path, content: bytes, fault: str) -> None:
    (tmp_path / "config").mkdir()
    file = tmp_path / "config" / "consumerOffset.json"
    file.write_bytes(content)
    [one] = config_files(FILES, tmp_path)
    assert one.entries is None
    assert one.fault is not None
    assert one.fault.startswith(fault)
    assert "there is no good backup" in one.fault
    assert consumer_progress(FILES, tmp_path) == []
    file.with_name("consumerOffset.json.bak").write_text('{"offsetTable":{"t@g":{0:5,"1":6}}}')
    [one] = config_files(FILES, tmp_path)
    assert one.entries == 1
    assert one.fault is not None
    assert one.fault.endswith("its backup is used")
    assert consumer_progress(FILES, tmp_path) == [ConsumerProgress("t", "g", 0, 5), ConsumerProgress("t", "g", 1, 6)]


def test_entries_that_make_no_sense_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    text = '{"offsetTable":{"noat":{0:1},"t@g":{"x":1},"t@h":5,"t@i":{0:"one",1:7}}}'
    (tmp_path / "config" / "consumerOffset.json").write_text(text)
    assert consumer_progress(FILES, tmp_path) == [ConsumerProgress("t", "i", 1, 7)]


def test_foreign_files_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "notes.txt").write_text("hello")
    (tmp_path / "config" / "topics.json.bak").write_text("{}")
    (tmp_path / "config" / "topics.json").write_text('{"topicConfigTable":{"a":{},"b":{}}}')
    assert config_files(FILES, tmp_path) == [ConfigFile("topics.json", 2, None)]
