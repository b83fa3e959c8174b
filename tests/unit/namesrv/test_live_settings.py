"""Settings of a name server: from a file, changed by request by a list of names, kept over a restart."""

import errno
import warnings
from pathlib import Path
from typing import Any

import pytest

from embermq.errors import SettingsError, SettingsWarning
from embermq.namesrv.live_settings import CHANGEABLE, ChangeRefused, LiveSettings, properties_text
from embermq.settings import NamesrvSettings
from embermq.settings.java_properties import parse_properties
from embermq.settings.namesrv_settings import ALWAYS_BLACK_LISTED, NAMES
from embermq.testing import FaultyFiles, LossyFiles

HOME = Path("/home/namesrv")
SETTINGS = NamesrvSettings(kv_config_path=HOME / "kvConfig.json", config_store_path=HOME / "namesrv.properties")


@pytest.fixture
def disk() -> LossyFiles:
    disk = LossyFiles()
    disk.put(Path("/home"), None)
    return disk


def opened(files: Any, settings: NamesrvSettings = SETTINGS) -> LiveSettings:
    live = LiveSettings(files, settings)
    live.load()
    return live


# -- from a file -------------------------------------------------------------------------------------------------


def test_a_file_of_rocketmq(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=9999\nkvConfigPath=/data/kv.json\norderMessageEnable=true\nserverWorkerThreads=8\n")
    with pytest.warns(SettingsWarning, match=r"namesrv\.conf: known, but without effect here: serverWorkerThreads$"):
        settings = NamesrvSettings.from_file(file)
    assert (settings.listen_port, settings.kv_config_path) == (9999, Path("/data/kv.json"))
    assert settings.order_messages


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("listenprt=1", r"namesrv\.conf:1: listenprt = '1': there is no such setting; did you mean listenPort\?"),
        ("xyzzy=1", r"namesrv\.conf:1: xyzzy = '1': there is no such setting$"),
        ("listenPort=65536", "a whole number from 0 to 65535 is expected"),
        ("listenPort=high", "a whole number from 0 to 65535 is expected"),
        ("orderMessageEnable=yes", "true or false is expected"),
        ("emberListenAddress=localhost", "not a host name"),
        ("a=\\u12", "four hex digits"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text(line + "\n")
    with pytest.raises(SettingsError, match=message):
        NamesrvSettings.from_file(file)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="missing: cannot be read: No such file or directory"):
        NamesrvSettings.from_file(tmp_path / "missing")


def test_a_file_in_latin_1_is_read_as_java_does(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_bytes("kvConfigPath=/größe\n".encode("latin-1"))
    assert NamesrvSettings.from_file(file).kv_config_path == Path("/größe")


def test_properties_are_read_back() -> None:
    settings = NamesrvSettings(listen_port=1, order_messages=True, kv_config_path=Path("/a b\\c"))
    text = properties_text(settings.to_properties())
    entries = {entry.key: entry.value for entry in parse_properties(text)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert NamesrvSettings.from_properties(entries) == settings


def test_values_that_begin_with_white_space_are_kept() -> None:
    entries = parse_properties(properties_text({"a": "  x\ny\t", "b": ""}))
    assert [(entry.key, entry.value) for entry in entries] == [("a", "  x\ny\t"), ("b", "")]


# -- changed by request ------------------------------------------------------------------------------------------


def test_a_change_is_made_and_kept_over_a_restart(disk: LossyFiles) -> None:
    live = opened(disk)
    assert live.change(b"orderMessageEnable=true\nemberMaxTopics=7\n") == ["orderMessageEnable", "emberMaxTopics"]
    assert (live.current.order_messages, live.current.topics_max) == (True, 7)
    assert "orderMessageEnable=true\n" in live.text()
    live.change(b"emberMaxTopics=8")
    assert disk.read_all(SETTINGS.config_store_path) == b"orderMessageEnable=true\nemberMaxTopics=8\n"
    again = opened(disk.crash())
    assert (again.current.order_messages, again.current.topics_max) == (True, 8)
    again.change(b"emberMaxBrokers=5")
    assert opened(disk).current.topics_max == 8


def test_an_empty_change_writes_nothing(disk: LossyFiles) -> None:
    assert opened(disk).change(b"") == []
    assert not disk.exists(HOME)


@pytest.mark.parametrize("key", sorted({*NAMES.attributes, *ALWAYS_BLACK_LISTED} - CHANGEABLE))
def test_whatever_is_not_on_the_list_is_refused(disk: LossyFiles, key: str) -> None:
    live = opened(disk)
    with pytest.raises(ChangeRefused, match=key):
        live.change(f"orderMessageEnable=true\n{key}=/tmp/x\n".encode())
    assert live.current == SETTINGS, "all or none"
    assert not disk.exists(HOME)


def test_no_path_address_or_black_list_can_be_changed() -> None:
    for key in CHANGEABLE:
        assert isinstance(getattr(SETTINGS, NAMES.attributes[key]), int), key


def test_a_black_list_can_be_longer(disk: LossyFiles) -> None:
    live = opened(disk, SETTINGS.replace(black_list="orderMessageEnable"))
    for key in ("orderMessageEnable", "kvConfigPath"):
        with pytest.raises(ChangeRefused, match=f"{key} is black-listed"):
            live.change(f"{key}=true".encode())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"orderMesageEnable=true", "did you mean orderMessageEnable"),
        (b"orderMessageEnable=perhaps", "true or false"),
        (b"emberMaxTopics=0", "from 1 to"),
        (b"\xff\xfe", "no UTF-8"),
        (b"a=\\u1", "four hex digits"),
    ],
)
def test_a_change_that_makes_no_sense(disk: LossyFiles, body: bytes, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        opened(disk).change(body)
    assert not isinstance(caught.value, ChangeRefused)


def test_a_setting_of_rocketmq_without_effect_here_is_refused(disk: LossyFiles) -> None:
    with pytest.raises(ChangeRefused, match="serverWorkerThreads has no effect"):
        opened(disk).change(b"serverWorkerThreads=4")


def test_a_change_that_cannot_be_written_is_not_made(disk: LossyFiles) -> None:
    files = FaultyFiles(disk)
    live = opened(files)
    files.fail("sync", error=errno.EIO)
    with pytest.raises(SettingsError, match=r"nothing was changed: cannot be written: Input/output error"):
        live.change(b"orderMessageEnable=true")
    assert live.current == SETTINGS


@pytest.mark.parametrize("content", [b"orderMessageEnable=maybe", b"kvConfigPath=/etc/passwd", b"\xff", b"x=\\u"])
def test_a_file_of_changes_that_cannot_be_used_is_ignored(disk: LossyFiles, content: bytes) -> None:
    disk.put(HOME, None)
    disk.put(SETTINGS.config_store_path, content)
    assert opened(disk).current == SETTINGS
