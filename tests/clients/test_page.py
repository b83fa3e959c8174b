"""The Python, C++ and Node programs of docs/clients.md; tests/interop has those in Java and Go."""

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients import programs
from tests.clients.outcomes import WANTED, write_tables
from tests.clients.page import PAGE, check_prints, languages, program
from tests.interop.reference import ReferenceMissing
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.slow(seconds=10), pytest.mark.extended]

COMPATIBILITY = PAGE.with_name("compatibility.md")

# What the headers of rocketmq-client-cpp declare of the functions in use: the wheel has the library without them.
HEADERS = {
    "CMessage.h": """
        typedef struct CMessage CMessage;
        extern "C" CMessage *CreateMessage(const char *topic);
        extern "C" int DestroyMessage(CMessage *);
        extern "C" int SetMessageTags(CMessage *, const char *);
        extern "C" int SetMessageKeys(CMessage *, const char *);
        extern "C" int SetMessageBody(CMessage *, const char *);
    """,
    "CMessageExt.h": """
        typedef struct CMessageExt CMessageExt;
        extern "C" const char *GetMessageBody(CMessageExt *);
    """,
    "CSendResult.h": """
        typedef struct { int sendStatus; char msgId[256]; long long offset; } CSendResult;
    """,
    "CProducer.h": """
        #include "CMessage.h"
        #include "CSendResult.h"
        typedef struct CProducer CProducer;
        extern "C" CProducer *CreateProducer(const char *group);
        extern "C" int SetProducerNameServerAddress(CProducer *, const char *);
        extern "C" int StartProducer(CProducer *);
        extern "C" int SendMessageSync(CProducer *, CMessage *, CSendResult *);
    """,
    "CPushConsumer.h": """
        #include "CMessageExt.h"
        enum { E_CONSUME_SUCCESS = 0, E_RECONSUME_LATER = 1 };
        typedef struct CPushConsumer CPushConsumer;
        extern "C" CPushConsumer *CreatePushConsumer(const char *group);
        extern "C" int SetPushConsumerNameServerAddress(CPushConsumer *, const char *);
        extern "C" int Subscribe(CPushConsumer *, const char *topic, const char *expression);
        extern "C" int RegisterMessageCallback(CPushConsumer *, int (*)(CPushConsumer *, CMessageExt *));
        extern "C" int StartPushConsumer(CPushConsumer *);
    """,
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as running:
        yield running


def test_every_program_of_the_page_is_run() -> None:
    assert sorted(languages()) == ["cpp", "go", "java", "js", "py"]


def library() -> Path:
    """The C++ client's shared library."""
    found = importlib.util.find_spec("rocketmq")
    if found is None or found.origin is None:
        pytest.skip("the C++ client is not installed: PyPI has `rocketmq` for Linux on x86-64 only")
    return Path(found.origin).with_name("librocketmq.so")


def test_python(broker: BrokerProcess, tmp_path: Path) -> None:
    library()
    (tmp_path / "orders.py").write_text(program("py", broker.name_server))
    check_prints("hello from Python", [sys.executable, "orders.py"], tmp_path)


def test_cpp(broker: BrokerProcess, tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler (c++) on the PATH")
    shared = library()
    (tmp_path / "rocketmq").mkdir()
    for name, text in HEADERS.items():
        (tmp_path / "rocketmq" / name).write_text(f"#pragma once\n{text}")
    (tmp_path / "orders.cpp").write_text(program("cpp", broker.name_server))
    command = [compiler, "-std=c++11", "-Wall", "-I.", "orders.cpp", str(shared), f"-Wl,-rpath,{shared.parent}"]
    # The library's own libraries are beside it, under names no linker knows.
    made = subprocess.run(
        [*command, "-Wl,--allow-shlib-undefined", "-o", "orders"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    check_prints("hello from C++", ["./orders"], tmp_path)


def test_node(tmp_path: Path) -> None:
    try:
        client = programs.node()
    except ReferenceMissing as why:
        pytest.skip(str(why))
    write_tables(tmp_path / "store")
    with BrokerProcess(tmp_path) as broker:
        (tmp_path / "orders.js").write_text(program("js", broker.name_server))
        check_prints("hello from Node", ["node", "orders.js"], tmp_path, client.environment)


def test_wanted_differences_are_on_the_page_of_compatibility() -> None:
    _, _, section = COMPATIBILITY.read_text(encoding="utf-8").partition("\n## Clients\n")
    rows = re.findall(r"^\| `(\w+)`, `(\w+)` \|", section.partition("\n## ")[0], re.MULTILINE)
    assert sorted(rows) == sorted(WANTED)
