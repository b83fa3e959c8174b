"""Traces that RocketMQ's own clients write about a message are found again, by `Admin` and by the command line."""

import json
from pathlib import Path

import pytest

from embermq.cli.app import run
from embermq.client.admin import Admin
from tests.interop.programs import CLIENTS
from tests.interop.reference import ReferenceMissing
from tests.interop.test_clients import embermq

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("name", ["java4-json", "go"])
def test_a_send_and_its_delivery_are_found(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        client = CLIENTS[name]()
    except ReferenceMissing as why:
        pytest.skip(str(why))
    with embermq(tmp_path) as name_server:
        client.run(name_server, tmp_path / "home", ["trace"])
        with Admin(name_server) as admin:
            topic = next(one for one in admin.topics.names() if one.endswith("traced") and "%" not in one)
            (queue,) = [one for one in admin.messages.queues(topic) if admin.messages.span(one)[1]]
            (sent,) = admin.messages.page(queue, 0).messages
            steps = admin.traces.of_message(sent.message.unique_key or "")
        assert [(step.what, step.status, step.msg_id) for step in steps] == [
            ("send", "success", sent.message.unique_key),
            ("consume", "success", sent.message.unique_key),
        ]
        assert (steps[0].topic, steps[0].body_length, steps[0].message_type) == (topic, 6, "normal")
        assert steps[0].offset_msg_id == sent.message.message_id
        assert steps[1].retry_times == 0
        capsys.readouterr()
        assert run(["message", "trace", sent.message.unique_key or "", "-n", name_server, "--output", "json"]) == 0
        assert [one["what"] for one in json.loads(capsys.readouterr().out)["steps"]] == ["send", "consume"]
