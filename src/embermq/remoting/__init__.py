"""RocketMQ's remoting protocol: frames, commands and connections. No broker, no store.

    codes.py           request and response codes by name
    command.py         Command and Reply: a request, a response, what a handler answers
    frames.py          where commands lie in a stream of bytes
    json_header.py     the JSON header, with what real clients send
    binary_header.py   the binary header
    languages.py       languages of clients, by name and number
    headers.py         extFields as typed structs
    java_json.py       bodies in Java's JSON: integer and object keys
    session.py         Session: one connection's protocol state, without a socket
    link.py            Link: a connection on the asyncio loop
    frame_runs.py      frames of one turn of the loop, of all connections, answered together
    request_table.py   a request is a row: code, header, handler
    server.py          RemotingServer: listeners, limits, graceful end
    connector.py       Connector: calls to other servers
    limits.py          every bound of the network side
    counters.py        what a server counts

Everything up to session.py is pure: bytes in, values out. What has a socket belongs to one asyncio loop and its thread.
Other packages import from this face.
"""

from embermq.remoting.codes import RequestCode, ResponseCode, request_name
from embermq.remoting.command import (
    BINARY,
    JSON,
    LANGUAGE,
    ONEWAY_FLAG,
    PROTOCOL_VERSION,
    RESPONSE_FLAG,
    Command,
    Reply,
    answer,
)
from embermq.remoting.connector import Connector, ask
from embermq.remoting.counters import RemotingCounters
from embermq.remoting.frame_runs import Piece, RunTaker
from embermq.remoting.frames import MAX_FRAME_BYTES, FrameReader, FrameSplitter, decode_frame, encode_frame
from embermq.remoting.headers import I32, I64, NoHeader, decode_header, encode_header, is_true
from embermq.remoting.java_json import key_object, parse_json, without_nulls, write_json, write_object_keyed
from embermq.remoting.limits import RemotingLimits
from embermq.remoting.link import Link
from embermq.remoting.request_table import BODY_BYTES_MAX, Call, Handler, Peer, RequestTable, Row, run, unsupported
from embermq.remoting.server import RemotingServer, bind
from embermq.remoting.session import Outcome, Session

__all__ = [
    "BINARY",
    "BODY_BYTES_MAX",
    "Call",
    "Command",
    "Connector",
    "FrameReader",
    "FrameSplitter",
    "Handler",
    "I32",
    "I64",
    "JSON",
    "LANGUAGE",
    "Link",
    "MAX_FRAME_BYTES",
    "NoHeader",
    "ONEWAY_FLAG",
    "Outcome",
    "PROTOCOL_VERSION",
    "Peer",
    "Piece",
    "RESPONSE_FLAG",
    "RemotingCounters",
    "RemotingLimits",
    "RemotingServer",
    "Reply",
    "RequestCode",
    "RequestTable",
    "ResponseCode",
    "Row",
    "RunTaker",
    "Session",
    "answer",
    "ask",
    "bind",
    "decode_frame",
    "decode_header",
    "encode_frame",
    "encode_header",
    "is_true",
    "key_object",
    "parse_json",
    "request_name",
    "run",
    "unsupported",
    "without_nulls",
    "write_json",
    "write_object_keyed",
]
