"""The examples of docs/client.md and docs/request-reply.md run, against a broker of ours."""

import re
from pathlib import Path
from typing import Any

import pytest

from embermq.client import Message, Producer
from tests.support.clusters import cluster_on_thread
from tests.support.waiting import wait_until

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = DOCS / "client.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow(seconds=3)
def test_examples_run(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "examples"}
    with cluster_on_thread(tmp_path) as cluster:
        for block in _BLOCK.finditer(text):
            line = text.count("\n", 0, block.start(1))
            code = block[1].replace("127.0.0.1:9876", cluster.name_server)
            exec(compile("\n" * line + code, str(PAGE), "exec"), names)
        store = cluster.broker.store
        assert sum(store.max_offset("orders", queue_id) for queue_id in range(4)) > 1200


def test_every_option_is_in_the_table() -> None:
    from embermq.client.produce.settings import ProducerOptions

    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in ProducerOptions.__annotations__ if f"`{name}`" not in text] == []


@pytest.mark.slow(seconds=3)
def test_the_page_of_requests(tmp_path: Path) -> None:
    (example,) = _BLOCK.findall((DOCS / "request-reply.md").read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    exec(example.replace("timeout=10.0", "timeout=60.0"), names)
    with cluster_on_thread(tmp_path) as cluster:
        with Producer(cluster.name_server, "first") as producer:
            producer.send(Message("questions", b"makes the topic"))
        consumer, answering = names["serve"](cluster.name_server)
        try:
            wait_until(lambda: sum(queue.topic == "questions" for queue in consumer.queues) == 4)
            assert names["ask"](cluster.name_server) == b"HELLO"
        finally:
            consumer.close()
            answering.close()
