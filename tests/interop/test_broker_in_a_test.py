"""`embermq.testing.broker()` with Java's clients: another process sends to the broker of a test and consumes from it,
and the broker is killed and restarted in between."""

from pathlib import Path

import pytest

from embermq.model.message import StoredMessage
from embermq.testing import broker
from tests.clients.outcomes import expected
from tests.interop.programs import CLIENTS
from tests.interop.reference import ReferenceMissing
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("name", ["java4-binary", "java5"])
def test_java_sends_and_consumes_and_a_kill_loses_nothing(name: str, tmp_path: Path) -> None:
    try:
        client = CLIENTS[name]()
    except ReferenceMissing as why:
        pytest.skip(str(why))
    wanted = expected(client, of_embermq=True)
    topic, group = f"{name}-produced", f"{name}-concurrent"
    with broker(fast_port=True) as b:
        said = client.run(b.name_server, tmp_path / "sending", ["produce"])
        wait_until(lambda: len(b.sent(topic)) == 40)  # One-way sends are not answered.
        b.kill_and_restart()
        assert texts(b.sent(topic)) == wanted["concurrent"]["bodies"]
        said |= client.run(b.name_server, tmp_path / "consuming", ["concurrent,tags,sendMore,resume"])
        assert said == {step: wanted[step] for step in ("produce", "concurrent", "tags", "sendMore", "resume")}
        assert texts(b.sent(topic)) == sorted([*wanted["concurrent"]["bodies"], *wanted["resume"]["bodies"]])
        # The last commit of a client is a one-way request as well.
        wait_until(lambda: texts(b.committed(group)) == texts(b.sent(topic)))


def texts(messages: list[StoredMessage]) -> list[str]:
    return sorted(message.body.decode() for message in messages)
