"""A tracer whose messages go over the connections of the client that is traced. The loop's thread only.

The trace has a producer group and a line of sends of its own: it neither waits for the messages it tells of nor holds
them up, and is not traced itself.
"""

from embermq.client.instance import Instance
from embermq.client.produce.outgoing import Packer
from embermq.client.produce.results import SendResult
from embermq.client.produce.sender import Sender
from embermq.client.produce.settings import ProducerSettings
from embermq.client.produce.unique_ids import new_ids
from embermq.client.settings import ClientSettings
from embermq.client.tracing import Tracer
from embermq.errors import ClientError
from embermq.model.message import Message

TRACE_GROUP_PREFIX = "_INNER_TRACE_PRODUCER-"


class TracePosts:
    """Sends what a tracer has collected. Closed once, before its client."""

    def __init__(self, instance: Instance, client: ClientSettings, group: str, topic: str) -> None:
        shared = {name: getattr(client, name) for name in ClientSettings.__struct_fields__}
        self._settings = ProducerSettings(group=f"{TRACE_GROUP_PREFIX}{group}", **shared)
        self._packer = Packer(self._settings, new_ids(client))
        self._sender = Sender(instance, self._settings)
        self.tracer = Tracer(topic, self._post)

    def _post(self, message: Message) -> None:
        self._sender.submit(self._packer.pack(message), _ignore)

    async def close(self) -> None:
        """Send what there is, and wait for it as long as for any send."""
        self.tracer.flush()
        self.tracer.is_closed = True
        await self._sender.drain(self._settings.send_timeout)
        self._sender.close()


def _ignore(outcome: SendResult | ClientError) -> None:
    """A trace that could not be sent is dropped."""
