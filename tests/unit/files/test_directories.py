"""The mount a path lies on."""

import os
from pathlib import Path

from embermq.files import mount_of


def test_the_mount_is_at_or_above_the_path(tmp_path: Path) -> None:
    found = mount_of(tmp_path / "not" / "there" / "yet")
    assert os.path.ismount(found)
    assert tmp_path.resolve().is_relative_to(found)
    assert not any(os.path.ismount(above) for above in tmp_path.resolve().parents if above.is_relative_to(found / "x"))


def test_a_mount_is_its_own() -> None:
    assert mount_of(Path("/proc")) == Path("/proc")
    assert mount_of(Path("/proc/self/status")) == Path("/proc")
    assert mount_of(Path("/")) == Path("/")


def test_a_link_leads_to_the_mount_of_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc")
    assert mount_of(tmp_path / "link" / "self") == Path("/proc")
