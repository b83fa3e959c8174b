"""TransactionMQProducer, Java 4.9 and 5: commit, rollback and questions, the same with Apache RocketMQ and EmberMQ."""

from pathlib import Path

import pytest

from tests.clients.outcomes import Said
from tests.interop import java_broker
from tests.interop.programs import transacting
from tests.interop.reference import ReferenceMissing
from tests.interop.test_clients import apache, embermq

pytestmark = pytest.mark.interop

# The broker asks soon; and not again before a busy producer has answered, which Apache's broker would deliver twice.
ASKING = {"transactionCheckInterval": "4000", "transactionTimeOut": "1000"}


@pytest.mark.parametrize("version", ["v4", "v5"])
def test_a_transactional_producer_cannot_tell(version: str, tmp_path: Path) -> None:
    try:
        java_broker.class_path()
        client = transacting(version)
    except ReferenceMissing as why:
        pytest.skip(str(why))
    came: list[Said] = []
    for start, folder in ((apache, "apache"), (embermq, "embermq")):
        with start(tmp_path / folder, ASKING) as name_server:
            came.append(client.run(name_server, tmp_path / client.name, ["transactions"])["transactions"])
    theirs, ours = came
    assert "problem" not in theirs, theirs
    assert "problem" not in ours, ours
    assert ours == theirs
    assert ours["seen"] == ["asked-commit 0", "asked-twice-commit 0", "commit 0"]
    assert ours["asked"] == ["asked-commit", "asked-rollback", "asked-twice-commit"]
    assert ours["askedTwice"] is True
    for body in ("asked-commit", "asked-twice-commit"):
        assert "TRANSACTION_CHECK_TIMES" in ours["properties"][body]
