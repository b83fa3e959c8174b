"""NameServers: the addresses that a client was given, one of which is asked until it fails. The loop's thread only.

Name servers know nothing of one another, and all know the same: any answer is good. Clients begin with different ones.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from embermq.client.calls import BrokerAddress
from embermq.errors import BrokerUnreachable, NameServersUnreachable, OptionInvalid

T = TypeVar("T")
DEFAULT_PORT = 9876


def parse_name_servers(given: str | Sequence[str]) -> tuple[str, ...]:
    """`a:9876;b:9876`, with commas or as a list; OptionInvalid when an address is none."""
    texts = given.replace(",", ";").split(";") if isinstance(given, str) else list(given)
    addresses = tuple(_address(text.strip()) for text in texts if text.strip())
    if not addresses:
        raise OptionInvalid("name_server", "an address is needed, such as 127.0.0.1:9876", value=given)
    return addresses


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return f"{text}:{DEFAULT_PORT}"
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise OptionInvalid("name_server", "an address looks like 127.0.0.1:9876", value=text)
    return text


class NameServers:
    """Several name servers, asked one at a time."""

    def __init__(self, addresses: Sequence[str], first: int | None = None) -> None:
        assert addresses
        self.addresses = tuple(addresses)
        self._at = random.randrange(len(addresses)) if first is None else first

    @property
    def current(self) -> BrokerAddress:
        return BrokerAddress("", self.addresses[self._at % len(self.addresses)])

    async def ask(self, question: Callable[[BrokerAddress], Awaitable[T]]) -> T:
        """The answer of the first that gives one; NameServersUnreachable. What one refuses is refused."""
        reasons: list[str] = []
        for _ in self.addresses:
            asked = self._at
            try:
                return await question(self.current)
            except BrokerUnreachable as problem:
                reasons.append(problem.reason)
                if asked == self._at:  # Others may have gone on to the next one meanwhile.
                    self._at += 1
        raise NameServersUnreachable(self.addresses, "; ".join(reasons))
