"""docs/crash-proof.md names tests: each of them is there, and no crash test is left out of the page."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "crash-proof.md"
_NAMED = re.compile(r"`((?:unit/(?:\w+/)+|spark/)?test_\w+\.py)::(test_\w+)`")
# About other things than crashes.
ELSEWHERE = {"test_locked.py", "test_spark_sink.py"}


def named() -> set[tuple[str, str]]:
    return set(_NAMED.findall(PAGE.read_text(encoding="utf-8")))


def home(name: str) -> Path:
    return ROOT / "tests" / (name if "/" in name else f"crash/{name}")


def test_every_test_on_the_page_exists() -> None:
    assert len(named()) > 40
    missing = [
        f"{name}::{test}"
        for name, test in sorted(named())
        if not home(name).exists() or f"def {test}(" not in home(name).read_text(encoding="utf-8")
    ]
    assert not missing


def test_every_name_of_a_test_on_the_page_has_its_file() -> None:
    """So that a name without one is not passed over."""
    page = PAGE.read_text(encoding="utf-8")
    assert sorted(re.findall(r"`[^`]*::(test_\w+)`", page)) == sorted(name for _, name in _NAMED.findall(page))


def test_every_file_of_crash_tests_is_on_the_page() -> None:
    files = {path.name for path in (ROOT / "tests" / "crash").glob("test_*.py")}
    assert files - ELSEWHERE - {name for name, _ in named()} == set()


def test_every_result_is_filled_in() -> None:
    assert not re.findall(r"@\w+@", PAGE.read_text(encoding="utf-8"))
