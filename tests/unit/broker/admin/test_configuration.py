"""Settings by request: an allow-list, durable, and nothing through which a command or a file could be reached."""

from pathlib import Path

import pytest

from embermq.broker.admin.overrides import CHANGEABLE
from embermq.remoting import ResponseCode, parse_json
from tests.support.brokers import RunningBroker, play, send_fields


def test_what_an_administrator_changes_holds_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async def first(broker: RunningBroker) -> None:
        assert ((await broker.send("T")).ext or {})["TRACE_ON"] == "true"
        assert (await broker.call(25, None, b"traceOn=false\nbrokerPermission = 2\n")).code == 0
        assert ((await broker.send("T")).ext or {})["TRACE_ON"] == "false"
        assert (await broker.pull("T", 0)).code == ResponseCode.NO_PERMISSION
        assert (await broker.call(25, None, b"brokerPermission=6")).code == 0
        assert (await broker.pull("T", 0)).code == 0

    async def second(broker: RunningBroker) -> None:
        assert ((await broker.send("T")).ext or {})["TRACE_ON"] == "false"
        assert broker.broker.findings == []

    play(first, tmp_path)
    play(second, tmp_path)


def test_topics_are_not_made_any_more(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        assert (
            await broker.call(25, None, b"autoCreateTopicEnable=false\nautoCreateSubscriptionGroup=false")
        ).code == 0
        assert (await broker.send("T")).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await broker.pull("BenchmarkTest", 0)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST

    play(scenario, tmp_path)


def test_requests_that_change_nothing(tmp_path: Path) -> None:
    """CVE-2023-33246: through such a request a RocketMQ broker could be made to run a command, or to write a file."""
    cases: list[tuple[bytes, int, str]] = [
        (b"rocketmqHome=/tmp/x -c $@|sh . echo touch /tmp/pwned;", 16, "rocketmqHome"),
        (b"brokerConfigPath=/etc/cron.d/x", 16, "brokerConfigPath"),
        (b"configBlackList=", 16, "configBlackList"),
        (b"traceOn=false\nrocketmqHome=/tmp", 16, "rocketmqHome"),
        (b"regionId=x", 16, "regionId"),
        (b"filterServerNums=1", 16, "filterServerNums"),
        (b"messageStorePlugIn=os:system", 16, "messageStorePlugIn"),
        (b"storePathRootDir=/tmp/other", 16, "storePathRootDir"),
        (b"storePathCommitLog=/tmp/other", 16, "storePathCommitLog"),
        (b"namesrvAddr=10.0.0.1:9876", 16, "namesrvAddr"),
        (b"aclEnable=false", 16, "aclEnable"),
        (b"noSuchKey=1", 16, "noSuchKey"),
        (b"slaveReadEnable=true", 16, "slaveReadEnable"),
        (b"brokerPermission=many", 1, "brokerPermission"),
        (b"brokerPermission=8", 1, "brokerPermission"),
        (b"traceOn=perhaps", 1, "traceOn"),
        (b"traceOn=false\nbrokerPermission=99", 1, "brokerPermission"),
        (b"\xff\xfe", 1, "cannot be read"),
        (b"traceOn=\\u12", 1, "cannot be read"),
    ]

    async def scenario(broker: RunningBroker) -> None:
        before = broker.broker.settings
        for body, code, remark in cases:
            answer = await broker.call(25, None, body)
            assert (answer.code, remark in (answer.remark or "")) == (code, True), (body, answer)
        assert broker.broker.settings == before
        assert (await broker.call(25, None, b"")).code == 0
        assert not (broker.store.path / "config" / "emberBroker.json").exists()

    play(scenario, tmp_path, config_black_list="configBlackList;slaveReadEnable")


@pytest.mark.parametrize("key", sorted(CHANGEABLE))
def test_nothing_on_the_allow_list_names_a_path_or_a_program(key: str) -> None:
    for word in ("path", "dir", "home", "plugin", "class", "command", "addr", "file", "secret", "password", "key"):
        assert word not in key.lower()


def test_a_damaged_file_of_changes_never_keeps_a_broker_from_starting(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        assert broker.broker.settings.trace_on is False
        assert broker.broker.settings.broker_name == "b"
        assert broker.broker.settings.permission == 6
        (finding,) = broker.broker.findings
        assert "brokerName" in finding

    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    changes = '{"settings":{"traceOn":"false","brokerName":"other","brokerPermission":"many"}}'
    (config / "emberBroker.json").write_text(changes)
    play(scenario, tmp_path)


def test_all_settings_are_shown(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.call(25, None, b"traceOn=false")
        answer = await broker.call(26)
        lines = dict(line.split("=", 1) for line in answer.body.decode().splitlines())
        assert (lines["brokerName"], lines["traceOn"], lines["flushDiskType"]) == ("b", "false", "ASYNC_FLUSH")
        assert lines["mappedFileSizeCommitLog"] == str(4 << 20)
        version = parse_json((answer.ext or {})["version"].encode())
        assert version["counter"] == 1

    play(scenario, tmp_path)


def test_replies_are_kept_or_not(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        await broker.call(25, None, b"storeReplyMessageEnable=false")
        answer = await broker.call(325, send_fields("DefaultCluster_REPLY_TOPIC"), b"late")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "msgId" not in (answer.ext or {})
        assert broker.store.max_physical == 0

    play(scenario, tmp_path)
