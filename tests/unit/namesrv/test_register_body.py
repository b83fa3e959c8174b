"""The body of a registration in its three forms, what RocketMQ sent, and what is refused."""

import struct
import zlib

import pytest

from embermq.errors import RemotingError
from embermq.model.data_version import DataVersion
from embermq.namesrv.register_body import body_crc, decode_data_version, decode_register_body
from embermq.namesrv.registration import RegisterBody, TopicQueues

# As RocketMQ 4.9.8 sent them: one topic `T` with 8 queues, no filter servers.
JSON_BODY = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":0,"timestamp":1794792662295},'
    b'"topicConfigTable":{"T":{"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"T",'
    b'"topicSysFlag":0,"writeQueueNums":8}}}}'
)
COMPRESSED_BODY = bytes.fromhex(
    "78DA63606050AF564ACE2FCD2B492D52B232D0512AC9CC4D2D2E49CC2D50B23234B73431B73432333332B234AD656060600462A110050B20"
    "345308F6F473F7718D0F7174078A3245C70200CC8D1145"
)
VERSION = DataVersion(timestamp=1794792662295, counter=0)
ONE_TOPIC = {"T": TopicQueues(perm=6, read_queue_nums=8, topic_sys_flag=0, write_queue_nums=8)}


def decode(body: bytes, *, compressed: bool = False, bare: bool = False, bytes_max: int = 1 << 20) -> RegisterBody:
    return decode_register_body(body, is_compressed=compressed, is_bare=bare, bytes_max=bytes_max)


def compressed(*pieces: bytes | int) -> bytes:
    """A body of pieces with their lengths, and of bare numbers."""
    packed = [struct.pack(">i", p) if isinstance(p, int) else struct.pack(">i", len(p)) + p for p in pieces]
    return zlib.compress(b"".join(packed), 9)


# -- what brokers send -------------------------------------------------------------------------------------------


def test_the_json_body_of_rocketmq() -> None:
    assert decode(JSON_BODY) == RegisterBody(VERSION, ONE_TOPIC, [])


def test_the_compressed_body_of_rocketmq() -> None:
    assert decode(COMPRESSED_BODY, compressed=True) == RegisterBody(VERSION, ONE_TOPIC, [])
    assert body_crc(COMPRESSED_BODY) == 2036784875


def test_checksums_have_no_sign() -> None:
    assert (body_crc(b"hello"), body_crc(b"123456789")) == (907060870, 1274296614)


def test_a_bare_body_of_old_brokers() -> None:
    body = b'{"dataVersion":{"counter":3,"timestamp":7},"topicConfigTable":{"T":{"perm":4,"topicSysFlag":2}}}'
    expected = {"T": TopicQueues(perm=4, read_queue_nums=16, topic_sys_flag=2, write_queue_nums=16)}
    assert decode(body, bare=True) == RegisterBody(DataVersion(7, 3), expected, None)


def test_no_body_is_no_topic_at_version_0() -> None:
    for is_compressed in (False, True):
        assert decode(b"", compressed=is_compressed) == RegisterBody(DataVersion(0, 0), {}, None)


def test_a_body_of_5x_has_more_fields() -> None:
    body = (
        b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"stateVersion":4,"timestamp":2},"mappingDataVersion"'
        b':{},"topicConfigTable":{"T":{"attributes":{"a":"b"},"perm":6,"readQueueNums":1,"writeQueueNums":2}},'
        b'"topicQueueMappingInfoMap":{}},"filterServerList":["1.2.3.4:1"]}'
    )
    found = decode(body)
    assert found.version == DataVersion(2, 1, 4)
    assert found.topics["T"].write_queue_nums == 2
    assert found.filter_servers == ["1.2.3.4:1"]


def test_a_compressed_body_of_5x_has_a_sixth_word_and_more_behind() -> None:
    body = compressed(b'{"counter":1,"timestamp":2}', 1, b'T 1 2 6 SINGLE_TAG {"a":"b"}', b'["f:1"]', b"{}", 0)
    found = decode(body, compressed=True)
    assert found.topics == {"T": TopicQueues(6, 1, 0, 2)}
    assert found.filter_servers == ["f:1"]


def test_javas_extensions_of_json_are_read() -> None:
    body = (
        b'{topicConfigSerializeWrapper:{"dataVersion":{"counter":"5","timestamp":2},"topicConfigTable":{7:{"perm":4}}}}'
    )
    found = decode(body)
    assert (found.version.counter, list(found.topics)) == (5, ["7"])


def test_a_topic_without_a_possible_name_is_left_out() -> None:
    long = "x" * 513
    body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"":{},"%s":{},"T":{},"N":null}}}' % long.encode()
    found = decode(body)
    assert list(found.topics) == ["T"]
    assert found.skipped == ("", long)


def test_the_version_of_a_query() -> None:
    assert decode_data_version(b'{"counter":2,"timestamp":1}') == DataVersion(1, 2)
    assert decode_data_version(b"") == DataVersion()


# -- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":"much"}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":4294967296}}}}',
        b'{"filterServerList":[""]}',
        b'{"filterServerList":[%s]}' % b",".join([b'"f"'] * 65),
        b"[" * 100_000,
    ],
    ids=lambda body: repr(body[:30]),
)
def test_a_json_body_that_cannot_be_used(body: bytes) -> None:
    with pytest.raises(RemotingError):
        decode(body)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"no zlib", "cannot be inflated"),
        (COMPRESSED_BODY[:-9], "cut off"),
        (zlib.compress(b""), "ends too early"),
        (compressed(b"{}", 2, b"T 1 1 6 SINGLE_TAG"), "ends too early"),
        (compressed(b"{}", -1), "for a length or a count"),
        (compressed(b"{}", 2**31 - 1), "for a length or a count"),
        (compressed(b"{}", 1, b"T 1 1 6", b"[]"), "a topic that cannot be read"),
        (compressed(b"{}", 1, b"T one 1 6 SINGLE_TAG", b"[]"), "a topic that cannot be read"),
        (compressed(b"{}", 1, b"\xff 1 1 6 SINGLE_TAG", b"[]"), "a topic that cannot be read"),
        (compressed(b"{}", 0, b"{"), "cannot be read"),
    ],
)
def test_a_compressed_body_that_cannot_be_used(body: bytes, reason: str) -> None:
    with pytest.raises(RemotingError, match=reason):
        decode(body, compressed=True)


def test_a_body_that_inflates_too_far_is_not_inflated() -> None:
    bomb = zlib.compress(bytes(5 << 20), 9)
    with pytest.raises(RemotingError, match=r"inflates to over 1,048,576 bytes \(emberMaxRegisterBytes\)"):
        decode(bomb, compressed=True)


def test_a_large_json_body_is_refused() -> None:
    with pytest.raises(RemotingError, match=r"over 100 \(emberMaxRegisterBytes\)"):
        decode(JSON_BODY, bytes_max=100)
