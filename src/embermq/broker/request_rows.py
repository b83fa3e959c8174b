"""Every request a broker answers: one class a family, each with its rows, and given what it needs."""

from collections.abc import Callable

from embermq.broker.admin.configuration import ConfigurationAdmin
from embermq.broker.admin.connections import ConnectionAdmin
from embermq.broker.admin.entries import EntriesAdmin
from embermq.broker.admin.groups import GroupAdmin
from embermq.broker.admin.offsets import OffsetAdmin
from embermq.broker.admin.overrides import Overrides
from embermq.broker.admin.progress import ProgressAdmin
from embermq.broker.admin.refused import Refusals
from embermq.broker.admin.relay import RelayAdmin
from embermq.broker.admin.reset import ResetAdmin
from embermq.broker.admin.runtime import RuntimeAdmin
from embermq.broker.admin.topics import TopicAdmin
from embermq.broker.admin.upkeep import UpkeepAdmin
from embermq.broker.members import ClientRequests
from embermq.broker.reading import OffsetRequests, Pulls, QueryRequests
from embermq.broker.sending import ReplyForwarding, SendBacks, Sends
from embermq.broker.shared import Shared
from embermq.broker.transactions import Transactions
from embermq.remoting import RemotingServer, Row
from embermq.settings import BrokerSettings


def client_rows(shared: Shared, sends: Sends, transactions: Transactions, server: RemotingServer) -> list[Row]:
    """What producers and consumers ask."""
    settings, store, clock, later = shared.settings, shared.store, shared.clock, shared.later
    topics, groups, offsets, clients = shared.topics, shared.groups, shared.offsets, shared.clients
    pulls = Pulls(
        settings,
        store,
        topics,
        groups,
        offsets,
        clients,
        shared.filters,
        shared.held,
        shared.hooks,
        shared.statistics,
        shared.loop.time,
        clock.now_ms,
        server.run_on_pool,
    )
    return [
        *sends.rows(),
        *ReplyForwarding(store, sends, clients, shared.acknowledgements, shared.statistics, clock, later).rows(),
        *transactions.rows(),
        *SendBacks(settings, store, topics, groups, shared.given_back).rows(),
        *pulls.rows(),
        *OffsetRequests(store, offsets).rows(),
        *ClientRequests(topics, groups, clients, shared.filters, shared.locks, clock, later).rows(),
        *QueryRequests(store).rows(),
    ]


def admin_rows(
    shared: Shared,
    runtime: RuntimeAdmin,
    overrides: Overrides,
    take: Callable[[BrokerSettings], None],
    address: Callable[[], str],
) -> list[Row]:
    """What administrators and slaves ask. `take`: go on with other settings; `address`: where clients find us."""
    settings, store, later, statistics = shared.settings, shared.store, shared.later, shared.statistics
    topics, groups, offsets, clients = shared.topics, shared.groups, shared.offsets, shared.clients
    progress = ProgressAdmin(
        settings, store, topics, groups, offsets, clients, statistics, shared.clock, address, later
    )
    return [
        *TopicAdmin(settings, store, topics, statistics, shared.announcements, later).rows(),
        *GroupAdmin(store, groups, offsets, statistics, later).rows(),
        *ConfigurationAdmin(settings, store, overrides, take, later).rows(),
        *runtime.rows(),
        *ConnectionAdmin(clients, offsets).rows(),
        *progress.rows(),
        *OffsetAdmin(store, topics, offsets, clients, later).rows(),
        *ResetAdmin(settings, store, topics, offsets, clients, later).rows(),
        *RelayAdmin(store, clients, later).rows(),
        *EntriesAdmin(store, topics, clients, shared.filters, later).rows(),
        *UpkeepAdmin(store, topics).rows(),
        *Refusals(settings, address).rows(),
    ]
