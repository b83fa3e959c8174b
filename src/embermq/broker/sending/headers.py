"""Headers of sends: the long names of code 10, and the one-letter names of 310 and 320. Pure.

Fields that a broker can do without may be missing, as in RocketMQ: a send without a topic is one to a blank topic.
"""

import msgspec

from embermq.remoting import I32, I64


class SendHeader(msgspec.Struct, rename="camel", kw_only=True):
    """SEND_MESSAGE, and what the short form stands for."""

    producer_group: str = ""
    topic: str = ""
    default_topic: str = ""
    default_topic_queue_nums: I32 = 0
    queue_id: I32
    sys_flag: I32
    born_timestamp: I64
    flag: I32
    properties: str = ""
    reconsume_times: I32 | None = None
    unit_mode: bool = False
    max_reconsume_times: I32 | None = None
    batch: bool = False


class SendHeaderV2(msgspec.Struct, kw_only=True):
    """The same under one-letter names, which are shorter on the wire."""

    producer_group: str = msgspec.field(name="a", default="")
    topic: str = msgspec.field(name="b", default="")
    default_topic: str = msgspec.field(name="c", default="")
    default_topic_queue_nums: I32 = msgspec.field(name="d", default=0)
    queue_id: I32 = msgspec.field(name="e")
    sys_flag: I32 = msgspec.field(name="f")
    born_timestamp: I64 = msgspec.field(name="g")
    flag: I32 = msgspec.field(name="h")
    properties: str = msgspec.field(name="i", default="")
    reconsume_times: I32 | None = msgspec.field(name="j", default=None)
    unit_mode: bool = msgspec.field(name="k", default=False)
    max_reconsume_times: I32 | None = msgspec.field(name="l", default=None)
    batch: bool = msgspec.field(name="m", default=False)


AnySendHeader = SendHeader | SendHeaderV2
