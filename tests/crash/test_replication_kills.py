"""A master and its slave: either is killed or paused, or they are cut off from each other (replication_group.py)."""

import random
import socket
import time
from pathlib import Path

import pytest

from tests.crash.replication_group import Group, Placement, play
from tests.support.cut_link import CutLink

FAULTS = ("kill slave", "kill master", "pause slave", "pause master", "cut", "stall", "kill both")


def ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


def play_here(place: Path, faults: list[str], seconds: float) -> Group:
    """Both on this machine, with a relay between them."""
    port, ha_port = ports()
    with CutLink(ha_port) as link:

        def stall(seconds: float) -> None:
            link.stall(True)
            time.sleep(seconds)
            link.stall(False)

        placement = Placement(
            listen=f"127.0.0.1:{port}",
            name_server="127.0.0.1:0",
            ha_port=ha_port,
            ha_address=f"127.0.0.1:{link.port}",
            link_faults={"cut": lambda _seconds: link.cut(), "stall": stall},
        )
        return play(place, placement, faults, seconds)


@pytest.mark.slow(seconds=25)
def test_nothing_acknowledged_is_missing_on_the_slave(tmp_path: Path) -> None:
    group = play_here(tmp_path, ["kill slave", "cut", "pause slave", "kill master"], seconds=1.0)
    assert len(group.acknowledged) > 50


@pytest.mark.long
def test_two_hundred_rounds(tmp_path: Path) -> None:
    rounds = 0
    for number in range(10):
        place = tmp_path / str(number)
        place.mkdir()
        faults = random.choices(FAULTS, k=20)
        group = play_here(place, faults, seconds=1.5)
        rounds += len(faults)
        assert len(group.acknowledged) > 100, faults
    assert rounds == 200
