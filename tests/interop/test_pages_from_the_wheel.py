"""Examples of documents and the programs of examples/ run with the wheel and exactly the extra that their page names.

The ordinary tests run the same examples with everything that development installs; a package that only development
has would not be missed there.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.bare_environment import BareEnvironment, bare_environment
from tests.interop.reference import ROOT, ReferenceMissing
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.interop

BASE, SPARK = "", "spark"
SECONDS_MAX = 900  # on a busy machine, kernels to compile included
NAME_SERVER = "127.0.0.1:9876"  # as the pages write it
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """A page or program, and what its reader has done before and does after it."""

    extra: str
    before: str = ""
    after: str = ""
    with_broker: bool = False


_ORDERS_SENT = f"""
from embermq.client import Message, Producer
with Producer(name_server="{NAME_SERVER}", group="examples") as producer:
    for n in range(300):
        producer.send(Message("orders", b"%d" % n, tags=("created", "paid", "sent")[n % 3], keys=[f"o-{{n}}"]))
"""
_ORDERS_STORED = """
import embermq.spark
from embermq import Message, MessageStore
from embermq.spark import pipeline
def store_orders(path):
    with MessageStore.open(path) as store:
        store.append_many(
            Message("orders", b'{"id": "%d", "amount": "1.50"}' % n, keys=[f"o-{n}"], properties={"price": str(n)})
            for n in range(100)
        )
store_orders("/data/broker-a")
store_orders("/data/broker-a/store")
spark = embermq.spark.session()
"""
_REPLY = f"""
import time
name_server = "{NAME_SERVER}"
with Producer(name_server=name_server, group="first") as producer:
    producer.send(Message("questions", b"makes the topic"))
consumer, answering = serve(name_server)
while sum(queue.topic == "questions" for queue in consumer.queues) < 4:
    time.sleep(0.05)
assert ask(name_server) == b"HELLO"
consumer.close()
answering.close()
"""
_SETTINGS = """
import os
from pathlib import Path
from embermq import FlushDisk, StoreSettings
Path("broker.conf").write_text("flushDiskType=SYNC_FLUSH")
"""
EXAMPLES = {
    "README.md": Example(BASE),
    "README.zh-CN.md": Example(BASE),
    "docs/admin.md": Example(BASE, f'name_server = "{NAME_SERVER}"', with_broker=True),
    "docs/api.md": Example(BASE),
    "docs/client.md": Example(BASE, with_broker=True),
    "docs/client-consumers.md": Example(BASE, _ORDERS_SENT, with_broker=True),
    "docs/delays.md": Example(BASE),
    "docs/filters.md": Example(SPARK, f'{_ORDERS_STORED}store = MessageStore.open("/data/broker-a")', "store.close()"),
    "docs/pipeline.md": Example(SPARK, _ORDERS_STORED),
    "docs/request-reply.md": Example(BASE, after=_REPLY, with_broker=True),
    "docs/settings.md": Example(BASE, _SETTINGS),
    "docs/spark.md": Example(SPARK),
    "docs/spark-wire.md": Example(SPARK, _ORDERS_SENT, with_broker=True),
    "examples/batch.py": Example(SPARK),
    "examples/stream.py": Example(SPARK),
    "examples/custom_sink.py": Example(SPARK),
    "examples/quickstart.ipynb": Example(SPARK),
}
# Its examples are tests, which tests/unit/testing/test_page.py runs; no extra brings pytest.
ELSEWHERE = {"docs/testing-your-code.md"}


@pytest.fixture(scope="module", params=[pytest.param(BASE, id="base"), pytest.param(SPARK, id="spark")])
def environment(request: pytest.FixtureRequest) -> Iterator[tuple[str, BareEnvironment]]:
    try:
        with bare_environment(request.param) as made:
            yield request.param, made
    except ReferenceMissing as why:
        pytest.skip(str(why))


def test_examples_run_with_the_extra_of_their_page(environment: tuple[str, BareEnvironment], directory: Path) -> None:
    extra, bare = environment
    failed = {
        source: said
        for source, example in EXAMPLES.items()
        if example.extra == extra and (said := _failure(bare, source, directory / Path(source).name))
    }
    assert not failed, "\n\n".join(f"{source}:\n{said}" for source, said in failed.items())


def test_every_page_with_examples_is_listed() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    with_examples = {str(page.relative_to(ROOT)) for page in pages if _BLOCK.search(page.read_text(encoding="utf-8"))}
    assert with_examples == {source for source in EXAMPLES if source.endswith(".md")} | ELSEWHERE


def _failure(bare: BareEnvironment, source: str, place: Path) -> str:
    """What the program printed if it failed, else nothing. It runs in an empty directory."""
    example, work = EXAMPLES[source], place / "work"
    (work / "data").mkdir(parents=True)
    with ExitStack() as started:
        name_server = NAME_SERVER
        if example.with_broker:
            (place / "broker").mkdir()
            broker = started.enter_context(BrokerProcess(place / "broker", "--set", "brokerName=broker-a"))
            name_server = broker.name_server
        files = {"before.py": example.before, "program.py": _program(source, example)}
        for name, text in files.items():
            here = text.replace(NAME_SERVER, name_server).replace('"/data/', f'"{work}/data/')
            (place / name).write_text(here, encoding="utf-8")
        ran = subprocess.run(
            [bare.python, str(place / "program.py")],
            cwd=work,
            env=bare.variables,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    return "" if ran.returncode == 0 else (ran.stdout + ran.stderr)[-4000:] or f"exit code {ran.returncode}"


def _program(source: str, example: Example) -> str:
    """The python of a page, in order and on its lines, of a notebook, or of a program."""
    text = (ROOT / source).read_text(encoding="utf-8")
    if source.endswith(".md"):
        # A page begins with its title: there is room for a line.
        lines = ["from before import *"]
        for block in _BLOCK.finditer(text):
            lines += [""] * (text.count("\n", 0, block.start(1)) - len(lines)) + block[1].splitlines()
        assert len(lines) > 1, f"{source} has no example"
        # A consumer that waits for a signal would never end.
        return "\n".join([*lines, example.after]).replace("consumer.wait()", "__import__('time').sleep(1)")
    if source.endswith(".ipynb"):
        cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        assert cells, f"{source} has no code"
        return "\n".join("".join(cell["source"]) for cell in cells)
    return text
