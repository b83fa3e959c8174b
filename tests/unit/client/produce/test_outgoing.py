"""Messages in their form on the wire."""

from typing import Unpack

import pytest

from embermq.client.produce.compression import METHODS, compressed
from embermq.client.produce.outgoing import Packer
from embermq.client.produce.settings import ProducerOptions, ProducerSettings, producer_settings
from embermq.client.produce.unique_ids import UniqueIds
from embermq.errors import BodyTooLarge, MessageRejected, OptionInvalid, PropertiesTooLarge, TopicNameInvalid
from embermq.model.message import Message, decompress
from embermq.model.properties import decode_properties


def packer(**options: Unpack[ProducerOptions]) -> Packer:
    return Packer(producer_settings("127.0.0.1:9876", "orders", options), UniqueIds("10.0.0.1"))


def properties_of(text: str) -> dict[str, str]:
    return decode_properties(text.encode())


def test_a_plain_message() -> None:
    out = packer().pack(Message("T", b"body", tags="paid", keys=["o-1", "o-2"], flag=7))
    wire = out.wire
    assert (wire.group, wire.topic, wire.body, wire.flag, wire.sys_flag) == ("orders", "T", b"body", 7, 0)
    assert properties_of(wire.properties) == {"TAGS": "paid", "KEYS": "o-1 o-2", "UNIQ_KEY": out.message_id}
    assert wire.born_timestamp > 1_700_000_000_000


def test_properties_delay_and_wait_are_carried() -> None:
    message = Message("T", b"", properties={"a": "1"}, delay_level=3, wait_for_store=False, born_timestamp=5)
    out = packer().pack(message, {"CORRELATION_ID": "c"})
    found = properties_of(out.wire.properties)
    assert found == {"a": "1", "DELAY": "3", "WAIT": "false", "CORRELATION_ID": "c", "UNIQ_KEY": out.message_id}
    assert out.wire.born_timestamp == 5


def test_an_id_that_was_given_is_kept() -> None:
    out = packer().pack(Message("T", b"", properties={"UNIQ_KEY": "mine"}))
    assert out.message_id == "mine"
    assert out.wire.properties.count("UNIQ_KEY") == 1


def test_a_namespace_is_added_to_names() -> None:
    out = packer(namespace="shop").pack(Message("T", b""))
    assert (out.wire.group, out.wire.topic) == ("shop%orders", "shop%T")
    assert properties_of(out.wire.properties)["INSTANCE_ID"] == "shop"


@pytest.mark.parametrize(("method", "flag"), [("zlib", 0x301), ("lz4", 0x101), ("zstd", 0x201), ("none", 0)])
def test_large_bodies_are_compressed(method: str, flag: int) -> None:
    ready, body = packer(compression=method), b"abc" * 2000
    out = ready.pack(Message("T", body))
    assert out.wire.sys_flag == flag
    assert (decompress(out.wire.body, flag) if flag else out.wire.body) == body
    assert ready.pack(Message("T", b"a" * 4095)).wire.sys_flag == 0
    assert set(METHODS) == {"zlib", "lz4", "zstd", "none"}


def test_what_compression_makes_larger_stays_as_it_is() -> None:
    noise = bytes(range(256))
    assert compressed(noise, "zlib", 5) == (noise, 0)


@pytest.mark.parametrize("topic", ["", "a b", "a" * 128, None, 5])
def test_bad_topics(topic: str) -> None:
    with pytest.raises(TopicNameInvalid):
        packer().pack(Message(topic, b""))


def test_limits() -> None:
    with pytest.raises(BodyTooLarge):
        packer(message_bytes_max=10).pack(Message("T", b"a" * 11))
    with pytest.raises(PropertiesTooLarge):
        packer().pack(Message("T", b"", properties={"a": "ä" * 17_000}))
    with pytest.raises(MessageRejected, match="str"):
        packer().pack(Message("T", "text"))  # type: ignore[arg-type]
    assert packer().pack(Message("T", bytearray(b"x"))).wire.body == b"x"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [{"compression": "gzip"}, {"send_timeout": 0}, {"retries": -1}, {"in_flight_max": 0}],
)
def test_options_that_cannot_be_used_are_named(options: ProducerOptions) -> None:
    (name,) = options
    with pytest.raises(OptionInvalid, match=name):
        producer_settings("127.0.0.1:9876", "g", options)
    with pytest.raises(OptionInvalid, match="group"):
        producer_settings("127.0.0.1:9876", "", {})
    with pytest.raises(TypeError, match="colour"):
        producer_settings("127.0.0.1:9876", "g", {"colour": 1})  # type: ignore[typeddict-unknown-key]


def test_options_and_settings_have_the_same_names() -> None:
    own = {"name_servers", "group"}
    assert set(ProducerOptions.__annotations__) == set(ProducerSettings.__struct_fields__) - own


@pytest.mark.parametrize(
    ("trace", "topic"), [(False, None), (True, "RMQ_SYS_TRACE_TOPIC"), ("mine", "mine"), ("", None)]
)
def test_the_trace_topic(trace: bool | str, topic: str | None) -> None:
    assert producer_settings("127.0.0.1:9876", "g", {"trace": trace}).trace_topic == topic
