"""Several name servers: any will do, and one that fails is left for the next."""

import asyncio
from collections.abc import Sequence

import pytest

from embermq.client.calls import BrokerAddress
from embermq.client.name_servers import NameServers, parse_name_servers
from embermq.errors import BrokerUnreachable, NameServersUnreachable, OptionInvalid


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("127.0.0.1:9876", ("127.0.0.1:9876",)),
        ("a:1;b:2", ("a:1", "b:2")),
        (" a:1 , b:2;", ("a:1", "b:2")),
        (["a:1", "b"], ("a:1", "b:9876")),
        ("[::1]:9876;[::1]", ("[::1]:9876", "[::1]:9876")),
    ],
)
def test_addresses(given: str | Sequence[str], expected: tuple[str, ...]) -> None:
    assert parse_name_servers(given) == expected


@pytest.mark.parametrize("given", ["", ";", [], "a:b", ":1", "a:70000"])
def test_what_is_no_address_is_refused(given: str | Sequence[str]) -> None:
    with pytest.raises(OptionInvalid, match="name_server"):
        parse_name_servers(given)


class Asked:
    """A question that some servers do not answer."""

    def __init__(self, *dead: str) -> None:
        self.dead, self.seen = set(dead), list[str]()

    async def __call__(self, server: BrokerAddress) -> str:
        self.seen.append(server.address)
        if server.address in self.dead:
            raise BrokerUnreachable("", server.address, "105", f"{server.address} is gone", is_sent=False)
        return server.address


def test_one_is_kept_until_it_fails() -> None:
    servers, question = NameServers(["a:1", "b:1", "c:1"], first=1), Asked()
    assert [asyncio.run(servers.ask(question)) for _ in range(2)] == ["b:1", "b:1"]
    question.dead.add("b:1")
    assert [asyncio.run(servers.ask(question)) for _ in range(2)] == ["c:1", "c:1"]
    assert question.seen == ["b:1", "b:1", "b:1", "c:1", "c:1"]


def test_when_none_answers_the_error_names_all() -> None:
    servers = NameServers(["a:1", "b:1"], first=0)
    with pytest.raises(NameServersUnreachable, match=r"a:1 is gone; b:1 is gone.*a:1, b:1") as raised:
        asyncio.run(servers.ask(Asked("a:1", "b:1")))
    assert raised.value.addresses == ("a:1", "b:1")
