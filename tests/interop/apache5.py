"""Apache RocketMQ 5.3.3 over its remoting port: one name server and one broker for all tests of a session.

It starts slowly, so tests share it, with topics and groups of their own. It asks for signatures, as the 4.9.7 of
python_client.py does; 5.x keeps its accounts in a store of their own instead of a file.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from embermq.client import Admin, Credentials
from tests.interop.java_broker import RELEASE_5, JavaProcess, broker_config, free_port, java_server
from tests.support.waiting import wait_until

ACCOUNT = Credentials("rocketmq2", "12345678")
_PROVIDERS = "org.apache.rocketmq.auth.authentication.provider"
_SIGNED: dict[str, object] = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_PROVIDERS}.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_PROVIDERS}.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": ACCOUNT.access_key, "password": ACCOUNT.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": ACCOUNT.access_key, "secretKey": ACCOUNT.secret_key}
    ),
}
# Ends of transactions are noted every 3 s only, and a transaction whose end is not noted is asked about again: that
# must not be as soon as with 4.9.7.
_TRANSACTIONS: dict[str, object] = {"transactionOpBatchInterval": 100, "transactionTimeOut": 6000}


class Apache5:
    """A name server and a broker that can be killed and started again."""

    def __init__(self, place: Path, settings: dict[str, object], stack: ExitStack) -> None:
        self._place, self._stack = place, stack
        names = free_port()
        self.name_server = f"127.0.0.1:{names}"
        self._config = broker_config(place, self.name_server) | _SIGNED | settings | _TRANSACTIONS
        self.address = f"127.0.0.1:{self._config['listenPort']}"
        stack.enter_context(
            java_server("namesrv.NamesrvStartup", place / "namesrv", {"listenPort": names}, release=RELEASE_5)
        )
        self._broker: JavaProcess
        self.start()

    def start(self) -> None:
        """Start the broker and wait until it is registered, which may be later than it says that it is up."""
        started = java_server("broker.BrokerStartup", self._place, self._config, release=RELEASE_5)
        self._broker = self._stack.enter_context(started)
        with Admin(self.name_server) as admin:
            wait_until(lambda: "TBW102" in admin.topics.names(), "the broker is registered", look_seconds=0.1)

    def kill(self) -> None:
        self._broker.kill()


@contextmanager
def apache5_started(place: Path, settings: dict[str, object]) -> Iterator[Apache5]:
    with ExitStack() as stack:
        yield Apache5(place, settings, stack)
