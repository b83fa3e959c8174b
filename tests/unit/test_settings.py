"""StoreSettings: names, values, ranges, and where values come from."""

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.errors import SettingsError, SettingsWarning
from embermq.settings import BrokerRole, FlushDisk, KernelUse, StoreSettings
from embermq.settings.store_settings import NAMES, PROPERTIES, SECTIONS

# RocketMQ's MessageStoreConfig, complete, with its defaults as a broker.conf would write them.
REFERENCE_DEFAULTS = {
    "storePathCommitLog": "",
    "storePathDLedgerCommitLog": "",
    "readOnlyCommitLogStorePaths": "",
    "mappedFileSizeCommitLog": "1073741824",
    "mappedFileSizeConsumeQueue": "6000000",
    "enableConsumeQueueExt": "false",
    "mappedFileSizeConsumeQueueExt": "50331648",
    "bitMapLengthConsumeQueueExt": "64",
    "flushIntervalCommitLog": "500",
    "commitIntervalCommitLog": "200",
    "useReentrantLockWhenPutMessage": "true",
    "flushCommitLogTimed": "true",
    "flushIntervalConsumeQueue": "1000",
    "cleanResourceInterval": "10000",
    "deleteCommitLogFilesInterval": "100",
    "deleteConsumeQueueFilesInterval": "100",
    "destroyMapedFileIntervalForcibly": "120000",
    "redeleteHangedFileInterval": "120000",
    "deleteWhen": "04",
    "diskMaxUsedSpaceRatio": "75",
    "fileReservedTime": "72",
    "putMsgIndexHightWater": "600000",
    "maxMessageSize": "4194304",
    "checkCRCOnRecover": "true",
    "flushCommitLogLeastPages": "4",
    "commitCommitLogLeastPages": "4",
    "flushLeastPagesWhenWarmMapedFile": "4096",
    "flushConsumeQueueLeastPages": "2",
    "flushCommitLogThoroughInterval": "10000",
    "commitCommitLogThoroughInterval": "200",
    "flushConsumeQueueThoroughInterval": "60000",
    "maxTransferBytesOnMessageInMemory": "262144",
    "maxTransferCountOnMessageInMemory": "32",
    "maxTransferBytesOnMessageInDisk": "65536",
    "maxTransferCountOnMessageInDisk": "8",
    "accessMessageInMemoryMaxRatio": "40",
    "messageIndexEnable": "true",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "maxMsgsNumBatch": "64",
    "messageIndexSafe": "false",
    "haListenPort": "10912",
    "haSendHeartbeatInterval": "5000",
    "haHousekeepingInterval": "20000",
    "haTransferBatchSize": "32768",
    "haMasterAddress": "",
    "haSlaveFallbehindMax": "268435456",
    "brokerRole": "ASYNC_MASTER",
    "flushDiskType": "ASYNC_FLUSH",
    "syncFlushTimeout": "5000",
    "slaveTimeout": "3000",
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "flushDelayOffsetInterval": "10000",
    "cleanFileForciblyEnable": "true",
    "warmMapedFileEnable": "false",
    "offsetCheckInSlave": "false",
    "debugLockEnable": "false",
    "duplicationEnable": "false",
    "diskFallRecorded": "true",
    "osPageCacheBusyTimeOutMills": "1000",
    "defaultQueryMaxNum": "32",
    "transientStorePoolEnable": "false",
    "transientStorePoolSize": "5",
    "fastFailIfNoBufferInStorePool": "false",
    "enableDLegerCommitLog": "false",
    "dLegerGroup": "",
    "dLegerPeers": "",
    "dLegerSelfId": "",
    "preferredLeaderId": "",
    "isEnableBatchPush": "false",
    "enableScheduleMessageStats": "true",
    "enableLmq": "false",
    "enableMultiDispatch": "false",
    "maxLmqConsumeQueueNum": "20000",
    "enableScheduleAsyncDeliver": "false",
    "scheduleAsyncDeliverMaxPendingLimit": "2000",
    "scheduleAsyncDeliverMaxResendNum2Blocked": "3",
    # Of the broker:
    "brokerId": "0",
    "listenPort": "10911",
    "longPollingEnable": "true",
    "messageStorePlugIn": "",
    "enableCalcFilterBitMap": "false",
    "maxErrorRateOfBloomFilter": "20",
    "expectConsumerNumUseFilter": "32",
    "filterDataCleanTimeSpan": "86400000",
    "enablePropertyFilter": "false",
    "filterSupportRetry": "false",
}


