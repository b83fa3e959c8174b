"""The Java and Go programs of docs/clients.md; tests/clients has the others."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.page import check_prints, program
from tests.interop.programs import GO, JAVA
from tests.interop.reference import ReferenceMissing, class_path, java_version, jvm_options
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.interop


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as running:
        yield running


@pytest.mark.parametrize("version", ["v4", "v5"])
def test_java(version: str, broker: BrokerProcess, tmp_path: Path) -> None:
    try:
        if java_version() < 11:
            pytest.skip("a program of one file is run by Java 11 or later")
        classes = class_path(JAVA / version / "pom.xml", (JAVA, JAVA / version))
    except ReferenceMissing as why:
        pytest.skip(str(why))
    (tmp_path / "Orders.java").write_text(program("java", broker.name_server))
    options = ["-Xmx256m", "-Duser.home=.", "-Drocketmq.client.logRoot=logs", *jvm_options()]
    check_prints("hello from Java", ["java", *options, "-cp", classes, "Orders.java"], tmp_path)


def test_go(broker: BrokerProcess, tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not on the PATH")
    project = tmp_path / "orders"
    project.mkdir()
    for name in ("go.mod", "go.sum"):
        shutil.copy(GO / name, project)
    (project / "main.go").write_text(program("go", broker.name_server))
    home = {"HOME": str(Path.home())}  # Go keeps what it fetched and built there.
    check_prints("hello from Go", ["go", "run", "-mod=readonly", "."], project, home)
