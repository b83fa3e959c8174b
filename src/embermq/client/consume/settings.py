"""Settings of consumers. Pure.

`PushOptions` and `PullOptions` are the keyword arguments of the consumers, `ConsumerSettings` the same checked, with
their defaults. The defaults are RocketMQ's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from embermq.client.consume.handle.hooks import ConsumeHook
from embermq.client.consume.handle.retries import RETRIES_MAX, UNLIMITED
from embermq.client.consume.queues.allocation import STRATEGIES, Allocate, average
from embermq.client.consume.queues.process_queue import CacheLimits
from embermq.client.consume.queues.starts import ConsumeFrom, parse_consume_from, parse_timestamp
from embermq.client.name_servers import parse_name_servers
from embermq.client.settings import ClientOptions, ClientSettings
from embermq.errors import OptionInvalid
from embermq.model.names import TRACE_TOPIC

PULL_BATCH_MAX = 1024
THREADS_MAX = 1000
BATCH_MAX = 1024


class ConsumerOptions(ClientOptions, total=False):
    """Keyword arguments that every consumer takes."""

    broadcasting: bool
    consume_from: ConsumeFrom | str
    consume_timestamp: str | int | datetime | None
    allocation: Allocate | str
    pull_batch: int
    cached_messages: int
    cached_bytes: int
    cached_span: int
    offsets_path: str | Path | None
    commit_seconds: float


class PushOptions(ConsumerOptions, total=False):
    """Keyword arguments of a PushConsumer."""

    orderly: bool
    threads: int
    batch_size: int
    retries_max: int | None
    consume_timeout: float
    close_timeout: float
    trace: bool | str
    hooks: Sequence[ConsumeHook]


class PullOptions(ConsumerOptions, total=False):
    """Keyword arguments of a PullConsumer."""

    auto_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How a consumer consumes."""

    group: str
    broadcasting: bool = False
    orderly: bool = False
    consume_from: ConsumeFrom = ConsumeFrom.LAST
    consume_timestamp: int = 0
    allocation: Allocate = average
    pull_batch: int = 32  # messages a pull asks for
    limits: CacheLimits = field(default_factory=CacheLimits)  # of each queue
    offsets_path: Path | None = None  # of a broadcasting consumer; None: ~/.rocketmq_offsets
    hold_seconds: float = 15.0  # how long a broker may hold a pull
    threads: int = 20  # handlers that run at once
    batch_size: int = 1  # messages a call of a handler gets at most
    retries_max: int = RETRIES_MAX
    consume_timeout: float = 900.0  # seconds after which a message in its handler is sent back
    close_timeout: float = 30.0  # seconds that close waits for handlers
    commit_seconds: float = 5.0
    rebalance_seconds: float = 20.0
    auto_commit: bool = True
    trace: bool | str = False  # True: to RMQ_SYS_TRACE_TOPIC; or the name of a topic
    hooks: Sequence[ConsumeHook] = ()

    @property
    def trace_topic(self) -> str | None:
        return (TRACE_TOPIC if self.trace is True else self.trace) or None


def client_settings(name_server: str | Sequence[str], options: Mapping[str, Any]) -> ClientSettings:
    """The client's own settings among keyword arguments; OptionInvalid for an address or a name that is none."""
    known = (*ClientOptions.__annotations__, *PushOptions.__annotations__, *PullOptions.__annotations__)
    for name in options:
        if name not in known:
            hint = get_close_matches(name, known, 1)
            raise OptionInvalid(name, f"there is no such option{f'; did you mean {hint[0]}?' if hint else ''}")
    own = {name: options[name] for name in ClientOptions.__annotations__ if name in options}
    return ClientSettings(name_servers=parse_name_servers(name_server), **own)


_BOUNDS = {
    "pull_batch": (1, PULL_BATCH_MAX),
    "threads": (1, THREADS_MAX),
    "batch_size": (1, BATCH_MAX),
    "cached_messages": (1, 65535),
    "cached_bytes": (1, 1 << 40),
    "cached_span": (1, 65535),
    "consume_timeout": (1, 365 * 86400),
    "close_timeout": (0, 86400),
    "commit_seconds": (0.01, 86400),
}


def consumer_settings(group: str, options: Mapping[str, Any], now_ms: int) -> ConsumerSettings:
    """Settings from keyword arguments; OptionInvalid names the one that cannot be used. Options of the client itself
    are left out."""
    if not group or len(group) > 255 or not group.isascii() or any(one.isspace() for one in group):
        raise OptionInvalid("group", "a name of 1 to 255 letters, digits, '_' and '-' is expected", value=group)
    for name, (least, most) in _BOUNDS.items():
        if name in options and not least <= options[name] <= most:
            raise OptionInvalid(name, f"{least:,} to {most:,} is expected", value=options[name])
    same = ("broadcasting", "orderly", "pull_batch", "threads", "batch_size", "consume_timeout", "close_timeout")
    given: dict[str, Any] = {
        name: options[name] for name in (*same, "commit_seconds", "auto_commit", "trace", "hooks") if name in options
    }
    retries = options.get("retries_max")
    if retries is None:
        retries = UNLIMITED if options.get("orderly") else RETRIES_MAX
    elif not 0 <= retries <= UNLIMITED:
        raise OptionInvalid("retries_max", "0 or more is expected", value=retries)
    defaults = CacheLimits()
    path = options.get("offsets_path")
    return ConsumerSettings(
        group=group,
        consume_from=parse_consume_from(options.get("consume_from", ConsumeFrom.LAST)),
        consume_timestamp=parse_timestamp(options.get("consume_timestamp"), now_ms),
        allocation=_strategy(options.get("allocation", average)),
        limits=CacheLimits(
            options.get("cached_messages", defaults.messages),
            options.get("cached_bytes", defaults.body_bytes),
            options.get("cached_span", defaults.span),
        ),
        offsets_path=None if path is None else Path(path),
        retries_max=retries,
        **given,
    )


def _strategy(given: Allocate | str) -> Allocate:
    if not isinstance(given, str):
        return given
    found = STRATEGIES.get(given)
    if found is None:
        reason = f"one of {', '.join(STRATEGIES)} or a function like those of embermq.client is expected"
        raise OptionInvalid("allocation", reason, value=given)
    return found