# --- the list ----------------------------------------------------------------------------------------


def test_defaults_are_those_of_rocketmq() -> None:
    written = StoreSettings().to_properties()
    assert {name: written.get(name) for name in REFERENCE_DEFAULTS} == REFERENCE_DEFAULTS


def test_whatever_is_not_rocketmqs_is_ours_by_name() -> None:
    of_rocketmq_5 = {"timerWheelEnable", "timerMaxDelaySec", "timerFlushIntervalMs"}
    others = NAMES.attributes.keys() - REFERENCE_DEFAULTS.keys() - {"storePathRootDir", "brokerIP1"} - of_rocketmq_5
    assert others
    assert all(name.startswith("ember") for name in others)


def test_the_root_is_in_the_users_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert StoreSettings().root == tmp_path / "store"


def test_names_say_their_entry_last() -> None:
    entries = {"ms": "_ms", "hours": "_hours"}
    for attribute, about in PROPERTIES.items():
        if about.unit in entries:
            assert attribute.endswith(entries[about.unit]), attribute
        assert about.help
        assert not about.help.endswith(".")


def test_sections_follow_the_order_of_the_fields() -> None:
    attributes = list(PROPERTIES)
    starts = [attributes.index(attribute) for _, attribute in SECTIONS]
    assert starts[0] == 0
    assert starts == sorted(starts)


def test_settings_are_immutable_hashable_values() -> None:
    settings = StoreSettings()
    assert settings == StoreSettings()
    assert hash(settings) == hash(StoreSettings())
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.segment_bytes = 5  # type: ignore[misc]


# --- values ------------------------------------------------------------------------------------------


def test_python_names_and_values() -> None:
    settings = StoreSettings(segment_bytes=16384, flush=FlushDisk.SYNC, root=Path("/data"))
    assert (settings.segment_bytes, settings.flush, settings.root) == (16384, FlushDisk.SYNC, Path("/data"))


def test_python_values_may_be_written_as_text_where_that_is_clear() -> None:
    settings = StoreSettings.from_properties({}, flush="SYNC_FLUSH", root="/data", commit_log_paths="/a")
    assert settings.flush is FlushDisk.SYNC
    assert settings.root == Path("/data")
    assert settings.commit_log_paths == (Path("/a"),)


@pytest.mark.parametrize(
    ("given_bytes", "file_bytes"), [(1, 20), (20, 20), (21, 40), (6_000_000, 6_000_000), (16384, 16400)]
)
def test_queue_files_hold_whole_entries(given_bytes: int, file_bytes: int) -> None:
    assert StoreSettings(queue_file_bytes=given_bytes).queue_file_bytes == file_bytes


@pytest.mark.filterwarnings("ignore:accepted without effect")
@pytest.mark.parametrize(("percent", "used"), [(-5, 10), (9, 10), (10, 10), (75, 75), (95, 95), (96, 95), (400, 95)])
def test_the_disk_ratio_is_clamped(percent: int, used: int) -> None:
    assert StoreSettings(disk_used_percent_max=percent).disk_used_percent_max == used
    written = {"diskMaxUsedSpaceRatio": str(percent)}
    assert StoreSettings.from_properties(written).disk_used_percent_max == used


def test_commit_log_directories() -> None:
    assert StoreSettings(root=Path("/d")).commit_log_paths == ()
    several = StoreSettings.from_properties({"storePathCommitLog": "/a, /b,,"})
    assert several.commit_log_paths == (Path("/a"), Path("/b"))


