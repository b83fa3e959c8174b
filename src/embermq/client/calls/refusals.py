"""Response codes that mean no, as errors that say what to do. Pure."""

from embermq.client.calls.caller import BrokerAddress
from embermq.errors import (
    BrokerBusy,
    BrokerReadOnly,
    GroupMissing,
    MessageIllegal,
    PermissionMissing,
    RequestRefused,
    RequestUnsupported,
    SubscriptionRefused,
    TopicMissing,
)
from embermq.remoting import Command, ResponseCode, request_name

_SUBSCRIPTION = "check the expression, and that all members of the group subscribe to the same"

# 5.x answers 215 for flow control, as the clients of 4.9 know it, and 1500 while it shuts down.
GO_AWAY = 1500

_KINDS: dict[int, tuple[type[RequestRefused], str]] = {
    ResponseCode.SYSTEM_BUSY: (BrokerBusy, "send less, or try again in a moment"),
    ResponseCode.FLOW_CONTROL: (BrokerBusy, "try again in a moment"),
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: (RequestUnsupported, "use a broker that knows this request"),
    ResponseCode.MESSAGE_ILLEGAL: (MessageIllegal, "make the message smaller, or raise the limits of the broker"),
    ResponseCode.SERVICE_NOT_AVAILABLE: (BrokerReadOnly, "check the disk and the role of the broker"),
    GO_AWAY: (BrokerReadOnly, "it is shutting down; another broker may take it"),
    ResponseCode.NO_PERMISSION: (PermissionMissing, "check the permissions of broker, topic and group"),
    ResponseCode.TOPIC_NOT_EXIST: (TopicMissing, "create the topic on this broker"),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: (GroupMissing, "create the consumer group on this broker"),
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: (SubscriptionRefused, _SUBSCRIPTION),
    ResponseCode.SUBSCRIPTION_NOT_EXIST: (SubscriptionRefused, _SUBSCRIPTION),
    ResponseCode.SUBSCRIPTION_NOT_LATEST: (SubscriptionRefused, _SUBSCRIPTION),
    ResponseCode.FILTER_DATA_NOT_EXIST: (SubscriptionRefused, _SUBSCRIPTION),
    ResponseCode.FILTER_DATA_NOT_LATEST: (SubscriptionRefused, _SUBSCRIPTION),
}


def refused(to: BrokerAddress, code: int, answer: Command, *, topic: str = "", group: str = "") -> RequestRefused:
    """The error for an answer that is not the one that was hoped for."""
    kind, advice = _KINDS.get(answer.code, (RequestRefused, ""))
    return kind(
        request_name(code),
        answer.code,
        _code_name(answer.code),
        (answer.remark or "").strip(),
        broker=to.name,
        address=to.address,
        topic=topic,
        group=group,
        advice=advice,
    )


def _code_name(code: int) -> str:
    try:
        return f"{ResponseCode(code).name} ({code})"
    except ValueError:
        return f"code {code}"
