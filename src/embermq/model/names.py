"""Names with a meaning of their own: system topics, retry and dead-letter topics, predefined groups. Pure."""

import re
from functools import lru_cache

from embermq.model.properties import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC

DEFAULT_TOPIC = "TBW102"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC = "BenchmarkTest"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SYSTEM_PREFIX = "rmq_sys_"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
TOPIC_CHARACTERS_MAX = 127
GROUP_CHARACTERS_MAX = 255

PREDEFINED_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
# Neither made nor deleted by an administrator.
SYSTEM_TOPICS = frozenset(
    (
        DEFAULT_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    )
)
CLOSED_TOPICS = frozenset(
    (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC)
)
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")


def is_system_group(group: str) -> bool:
    """RocketMQ's own, and those of its tools."""
    return group.startswith(SYSTEM_GROUP_PREFIX) or group in PREDEFINED_GROUPS


@lru_cache(maxsize=4096)
def topic_objection(topic: str) -> str | None:
    """Why this cannot be a topic's name; None if it can."""
    if not topic.strip():
        return "The specified topic is blank."
    if not _NAME.fullmatch(topic):
        return f"The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$: {topic[:130]!r}"
    if len(topic) > TOPIC_CHARACTERS_MAX:
        return f"The specified topic is longer than topic max length {TOPIC_CHARACTERS_MAX}."
    return None


def is_group_name(group: str) -> bool:
    """Whether a broker keeps anything under this name."""
    return 0 < len(group) <= GROUP_CHARACTERS_MAX


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    return f"{cluster}_REPLY_TOPIC"
