"""Replication of one broker: as a master its log goes out by the replication port, as a slave it comes in.

    master   ReplicationServer on haListenPort; answers under SYNC_MASTER wait for `replicas` (answers/)
    slave    Follower to haMasterAddress, or to the address that name servers say; tables every ten seconds

The loop's thread; the log itself moves on threads of embermq.replication.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable

from embermq.broker.replicas.fencing import MasterFence
from embermq.broker.replicas.tables import SlaveTables
from embermq.remoting import Connector
from embermq.replication import MasterFollower, Replicas, ReplicationServer, load_epoch
from embermq.settings import BrokerRole, BrokerSettings
from embermq.store import MessageStore

log = logging.getLogger(__name__)

TABLES_FIRST_SECONDS, TABLES_SECONDS = 3.0, 10.0


class Replication:
    """The part of a broker in its replicated group."""

    def __init__(
        self,
        store: MessageStore,
        replicas: Replicas,
        tables: SlaveTables,
        settings: Callable[[], BrokerSettings],
        connector: Connector,
    ) -> None:
        self._store, self.replicas, self._tables = store, replicas, tables
        self.epoch = load_epoch(store.path)
        self.fence = MasterFence(store, settings, connector, self.epoch.number)
        self._bound: socket.socket | None = None
        self._server: ReplicationServer | None = None
        self._follower: MasterFollower | None = None
        self._task: asyncio.Task[None] | None = None
        self._master: str | None = None  # where its clients find it
        self._master_ha: str | None = store.settings.ha_master_address or None
        self._tables_are_due = asyncio.Event()

    @property
    def is_slave(self) -> bool:
        return self._store.role is BrokerRole.SLAVE

    @property
    def is_following(self) -> bool:
        """Whether a slave is connected to its master."""
        return self._follower is not None and self._follower.now.is_connected

    @property
    def port(self) -> int | None:
        """The replication port; None without one."""
        return None if self._bound is None else int(self._bound.getsockname()[1])

    # -- life --------------------------------------------------------------------------------------------------

    def start(self, bound: socket.socket | None) -> None:
        """`bound`: a socket with the replication port. A slave only keeps it for the day it becomes a master."""
        self._bound = bound
        if self.is_slave:
            self._follower = MasterFollower(self._store, lambda: self._master_ha)
            self._follower.start()
            self._task = asyncio.get_running_loop().create_task(self._take_tables())
        elif bound is not None:
            self._server = ReplicationServer(self._store, self.replicas, bound)
            self._server.start()
            log.info("event=replication_listens port=%d role=%s", self._server.port, self._store.role)

    async def stop(self) -> None:
        """Leave the master, or let the slaves go."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        follower, server = self._follower, self._server
        self._follower = self._server = None
        if follower is not None:
            await asyncio.to_thread(follower.stop)
        if server is not None:
            await asyncio.to_thread(server.stop)
        elif self._bound is not None:
            self._bound.close()
        self._bound = None

    # -- a slave -----------------------------------------------------------------------------------------------

    def learn_master(self, address: str | None, ha_address: str | None) -> None:
        """What a name server says of the master of this broker's name."""
        if not self.is_slave:
            return
        if address and address != self._master:
            log.info("event=master_known address=%s replication=%s", address, ha_address)
            self._master = address
            self._tables_are_due.set()
        if ha_address and not self._store.settings.ha_master_address and ha_address != self._master_ha:
            self._master_ha = ha_address
            if self._follower is not None:
                self._follower.hurry()

    async def _take_tables(self) -> None:
        pause = TABLES_FIRST_SECONDS
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._tables_are_due.wait(), pause)
            self._tables_are_due.clear()
            if self._master is not None:
                with contextlib.suppress(OSError):  # A table that could not be written is written the next time.
                    await self._tables.take(self._master)
            pause = TABLES_SECONDS

    # -- figures -----------------------------------------------------------------------------------------------

    def figures(self) -> dict[str, str]:
        """For administrators, under names of our own."""
        epoch = {"emberEpoch": str(self.epoch.number), "emberEpochStart": str(self.epoch.start)}
        if self._follower is not None:
            now = self._follower.now
            return epoch | {
                "emberMaster": now.master,
                "emberMasterFollowed": str(now.is_connected and now.is_compared).lower(),
                "emberMasterProblem": now.problem,
                "emberBehindMasterBytes": str(now.behind_bytes),
            }
        views, end = self.replicas.view(), self._store.max_physical
        behind = ";".join(f"{view.address}={max(0, end - view.acknowledged)}" for view in views)
        return epoch | {
            "emberReplicas": str(len(views)),
            "emberReplicasBehindBytes": behind,
            "emberReplicatedOffset": str(self.replicas.mark),
            "emberFencedBy": self.fence.rival.address if self.fence.rival is not None else "",
        }
