"""The examples of docs/spark-wire.md run: every python block, in order, against a broker on loopback."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from embermq import Message
from tests.support.clusters import cluster_on_thread
from tests.support.lent_session import lend
from tests.support.wire_topics import create_topic

PAGE = Path(__file__).parents[2] / "docs" / "spark-wire.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow(seconds=10)
def test_examples_run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lend(spark, monkeypatch)
    text = PAGE.read_text(encoding="utf-8")
    blocks = list(_BLOCK.finditer(text))
    assert blocks
    with cluster_on_thread(tmp_path / "brokers") as cluster:
        create_topic([cluster.broker.address], cluster.name_server, "orders")
        tags = ("created", "paid", "sent")
        cluster.broker.store.append_many(
            [Message("orders", b"%d" % n, tags=tags[n % 3], keys=[f"o-{n}"], queue_id=n % 4) for n in range(300)]
        )
        cluster.broker.store.wait_for_dispatch()
        monkeypatch.chdir(tmp_path)
        names: dict[str, Any] = {"__name__": "examples"}
        for block in blocks:
            code = block[1].replace("127.0.0.1:9876", cluster.name_server)
            for name in ("archive", "checkpoint"):  # Spark does not follow a change of the working directory.
                code = code.replace(f'"{name}"', repr(str(tmp_path / name)))
            exec(compile("\n" * text.count("\n", 0, block.start(1)) + code, str(PAGE), "exec"), names)
