"""The project's own machinery: layers are held, locks are clean, generated pages are current."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tools import broker_page, namesrv_page, settings_page, spark_pages, transactions_page

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_settings_page_is_current() -> None:
    assert settings_page.PAGE.read_text(encoding="utf-8") == settings_page.render(), "run `make docs`"


def test_the_tables_of_the_spark_page_are_current() -> None:
    page = spark_pages.PAGE.read_text(encoding="utf-8")
    assert page == spark_pages.render(page), "run `make docs`"


def test_the_tables_of_the_name_server_page_are_current() -> None:
    page = namesrv_page.PAGE.read_text(encoding="utf-8")
    assert page == namesrv_page.render(page), "run `make docs`"


def test_the_transactions_page_is_current() -> None:
    page = transactions_page.PAGE.read_text(encoding="utf-8")
    assert page == transactions_page.render(page), "run `make docs`"


def test_the_table_of_the_broker_page_is_current() -> None:
    page = broker_page.PAGE.read_text(encoding="utf-8")
    assert page == broker_page.render(page), "run `make docs`"


def test_a_table_that_is_missing_from_the_spark_page_is_noticed() -> None:
    page = spark_pages.PAGE.read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="each of these tables once"):
        spark_pages.render(page.replace("<!-- table: columns -->", ""))


# --- locked dependencies -----------------------------------------------------------------------------


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_locked_line_has_hashes_and_no_address(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text, "a lock names no server"
    assert not re.search(r"[ (]/", text), "a lock names no directory of the machine it was made on"
    assert not re.search(r"^\s*--(?!hash)", text, re.MULTILINE), "a lock has no options but hashes"
    requirements = re.findall(r"^([a-z0-9][\w.-]*)==", text, re.MULTILINE)
    hashed = r"^[a-z0-9][\w.-]*==[^\n]*\\\n(?: +--hash=sha256:[0-9a-f]{64}[ \\]*\n)+"
    blocks = re.findall(hashed, text, re.MULTILINE)
    assert requirements
    assert len(blocks) == len(requirements)


def test_every_declared_dependency_is_locked() -> None:
    declared = project()["project"]
    extras = declared["optional-dependencies"].values()
    wanted = [*declared["dependencies"], *(one for extra in extras for one in extra)]
    locked = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements" / "dev.lock").read_text(), re.MULTILINE))
    names = {re.split(r"[<>=!~\[; ]", requirement)[0].lower() for requirement in wanted}
    assert names <= locked, "run `make lock`"


def test_the_build_backend_is_locked() -> None:
    backend = project()["build-system"]["requires"][0]
    assert backend in (ROOT / "requirements" / "build.in").read_text()
    assert re.search(r"^hatchling==", (ROOT / "requirements" / "dev.lock").read_text(), re.MULTILINE)


def test_every_dependency_is_explained() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    declared = project()["project"]
    extras = [name for extra in declared["optional-dependencies"].values() for name in extra]
    for requirement in declared["dependencies"] + extras + project()["build-system"]["requires"]:
        name = re.split(r"[<>=!~\[; ]", requirement)[0]
        assert f"| {name} |" in page, name


# --- the package -------------------------------------------------------------------------------------


def test_the_package_is_typed_and_installed_under_its_name() -> None:
    assert (ROOT / "src" / "embermq" / "py.typed").is_file()
    assert importlib.metadata.version("embermq") == project()["project"]["version"]
    commands = importlib.metadata.entry_points(group="console_scripts", name="embermq")
    assert [command.value for command in commands] == ["embermq.cli.app:main"]


def test_the_wheel_holds_the_package_and_what_spark_looks_for(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for package in ("embermq", "pyspark_rocketmq"):
        assert {f"{package}/__init__.py", f"{package}/py.typed"} <= names
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"embermq", "pyspark_rocketmq"}
    assert not [name for name in names if "__pycache__" in name]


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
@pytest.mark.slow
def test_without_the_extra_it_works_and_says_what_spark_needs(missing: str) -> None:
    """The package is imported with one part of the extra out of reach, in a process of its own."""
    code = f"""
