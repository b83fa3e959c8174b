"""brokerRole=SYNC_MASTER on the command line: one line instead of an append, and no hindrance to the rest."""

from pathlib import Path

from embermq import MessageStore
from tests.unit.cli.store.conftest import SMALL, Command

SYNC_MASTER = ("--set", "brokerRole=SYNC_MASTER")


def test_the_command_says_it_in_one_line(command: Command, directory: Path) -> None:
    ran = command("append", directory, "orders", "3", *SYNC_MASTER)
    ran.assert_one_line(1, "brokerRole=SYNC_MASTER", "emberAllowUnreplicated=true")
    waived = command("append", directory, "orders", "3", *SYNC_MASTER, "--set", "emberAllowUnreplicated=true")
    assert waived.code == 0


def test_commands_that_delete_need_no_replica(command: Command, directory: Path) -> None:
    assert command("clean", directory, *SYNC_MASTER).code == 0
    assert command("drop", directory, "orders", *SYNC_MASTER).code == 0
    with MessageStore.open(directory, SMALL) as store:
        assert store.topics() == {}
