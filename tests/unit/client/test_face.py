"""The face is light: it loads no compiled kernels, and little else until a name is used."""

import subprocess
import sys

import pytest

import embermq.client
from embermq.client import __all__ as names

MEASURED = """
import sys, time
began = time.process_time()
{statement}
spent = time.process_time() - began
heavy = [name for name in ("numpy", "numba", "pyarrow", "rich", "lark", "embermq.store") if name in sys.modules]
print(spent, heavy)
"""


def imported(statement: str) -> tuple[float, str]:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED.format(statement=statement)], capture_output=True, text=True, check=True
    )
    spent, _, heavy = done.stdout.strip().partition(" ")
    return float(spent), heavy


@pytest.mark.slow(seconds=2)
def test_importing_the_face_is_cheap() -> None:
    spent, heavy = min(imported("import embermq.client") for _ in range(3))
    assert heavy == "[]"
    assert spent < 0.15


@pytest.mark.slow(seconds=2)
def test_no_name_of_the_face_loads_kernels() -> None:
    _spent, heavy = imported(f"from embermq.client import {', '.join(names)}")
    assert heavy == "[]"


@pytest.mark.parametrize("name", sorted(names))
def test_every_name_is_there(name: str) -> None:
    assert getattr(embermq.client, name).__name__ == name
    assert name in dir(embermq.client)


def test_homes_and_names_agree() -> None:
    assert sorted(embermq.client._HOMES) == sorted(names)