def test_delay_levels_are_parsed() -> None:
    assert StoreSettings().delay_ms[:5] == (1000, 5000, 10_000, 30_000, 60_000)
    assert StoreSettings().delay_ms[-1] == 7_200_000
    assert len(StoreSettings().delay_ms) == 18
    assert StoreSettings(delay_levels="0s 2d").delay_ms == (0, 172_800_000)


@pytest.mark.parametrize(
    ("levels", "piece"),
    [("1s 5x 1m", "level 2 is '5x'"), ("s", "level 1 is 's'"), ("1s -1m", "'-1m'"), ("1", "'1'")],
)
def test_a_wrong_delay_level_is_named(levels: str, piece: str) -> None:
    with pytest.raises(SettingsError) as caught:
        StoreSettings(delay_levels=levels)
    assert piece in caught.value.reason


def test_no_delay_level_at_all_is_wrong() -> None:
    with pytest.raises(SettingsError, match="at least one level"):
        StoreSettings(delay_levels=" ")


def test_delete_hours() -> None:
    assert StoreSettings().delete_hours == {4}
    assert StoreSettings(delete_when="4;16; 23").delete_hours == {4, 16, 23}
    with pytest.raises(SettingsError, match="'24' is no hour"):
        StoreSettings(delete_when="04;24")


def test_the_store_host() -> None:
    assert StoreSettings().store_host == ("127.0.0.1", 10911)
    assert StoreSettings(broker_ip="::1", listen_port=1).store_host == ("::1", 1)
    with pytest.raises(SettingsError, match="not a host name"):
        StoreSettings(broker_ip="localhost")


@pytest.mark.parametrize(
    ("flush", "role", "active"),
    [
        (FlushDisk.ASYNC, BrokerRole.ASYNC_MASTER, True),
        (FlushDisk.ASYNC, BrokerRole.SYNC_MASTER, True),
        (FlushDisk.ASYNC, BrokerRole.SLAVE, False),
        (FlushDisk.SYNC, BrokerRole.ASYNC_MASTER, False),
    ],
)
def test_when_the_transient_pool_works(flush: FlushDisk, role: BrokerRole, active: bool) -> None:
    assert StoreSettings(transient_pool=True, flush=flush, role=role).transient_pool_active is active
    assert not StoreSettings(flush=flush, role=role).transient_pool_active


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("segment_bytes", 0),
        ("segment_bytes", 1023),
        ("segment_bytes", 1 << 31),
        ("segment_bytes", 65536.0),
        ("segment_bytes", True),
        ("segment_bytes", "65536"),
        ("queue_file_bytes", 0),
        ("index_slots_max", 0),
        ("index_entries_max", 1),
        ("message_bytes_max", -1),
        ("sync_flush_timeout_ms", -1),
        ("listen_port", 65536),
        ("index", 1),
        ("index", "true"),
        ("flush", "SOMETIMES"),
        ("role", None),
        ("kernels", "maybe"),
        ("root", ""),
        ("root", None),
        ("commit_log_paths", 5),
        ("delete_when", 4),
        ("plugins", (1,)),
    ],
)
def test_unusable_values_are_refused_under_the_name_that_was_used(attribute: str, value: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        StoreSettings(**{attribute: value})
    assert caught.value.key == attribute
    assert caught.value.value == value
    assert "expected" in caught.value.reason


def test_an_index_file_must_stay_below_two_gibibytes() -> None:
    with pytest.raises(SettingsError) as caught:
        StoreSettings(index_entries_max=200_000_000)
    assert caught.value.key == "index_entries_max"
    assert "maxHashSlotNum" in caught.value.reason


def test_replace_checks_again() -> None:
    settings = StoreSettings(segment_bytes=16384)
    assert settings.replace(flush=FlushDisk.SYNC) == StoreSettings(segment_bytes=16384, flush=FlushDisk.SYNC)
    with pytest.raises(SettingsError):
        settings.replace(segment_bytes=1)


def test_an_unknown_python_name_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError, match="segment_byte"):
        StoreSettings.from_properties({}, segment_byte=5)


