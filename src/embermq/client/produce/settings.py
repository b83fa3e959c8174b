"""Settings of producers. Pure. `ProducerOptions` are keyword arguments, `ProducerSettings` the same with defaults."""

from collections.abc import Sequence

import msgspec

from embermq.client.name_servers import parse_name_servers
from embermq.client.produce.compression import METHODS
from embermq.client.produce.hooks import SendHook
from embermq.client.settings import ClientOptions, ClientSettings
from embermq.errors import OptionInvalid
from embermq.model.names import TRACE_TOPIC


class ProducerOptions(ClientOptions, total=False):
    """Keyword arguments of producers."""

    send_timeout: float
    retries: int
    retry_unless_ok: bool
    latency_faults: bool
    compression: str
    compression_level: int
    compress_from_bytes: int
    message_bytes_max: int
    batch_bytes_max: int
    in_flight_max: int
    in_flight_bytes_max: int
    new_topic_queues: int
    trace: bool | str
    hooks: Sequence[SendHook]


class ProducerSettings(ClientSettings, frozen=True, kw_only=True):
    """How a producer sends."""

    group: str
    send_timeout: float = 3.0  # seconds for a message, all tries together
    retries: int = 2  # after the first try, with another broker if there is one
    retry_unless_ok: bool = False  # try another broker if a message was stored with a reservation (SendStatus)
    latency_faults: bool = False  # leave brokers alone for a while after slow or failed sends
    compression: str = "zlib"  # zlib, lz4, zstd, none
    compression_level: int = 5  # of zlib and zstd
    compress_from_bytes: int = 4096
    message_bytes_max: int = 4 << 20  # before compression
    batch_bytes_max: int = 1 << 20
    in_flight_max: int = 2048  # messages that were not answered; more wait
    in_flight_bytes_max: int = 64 << 20
    new_topic_queues: int = 4  # of topics that the brokers create when they are first sent to
    trace: bool | str = False  # True: to RMQ_SYS_TRACE_TOPIC; or the name of a topic
    hooks: Sequence[SendHook] = ()

    @property
    def trace_topic(self) -> str | None:
        return (TRACE_TOPIC if self.trace is True else self.trace) or None


def producer_settings(name_server: str | Sequence[str], group: str, options: ProducerOptions) -> ProducerSettings:
    """Checked settings; OptionInvalid."""
    if not group:
        raise OptionInvalid("group", "a producer needs the name of its group")
    settings = ProducerSettings(name_servers=parse_name_servers(name_server), group=group, **options)
    if settings.compression not in METHODS:
        raise OptionInvalid("compression", f"one of {', '.join(METHODS)} is expected", value=settings.compression)
    for name in ("send_timeout", "call_timeout", "message_bytes_max", "batch_bytes_max", "in_flight_max"):
        if not getattr(settings, name) > 0:
            raise OptionInvalid(name, "a number above 0 is expected", value=getattr(settings, name))
    if settings.retries < 0:
        raise OptionInvalid("retries", "0 or more is expected", value=settings.retries)
    return msgspec.structs.replace(settings, hooks=tuple(settings.hooks))
