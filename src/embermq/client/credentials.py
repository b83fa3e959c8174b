"""Access keys and how requests are signed with them (RocketMQ's ACL). Pure.

    signed text = values of extFields, ordered by name, then the body
    Signature   = Base64(HMAC-SHA1(secret key, signed text))

`Signature` itself and `_UNIQUE_KEY_QUERY`, which brokers leave out as well, are not signed (RocketMQ 5 leaves the
latter out of requests that say to be of 4.9.3 or before; queries do).
"""

import hmac
from base64 import b64encode

import msgspec

from embermq.remoting import Command

UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_UNSIGNED = frozenset(("Signature", UNIQUE_KEY_QUERY))


class Credentials(msgspec.Struct, frozen=True):
    """An account of the brokers' ACL."""

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __repr__(self) -> str:  # A secret in a log is none.
        return f"Credentials(access_key={self.access_key!r})"


def sign(request: Command, credentials: Credentials) -> None:
    """Add the account and the signature to a request that is otherwise complete."""
    ext = dict(request.ext or {})
    ext["AccessKey"] = credentials.access_key
    if credentials.security_token is not None:
        ext["SecurityToken"] = credentials.security_token
    ext["Signature"] = signature(ext, request.body, credentials.secret_key)
    request.ext = ext


def signature(ext: dict[str, str], body: bytes, secret_key: str) -> str:
    text = "".join(ext[name] for name in sorted(ext) if name not in _UNSIGNED)
    return b64encode(hmac.digest(secret_key.encode(), text.encode() + body, "sha1")).decode()