# --- reference names ---------------------------------------------------------------------------------


def test_reference_names_and_texts() -> None:
    settings = StoreSettings.from_properties(
        {
            "mappedFileSizeCommitLog": " 65536 ",
            "flushDiskType": "SYNC_FLUSH",
            "brokerRole": "SLAVE",
            "messageIndexEnable": "False",
            "messageStorePlugIn": "a.B, c.D",
            "emberKernels": "never",
        }
    )
    assert settings.segment_bytes == 65536
    assert settings.flush is FlushDisk.SYNC
    assert settings.role is BrokerRole.SLAVE
    assert settings.index is False
    assert settings.plugins == ("a.B", "c.D")
    assert settings.kernels is KernelUse.NEVER


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("mappedFileSizeCommitLog", "1024 * 1024", "a whole number (bytes) from 1024 to 2147483647"),
        ("mappedFileSizeCommitLog", "", "a whole number"),
        ("mappedFileSizeCommitLog", "12", "from 1024"),
        ("flushDiskType", "ASYNC", "ASYNC_FLUSH or SYNC_FLUSH"),
        ("messageIndexEnable", "yes", "true or false"),
        ("messageDelayLevel", "1s 2y", "'2y'"),
    ],
)
def test_bad_texts_name_the_key_the_value_and_what_is_accepted(key: str, text: str, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        StoreSettings.from_properties({key: text})
    assert (caught.value.key, caught.value.value) == (key, text)
    assert expected in caught.value.reason


def test_to_properties_can_be_read_back() -> None:
    settings = StoreSettings(
        root=Path("/d"),
        commit_log_paths=(Path("/a"), Path("/b")),
        flush=FlushDisk.SYNC,
        index=False,
        plugins=("x",),
    )
    assert StoreSettings.from_properties(settings.to_properties()) == settings
    assert StoreSettings.from_properties(settings.to_properties(changed_only=True)) == settings


def test_to_properties_of_changes_only() -> None:
    assert StoreSettings().to_properties(changed_only=True) == {}
    changed = StoreSettings(segment_bytes=4096).to_properties(changed_only=True)
    assert changed == {"mappedFileSizeCommitLog": "4096"}


@given(
    segment_bytes=st.integers(1024, (1 << 31) - 1),
    queue_file_bytes=st.integers(1, 1 << 30),
    flush=st.sampled_from(FlushDisk),
    index=st.booleans(),
    fetch_messages_max_disk=st.integers(1, 10_000),
)
def test_any_settings_survive_the_round_trip(**values: Any) -> None:
    settings = StoreSettings(**values)
    assert StoreSettings.from_properties(settings.to_properties()) == settings


# --- unknown, foreign and idle keys ------------------------------------------------------------------


def test_one_warning_for_everything_unheard() -> None:
    with pytest.warns(SettingsWarning) as caught:
        StoreSettings.from_properties(
            {
                "mapedFileSizeCommitLog": "5",
                "zzzz": "1",
                "namesrvAddr": "a:9876",
                "dLegerGroup": "g",
                "listenPort": "1",
            }
        )
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert str(caught[0].message) == (
        "unknown settings: mapedFileSizeCommitLog (did you mean mappedFileSizeCommitLog?), zzzz; "
        "known, but not honoured by the store: namesrvAddr; "
        "accepted without effect: dLegerGroup (DLedger keeps another kind of commit log)"
    )


def test_a_python_name_in_a_file_leads_to_rocketmqs_name() -> None:
    with pytest.warns(SettingsWarning, match=r"segment_bytes \(did you mean mappedFileSizeCommitLog\?\)"):
        StoreSettings.from_properties({"segment_bytes": "65536"})


def test_a_setting_without_effect_is_silent_at_its_default() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        StoreSettings.from_properties(REFERENCE_DEFAULTS)


# --- files -------------------------------------------------------------------------------------------


def write(directory: Path, text: str | bytes) -> Path:
    path = directory / "broker.conf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file(tmp_path: Path) -> None:
    text = "# a broker\nmappedFileSizeCommitLog=65536\nflushDiskType: SYNC_FLUSH\n"
    text += "messageDelayLevel=1s \\\n  5s\n"
    settings = StoreSettings.from_file(write(tmp_path, text))
    assert settings == StoreSettings(segment_bytes=65536, flush=FlushDisk.SYNC, delay_levels="1s 5s")


def test_the_last_of_equal_keys_wins(tmp_path: Path) -> None:
    path = write(tmp_path, "maxMessageSize=1\nmaxMessageSize=2\n")
    assert StoreSettings.from_file(path).message_bytes_max == 2


def test_a_bad_value_names_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path, "\n# x\nmaxMessageSize=4M\n")
    with pytest.raises(SettingsError) as caught:
        StoreSettings.from_file(path)
    error = caught.value
    assert (error.file, error.line, error.key, error.value) == (str(path), 3, "maxMessageSize", "4M")
    assert str(error).startswith(f"{path}:3: maxMessageSize = '4M': a whole number (bytes) from 1 to")


