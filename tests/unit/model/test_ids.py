"""Message ids and hosts."""

import pytest

from embermq.errors import MessageIdInvalid
from embermq.model.hosts import Host, pack_host, parse_host, unpack_host
from embermq.model.ids import message_id, parse_message_id


def test_an_id_is_the_store_host_and_the_physical_offset() -> None:
    assert message_id(Host("192.168.1.100", 10911), 1073741824) == "C0A8016400002A9F0000000040000000"
    v6 = message_id(Host("2001:db8::2", 10911), 552)
    assert v6 == "20010DB800000000000000000000000200002A9F0000000000000228"
    assert parse_message_id(v6) == (Host("2001:db8::2", 10911), 552)
    assert parse_message_id("c0a8016400002a9f0000000040000000").physical_offset == 1073741824


@pytest.mark.parametrize("text", ["", "abc", "Z" * 32, "0" * 31, "0" * 40, " " * 32, None, 7])
def test_anything_else_is_named_as_no_id(text: object) -> None:
    with pytest.raises(MessageIdInvalid, match="is not a message id"):
        parse_message_id(text)


@pytest.mark.parametrize("host", [Host("10.0.0.1", 50000), Host("::1", 1), Host("255.255.255.255", 65535)])
def test_hosts_survive_packing(host: Host) -> None:
    assert unpack_host(pack_host(host)) == host
    assert parse_host(str(host)) == host