import sys
sys.modules[{missing!r}] = None
import embermq, embermq.spark
from embermq.cli.app import run
assert embermq.MessageStore and run(["settings", "list", "--section", "log"]) == 0
assert run(["spark", "explain", "nowhere"]) == 1
try:
    embermq.spark.table
except ModuleNotFoundError as problem:
    print(problem)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wanted = f"{missing} is not installed: the Spark side of EmberMQ needs pip install 'embermq[spark]'"
    assert done.stderr == f"embermq: {wanted}\n"
    assert done.stdout.splitlines()[-1] == wanted


def test_the_fixtures_are_offered_to_pytest(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.has_plugin("embermq")


def test_settings_load_without_numba_and_numpy() -> None:
    code = "import embermq.settings, sys; sys.exit(sum(name in sys.modules for name in ('numba', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- layers ------------------------------------------------------------------------------------------


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    linter = str(Path(sys.executable).with_name("lint-imports"))
    command = [linter, "--no-cache", "--config", "pyproject.toml"]
    environment = {"PYTHONPATH": str(directory / "src"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


AGAINST_THE_LAYERS = [
    ("errors", "embermq.settings"),
    ("clock", "embermq.settings"),
    ("model/flags", "embermq.store"),
    ("model/flags", "embermq.testing"),
    ("model/flags", "numba"),
    ("model/flags", "pyspark"),
    ("store/engine", "pyarrow"),
    ("format/names", "os"),
    ("inspect/dump", "embermq.store.engine"),
    ("inspect/dump", "embermq.store.log.walk"),
    ("repair/verify/store_check", "embermq.inspect.snapshot"),
    ("cli/store/verify", "embermq.repair.verify.store_check"),
    ("spark/jobs/audit", "embermq.columns.operations"),
    ("cli/spark/audit", "embermq.spark.jobs.audit"),
    ("store/log/walk", "embermq.store.services"),
    ("cli/namesrv", "embermq.namesrv.route_table"),
]


@pytest.mark.slow(2)
def test_every_import_against_the_layers_is_caught(tmp_path: Path) -> None:
    """In a copy of the tree whose modules are empty, so that only the contracts count."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    package = tmp_path / "src" / "embermq"
    for path in (ROOT / "src").rglob("*.py"):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("")
    clean = lint_imports(tmp_path)
    assert clean.returncode == 0, clean.stdout
    for module, imported in AGAINST_THE_LAYERS:
        with (package / f"{module}.py").open("a") as file:
            file.write(f"import {imported}\n")
    broken = lint_imports(tmp_path)
    assert broken.returncode == 1
    for module, imported in AGAINST_THE_LAYERS:
        importer = f"embermq.{module}".replace("/", ".")
        assert re.search(rf"{re.escape(importer)} -> {re.escape(imported)} \(l\.\d+\)", broken.stdout), importer


# --- make --------------------------------------------------------------------------------------------


def test_help_lists_every_target() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = ("setup", "test", "check", "demo", "crash", "interop", "bench", "bench-peers", "docs", "lock")
    for target in (*targets, "clean"):
        assert re.search(rf"^  make {target} ", shown, re.MULTILINE), target


def test_setup_says_what_is_missing(tmp_path: Path) -> None:
    """On a machine whose only Python is too old, one clear message and nothing half made."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "requirements").mkdir()
    shutil.copy(ROOT / "requirements" / "dev.lock", tmp_path / "requirements")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("python3", "python3.13", "python3.12", "python3.11"):
        (tools / name).write_text("#!/bin/sh\nexit 1\n")
        (tools / name).chmod(0o755)
    environment = {"PATH": f"{tools}:/usr/bin:/bin"}
    result = subprocess.run(
        ["make", "setup"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode != 0
    assert "Python 3.11 or later" in result.stderr
    assert not (tmp_path / ".venv").exists()
