"""Every public name is there, is the same object as at home, and costs nothing until it is used."""

import subprocess
import sys
from pathlib import Path

import pytest

import embermq


@pytest.mark.parametrize("name", sorted(embermq.__all__))
def test_every_public_name_can_be_imported(name: str) -> None:
    value = getattr(embermq, name)
    assert name in dir(embermq)
    if name != "errors":
        assert value.__name__ == name
        assert value.__module__.startswith("embermq.")


def test_lazy_names_and_listed_names_agree() -> None:
    assert {*embermq._HOMES, "errors"} == set(embermq.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Consumer'"):
        _ = embermq.Consumer


def test_importing_the_package_loads_neither_numpy_nor_numba() -> None:
    code = "import sys, embermq; sys.exit(any(name in sys.modules for name in ('numpy', 'numba', 'rich')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_a_small_store_never_loads_numba(tmp_path: Path) -> None:
    code = (
        "import sys, embermq as e\n"
        "with e.MessageStore.open(sys.argv[1], e.StoreSettings(disk_full_percent=100)) as s:\n"
        "    s.append_many([e.Message('t', b'x', keys=['k'])] * 100)\n"
        "    assert len(s.find('t', 'k')) == 100\n"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], check=False).returncode == 0