def test_an_unknown_key_names_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path, "\nflushDiscType=SYNC_FLUSH\n")
    with pytest.warns(SettingsWarning) as caught:
        StoreSettings.from_file(path)
    expected = f"{path}: unknown settings: flushDiscType (line 2, did you mean flushDiskType?)"
    assert str(caught[0].message) == expected


def test_a_broken_escape_names_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path, "brokerId=0\nstorePathRootDir=\\u00\n")
    with pytest.raises(SettingsError) as caught:
        StoreSettings.from_file(path)
    assert (caught.value.file, caught.value.line) == (str(path), 2)


def test_a_missing_file_is_a_settings_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read") as caught:
        StoreSettings.from_file(tmp_path / "none.conf")
    assert caught.value.file == str(tmp_path / "none.conf")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = write(tmp_path, "storePathRootDir=/données\n".encode(encoding))
    assert StoreSettings.from_file(path).root == Path("/données")


# --- environment and precedence ----------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["EMBERMQ_flushDiskType", "EMBERMQ_FLUSHDISKTYPE", "EMBERMQ_FLUSH_DISK_TYPE"])
def test_environment_names(variable: str) -> None:
    assert StoreSettings.from_environment({variable: "SYNC_FLUSH"}).flush is FlushDisk.SYNC


def test_the_processes_own_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBERMQ_MAX_MESSAGE_SIZE", "77")
    assert StoreSettings.from_environment().message_bytes_max == 77
    assert StoreSettings().message_bytes_max == 4 << 20


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(SettingsError) as caught:
        StoreSettings.from_environment({"EMBERMQ_MAX_MESSAGE_SIZE": "x"})
    assert caught.value.key == "EMBERMQ_MAX_MESSAGE_SIZE"


def test_a_misspelt_variable_is_warned_about_and_a_foreign_one_is_not() -> None:
    with pytest.warns(SettingsWarning, match=r"DISK_TIPE \(did you mean EMBERMQ_flushDiskType\?\)"):
        StoreSettings.from_environment({"EMBERMQ_FLUSH_DISK_TIPE": "SYNC_FLUSH"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        StoreSettings.from_environment({"EMBERMQ_COLOUR": "red", "PATH": "/bin"})


def test_precedence(tmp_path: Path) -> None:
    path = write(tmp_path, "maxMessageSize=1\nflushIntervalCommitLog=1\nflushCommitLogLeastPages=1\n")
    environment = {"EMBERMQ_flushIntervalCommitLog": "2", "EMBERMQ_flushCommitLogLeastPages": "2"}
    settings = StoreSettings.from_file(path, environment=environment, flush_pages_min=3)
    assert settings.sync_flush_timeout_ms == 5000
    assert settings.message_bytes_max == 1
    assert settings.flush_interval_ms == 2
    assert settings.flush_pages_min == 3
