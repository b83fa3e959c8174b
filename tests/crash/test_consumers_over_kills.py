"""A broker process is killed under running orderly consumers and started again on its ports: every acknowledged message
is consumed, in the order of its queue, and no queue has two owners.

A message whose answer was lost may be stored or not; it is never sent again under the same number.
"""

from pathlib import Path

import pytest

from embermq.client import Message, Producer
from tests.crash.orderly_traffic import TOPIC, consumer, sending
from tests.support.broker_process import BrokerProcess
from tests.support.histories import History
from tests.support.waiting import wait_until

PATIENCE_SECONDS = 300.0
PER_ROUND = 60
KILLS = 3


@pytest.mark.long
def test_orderly_consumers_go_on_after_kills(tmp_path: Path) -> None:
    history = History()

    def consumes_more() -> None:
        more = len(history.consumed()) + PER_ROUND
        wait_until(lambda: len(history.consumed()) >= more, seconds=PATIENCE_SECONDS)

    broker = BrokerProcess(tmp_path)
    try:
        with Producer(broker.name_server, "first", send_timeout=60.0) as producer:
            result = producer.send(Message(TOPIC, b"first"))  # The topic is there when consumers look for it.
            history.sent("first", result.queue, result.queue_offset)
        with (
            consumer(broker.name_server, history, "one"),
            consumer(broker.name_server, history, "two"),
        ):
            with sending(broker.name_server, history):
                for _ in range(KILLS):
                    consumes_more()
                    broker.kill()
                    broker = BrokerProcess(tmp_path, listen=broker.address, name_server=broker.name_server)
                consumes_more()
            wait_until(lambda: not history.unconsumed(), seconds=PATIENCE_SECONDS)
        history.check()
        assert len(history.sends) > KILLS * PER_ROUND
    finally:
        broker.kill()
