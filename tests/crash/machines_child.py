"""The work of test_two_machines.py, in a network of its own.

python -m tests.crash.machines_child WORK PLACE FAULT...
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from embermq.client import Message, Producer
from tests.crash.orderly_traffic import TOPIC, consumer, sending
from tests.crash.replication_group import Placement, play
from tests.support.broker_process import BrokerProcess
from tests.support.histories import History
from tests.support.two_machines import HERE, THERE, TwoMachines
from tests.support.waiting import wait_until

# Connections without a sign of life are given up after this; "lost for long" lasts longer.
SILENCE_MS = 1500
PATIENCE_SECONDS = 300.0


def link_faults(machines: TwoMachines) -> dict[str, Callable[[float], None]]:
    def unplugged(seconds: float) -> None:
        machines.unplug()
        time.sleep(seconds)
        machines.plug_in()

    def lost(seconds: float) -> None:
        machines.lose_everything()
        time.sleep(seconds)
        machines.lose_nothing()

    return {"unplugged": unplugged, "lost": lost, "lost for long": lambda _seconds: lost(2 * SILENCE_MS / 1000)}


def replication(place: Path, faults: list[str]) -> None:
    """Master and producers here, the slave there."""
    with TwoMachines() as machines:
        placement = Placement(
            listen=f"{HERE}:10911",
            name_server=f"{HERE}:9876",
            ha_port=10912,
            ha_address=f"{HERE}:10912",
            slave_listen=f"{THERE}:10911",
            slave_within=machines.there,
            settings=(f"haHousekeepingInterval={SILENCE_MS}", "haSendHeartbeatInterval=300"),
            link_faults=link_faults(machines),
        )
        group = play(place, placement, faults, seconds=1.0)
    assert len(group.acknowledged) > 20, group.others
    if "lost for long" in faults:
        assert group.others, "no answer said that the slave is missing"


def clients(place: Path, faults: list[str]) -> None:
    """A producer and two orderly consumers here, the broker there."""
    history = History()

    def consumes_more() -> None:
        more = len(history.consumed()) + 20
        wait_until(lambda: len(history.consumed()) >= more, "more is consumed", seconds=PATIENCE_SECONDS)

    with TwoMachines() as machines:
        strike = link_faults(machines)
        address, name_server = f"{THERE}:10911", f"{THERE}:9876"
        broker = BrokerProcess(place, listen=address, name_server=name_server, within=machines.there)
        try:
            with Producer(name_server, "first", send_timeout=60.0) as producer:
                result = producer.send(Message(TOPIC, b"first"))
                history.sent("first", result.queue, result.queue_offset)
            with consumer(name_server, history, "one"), consumer(name_server, history, "two"):
                with sending(name_server, history):
                    for fault in faults:
                        consumes_more()
                        strike[fault](0.5)
                    consumes_more()
                wait_until(lambda: not history.unconsumed(), "all is consumed", seconds=PATIENCE_SECONDS)
        finally:
            broker.kill()
    history.check()


if __name__ == "__main__":
    work = {"replication": replication, "clients": clients}[sys.argv[1]]
    work(Path(sys.argv[2]), sys.argv[3:])
