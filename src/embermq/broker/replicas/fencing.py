"""The fence of a master: another master of its name with a higher epoch ends its work. On the loop.

Name servers say who else is master of this broker's name; that one is asked for its epoch. An old master that comes
back does not start; one that was cut off refuses sends as soon as it can ask again, at the latest with its next
registration. In between both may take messages: under SYNC_MASTER the old one has no slave, and says so to producers.
A broker that was fenced once stays so until it ends, whatever becomes of the other one: its log may differ.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from embermq.errors import MasterFenced, RemotingError
from embermq.remoting import Command, Connector, RequestCode, parse_json
from embermq.settings import BrokerRole, BrokerSettings
from embermq.store import MessageStore

log = logging.getLogger(__name__)

ASK_SECONDS = 3.0


class Rival(NamedTuple):
    """Another master, promoted later."""

    address: str
    epoch: int


class MasterFence:
    """Looks for a later master of the same name, and ends the appends of this one where there is one."""

    def __init__(
        self, store: MessageStore, settings: Callable[[], BrokerSettings], connector: Connector, epoch: int
    ) -> None:
        self._store, self._settings, self._connector, self._epoch = store, settings, connector, epoch
        self.rival: Rival | None = None  # The one that has ended the work here.

    async def check(self, own_address: str) -> None:
        """MasterFenced if this is a master, and another broker was made the master of its name later."""
        if self._store.role is BrokerRole.SLAVE:
            return
        settings = self._settings()
        names = (settings.name_servers, settings.broker_name)
        rival = self.rival or await find_rival(self._connector, *names, own_address, self._epoch)
        if rival is not None:
            raise MasterFenced(settings.broker_name, *rival)

    async def is_passed(self, own_address: str) -> bool:
        """The same of a broker that runs: False, and no message is taken any more."""
        try:
            await self.check(own_address)
        except MasterFenced as problem:
            if self.rival is None:
                log.error("event=fenced reason=%r", str(problem))
                self.rival = Rival(problem.address, problem.epoch)
                self._store.set_writable(False, str(problem))
            return False
        return True


async def find_rival(
    connector: Connector, name_servers: tuple[str, ...], broker_name: str, own_address: str, own_epoch: int
) -> Rival | None:
    """A master of this name with a higher epoch, if a name server knows one that answers."""
    for server in name_servers:
        for address in await _masters(connector, server, broker_name):
            if address != own_address and (epoch := await epoch_of(connector, address)) > own_epoch:
                return Rival(address, epoch)
    return None


async def _masters(connector: Connector, server: str, broker_name: str) -> list[str]:
    try:
        answer = await connector.call(server, Command(RequestCode.GET_BROKER_CLUSTER_INFO), ASK_SECONDS)
        ids = parse_json(answer.body)["brokerAddrTable"].get(broker_name, {}).get("brokerAddrs", {})
        return [str(address) for number, address in ids.items() if int(number) == 0]
    except (RemotingError, ValueError, LookupError, AttributeError):
        return []


async def epoch_of(connector: Connector, address: str) -> int:
    """The epoch of a broker; 0 of one that has none, -1 of one that does not answer."""
    try:
        answer = await connector.call(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), ASK_SECONDS)
        return int(parse_json(answer.body)["table"].get("emberEpoch", 0))
    except (RemotingError, ValueError, LookupError, AttributeError):
        return -1
