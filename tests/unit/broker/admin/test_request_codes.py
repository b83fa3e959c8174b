"""Every code that a RocketMQ 4.9 broker answers has a row here, or is refused by name."""

import asyncio
from pathlib import Path

from embermq.broker.admin.refused import REFUSED
from embermq.remoting import RequestCode, ResponseCode
from tests.support.brokers import RunningBroker, play, running

# Asked of a name server.
NAME_SERVER = {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327}
# Sent by a broker to its clients.
TO_CLIENTS = {39, 40, 220, 221, 326}
# Only asked for by clients that an administrator switched to another kind of rebalancing: 3 keeps them on their own.
NOT_SUPPORTED = {RequestCode.QUERY_ASSIGNMENT}


def test_every_code_of_a_broker_has_a_row(tmp_path: Path) -> None:
    async def codes() -> set[int]:
        async with running(tmp_path) as broker:
            return {row.code for row in broker.broker.table}

    wanted = {int(code) for code in RequestCode} - NAME_SERVER - TO_CLIENTS - NOT_SUPPORTED
    assert asyncio.run(codes()) == wanted


def test_what_is_refused_is_refused_by_name(tmp_path: Path) -> None:
    async def scenario(broker: RunningBroker) -> None:
        for code, (answer_code, why) in REFUSED.items():
            answer = await broker.call(code, {"msgId": "x", "accessKey": "k", "secretKey": "s"})
            assert answer.code == answer_code != 0
            assert answer.remark == f"{RequestCode(code).name}: {why}"
            row = broker.broker.table.find(code)
            assert row is not None
            assert row.note.startswith("refused")
        for code in (400, 13, 27, 99_999 % 32_768):
            assert (await broker.call(code)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        acl = await broker.call(52)
        assert acl.code == 0
        assert acl.ext is not None
        assert acl.ext == {
            "version": '{"counter":0,"timestamp":0}',
            "allAclFileVersion": "{}",
            "brokerName": "b",
            "brokerAddr": broker.broker.address,
            "clusterName": "DefaultCluster",
        }

    play(scenario, tmp_path)
