"""Durations and sizes of options."""

import click
import pytest

from embermq.cli.quantities import Duration, Size


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60), ("5m", 300), ("500ms", 0.5), ("1.5h", 5400), ("2", 2), ("10 min", 600)]
)
def test_durations(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "octets"),
    [("1048576", 1 << 20), ("128MiB", 128 << 20), ("64k", 65536), ("1GB", 1 << 30), ("0.5 m", 1 << 19)],
)
def test_sizes(text: str, octets: int) -> None:
    assert Size().convert(text, None, None) == octets


@pytest.mark.parametrize("text", ["", "soon", "-1", "5x", "1e3", "s"])
def test_what_is_neither(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no duration"):
        Duration().convert(text, None, None)
    with pytest.raises(click.BadParameter, match="is no size"):
        Size().convert(text, None, None)


def test_too_little() -> None:
    with pytest.raises(click.BadParameter, match="too short"):
        Duration(0.5).convert("499ms", None, None)
    with pytest.raises(click.BadParameter, match="too small"):
        Size(1 << 16).convert("1k", None, None)
