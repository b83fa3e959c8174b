"""Files under deploy/: what they name is there, and the commands they run are accepted."""

import configparser
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from embermq.cli.app import run

ROOT = Path(__file__).resolve().parents[2]
CONTAINER, UNIT = ROOT / "deploy" / "Containerfile", ROOT / "deploy" / "embermq-broker.service"
PORTS = {"9876", "10909", "10911"}  # name server, fast port, main port


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile: name and arguments, continued lines joined."""
    text = re.sub(r"\\\n", " ", "\n".join(line for line in CONTAINER.read_text().splitlines() if line[:1] != "#"))
    pairs = (line.split(None, 1) for line in text.splitlines() if line.strip())
    return [(name, rest) for name, rest in pairs]


def arguments(name: str) -> list[str]:
    return [rest for found, rest in instructions() if found == name]


def test_the_image_begins_with_a_python_that_the_project_allows() -> None:
    assert instructions()[0][0] == "FROM"
    version = re.fullmatch(r"docker\.io/library/python:(\d+)\.(\d+)-slim", arguments("FROM")[0])
    assert version is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    least = re.search(r">=\s*(\d+)\.(\d+)", project["requires-python"])
    assert least is not None
    assert [int(part) for part in version.groups()] >= [int(part) for part in least.groups()]


def test_everything_that_the_build_needs_is_copied() -> None:
    copied = [source for rest in arguments("COPY") for source in rest.split()[:-1]]
    assert all((ROOT / source).exists() for source in copied), copied
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"pyproject.toml", "src", project["readme"], *project["license-files"]} <= set(copied)
    assert {rest.split()[-1].rstrip("/") for rest in arguments("COPY")} == {"/source", "/source/src"}
    assert "pip install --no-cache-dir /source " in arguments("RUN")[0]


def test_the_image_does_not_run_as_root_and_keeps_its_store_in_a_volume() -> None:
    [user], [volume] = arguments("USER"), arguments("VOLUME")
    assert re.search(rf"useradd --system --home-dir {volume} --create-home {user}\b", arguments("RUN")[0])
    command = json.loads(arguments("ENTRYPOINT")[0])
    assert command[command.index("--store") + 1].startswith(volume + "/")
    assert set(arguments("EXPOSE")[0].split()) == PORTS
    assert arguments("STOPSIGNAL") == ["SIGTERM"]
    names = [name for name, _rest in instructions()]
    assert names.index("RUN") < names.index("USER") < names.index("ENTRYPOINT")


def service() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNIT)
    return parser["Service"]


def test_the_unit_runs_the_broker_and_lets_it_stop() -> None:
    unit = service()
    command = shlex.split(unit["ExecStart"])
    assert command[0] == "/opt/embermq/bin/embermq"
    assert command[command.index("--store") + 1].startswith(f"/var/lib/{unit['StateDirectory']}/")
    assert (unit["Type"], unit["RestartPreventExitStatus"]) == ("notify", "2")


@pytest.mark.parametrize("where", ["container", "unit"])
def test_the_commands_are_accepted(where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`-p` shows the settings of a broker and starts none."""
    command = json.loads(arguments("ENTRYPOINT")[0]) if where == "container" else shlex.split(service()["ExecStart"])
    assert Path(command[0]).name == "embermq"
    if "-c" in command:
        conf = tmp_path / "broker.conf"
        conf.write_text("brokerClusterName=deployed\n")
        command[command.index("-c") + 1] = str(conf)
    assert run([*command[1:], "-p"]) == 0
    assert f"storePathRootDir={command[command.index('--store') + 1]}" in capsys.readouterr().out.splitlines()
