"""Signatures as RocketMQ's brokers compute them."""

import pytest

from embermq.client.credentials import Credentials, sign, signature
from embermq.remoting import Command

ACCOUNT = Credentials("rocketmq2", "12345678")


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Command(14, ext={"topic": "T", "queueId": "3", "consumerGroup": "CG"}), "nKCNDoqiJ+WqxVT1i5F3BNForDs="),
        (Command(34, body=b"{}"), "rSstUKkrER5aSJ6DGS3kFVeNxfw="),
    ],
)
def test_signatures_are_those_of_rocketmq(request_: Command, expected: str) -> None:
    sign(request_, ACCOUNT)
    assert request_.ext is not None
    assert request_.ext["AccessKey"] == "rocketmq2"
    assert request_.ext["Signature"] == expected


def test_a_request_that_is_signed_again_has_the_same_signature() -> None:
    request = Command(14, ext={"topic": "T"})
    sign(request, ACCOUNT)
    first = dict(request.ext or {})
    sign(request, ACCOUNT)
    assert request.ext == first


def test_a_token_is_signed_and_the_mark_of_unique_key_queries_is_not() -> None:
    request = Command(12, ext={"key": "k", "_UNIQUE_KEY_QUERY": "true"})
    sign(request, Credentials("a", "s", "token"))
    assert request.ext is not None
    assert request.ext["SecurityToken"] == "token"
    assert request.ext["Signature"] == signature({"AccessKey": "a", "SecurityToken": "token", "key": "k"}, b"", "s")


def test_the_fields_of_the_caller_stay_as_they_are() -> None:
    ext = {"topic": "T"}
    sign(Command(14, ext=ext), ACCOUNT)
    assert ext == {"topic": "T"}


def test_a_secret_is_not_shown() -> None:
    assert "12345678" not in repr(ACCOUNT)
