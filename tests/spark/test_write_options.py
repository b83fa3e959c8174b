"""Options of a write: what they mean, and what is said about wrong ones."""

import pickle
from pathlib import Path

import pytest

from embermq.errors import OptionInvalid
from embermq.settings import FlushDisk
from embermq.spark.options.write_options import WRITE_OPTIONS, WriteOptions, parse


def batch(**options: str) -> WriteOptions:
    return parse({"path": "/data/store", **options}, streaming=False)


def refusal(options: dict[str, str], *, streaming: bool = False) -> OptionInvalid:
    with pytest.raises(OptionInvalid) as caught:
        parse({"path": "/data/store", **options}, streaming=streaming)
    return caught.value


def test_what_nobody_says() -> None:
    options = batch()
    assert options.store == Path("/data/store")
    assert options.staging == Path("/data/store/embermq.staging")
    assert (options.topic, options.queues, options.unique_keys, options.write_id) == (None, 4, True, None)
    assert (options.lock_timeout_ms, options.staging_retention_ms) == (30_000, 7 * 24 * 3600 * 1000)
    assert options.settings_said == frozenset()


def test_every_option_in_the_case_spark_hands_it() -> None:
    options = parse(
        {
            "path": "file:///data/my%20store",
            "topic": "orders",
            "queues": "16",
            "uniquekeys": "False",
            "writeid": "import 7",
            "stagingpath": "/shared/staging",
            "stagingretention": "2h",
            "locktimeout": "500ms",
            "settings.flushdisktype": "SYNC_FLUSH",
            "settings.mappedfilesizecommitlog": "1048576",
        },
        streaming=False,
    )
    assert options.store == Path("/data/my store")
    assert options.staging == Path("/shared/staging")
    assert (options.topic, options.queues, options.unique_keys, options.write_id) == ("orders", 16, False, "import 7")
    assert (options.lock_timeout_ms, options.staging_retention_ms) == (500, 7_200_000)
    assert options.settings.flush is FlushDisk.SYNC
    assert options.settings.segment_bytes == 1 << 20
    assert options.settings_said == {"flush", "segment_bytes"}
    assert pickle.loads(pickle.dumps(options)) == options


def test_every_option_is_in_the_table_once_and_explained() -> None:
    names = [option.name.lower() for option in WRITE_OPTIONS]
    assert len(set(names)) == len(names)
    assert all(option.meaning.endswith(".") for option in WRITE_OPTIONS)


def test_a_broker_conf_and_settings_on_top(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("flushDiskType=SYNC_FLUSH\nmaxMessageSize=100000\n")
    options = batch(storeConfig=str(conf), **{"settings.maxMessageSize": "200000"})
    assert options.settings.flush is FlushDisk.SYNC
    assert options.settings.message_bytes_max == 200_000
    assert options.settings_said == {"flush", "message_bytes_max"}


def test_a_relative_path_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse({"path": "store"}, streaming=True).store == tmp_path / "store"


def test_what_spark_adds_is_none_of_our_business() -> None:
    parse({"path": "/s", "checkpointlocation": "/c", "__internal": "x"}, streaming=True)


@pytest.mark.parametrize(
    ("options", "option", "words"),
    [
        ({"topik": "a"}, "topik", "did you mean topic?"),
        ({"uniqueKey": "true"}, "uniqueKey", "did you mean uniqueKeys?"),
        ({"flushDiskType": "SYNC_FLUSH"}, "flushDiskType", "did you mean settings.flushDiskType?"),
        ({"kafka.bootstrap.servers": "a:9"}, "kafka.bootstrap.servers", "give the path of a store"),
        ({"zzz": "a"}, "zzz", "there are path, nameServer"),
        ({"settings.flushDiskTyp": "x"}, "settings.flushDiskTyp", "did you mean settings.flushDiskType?"),
        ({"settings.flushDiskType": "SOMETIMES"}, "settings.flushDiskType", "SOMETIMES"),
        ({"storeConfig": "/no/such/file"}, "storeConfig", "cannot be read"),
        ({"queues": "0"}, "queues", "from 1"),
        ({"queues": "100000"}, "queues", "at most 65,536"),
        ({"uniqueKeys": "yes"}, "uniqueKeys", "true or false"),
        ({"lockTimeout": "soon"}, "lockTimeout", "30s"),
        ({"topic": " "}, "topic", "a name"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "topic", "SCHEDULE_TOPIC_XXXX is a system topic"),
        ({"topic": " RMQ_SYS_TRANS_OP_HALF_TOPIC"}, "topic", "is a system topic"),
        ({"path": "hdfs://x/store"}, "path", "not behind hdfs://"),
        ({"path": "/data/*"}, "path", "one directory"),
        ({"path": ""}, "path", "missing"),
        ({"paths": '["a", "b"]'}, "paths", "one store at a time"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], option: str, words: str) -> None:
    problem = refusal(options)
    assert problem.option == option
    assert words in str(problem)


def test_a_write_id_is_for_batches() -> None:
    """A stream has an id of its own."""
    assert "df.write" in str(refusal({"writeId": "a"}, streaming=True))
