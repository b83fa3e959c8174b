"""ConsumerRunningInfo: what a consumer says of itself when a broker asks (307). Pure but for reading the parts."""

from typing import Any

from embermq.client.consume.handle.figures import ConsumerFigures
from embermq.client.consume.queues.reader import PulledQueue
from embermq.client.consume.queues.readers import Readers
from embermq.client.consume.settings import ConsumerSettings
from embermq.client.consume.subscribing import Subscriptions
from embermq.remoting import PROTOCOL_VERSION, write_object_keyed


def running_info(
    readers: Readers,
    subscriptions: Subscriptions,
    figures: ConsumerFigures,
    settings: ConsumerSettings,
    consume_type: str,
    started_ms: int,
    offset_ms: float,
) -> dict[str, Any]:
    """The document. `offset_ms` is added to monotonic milliseconds to get those since 1970."""
    table = ((reader.queue.document(), _queue_info(reader, readers, offset_ms)) for reader in readers)
    return {
        "mqTable": write_object_keyed(table),
        "properties": {
            "PROP_NAMESERVER_ADDR": ";".join(readers.instance.settings.name_servers),
            "PROP_THREADPOOL_CORE_SIZE": str(settings.threads),
            "PROP_CONSUMEORDERLY": "true" if settings.orderly else "false",
            "PROP_CONSUME_TYPE": consume_type,
            "PROP_CLIENT_VERSION": f"V{PROTOCOL_VERSION}",
            "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
            "consumerGroup": readers.group,
            "messageModel": "BROADCASTING" if settings.broadcasting else "CLUSTERING",
            "consumeFromWhere": settings.consume_from.value,
            "consumeMessageBatchMaxSize": str(settings.batch_size),
            "pullBatchSize": str(settings.pull_batch),
            "pullThresholdForQueue": str(settings.limits.messages),
            "maxReconsumeTimes": str(settings.retries_max),
        },
        "statusTable": figures.documents(),
        "subscriptionSet": [one.document() for one in subscriptions],
    }


def _queue_info(reader: PulledQueue, readers: Readers, offset_ms: float) -> dict[str, Any]:
    process, pulls = reader.process, reader.pulls
    locked_at = readers.locks.held_at(reader.queue)
    return {
        "cachedMsgCount": len(process),
        "cachedMsgMaxOffset": process.last_offset or 0,
        "cachedMsgMinOffset": process.first_offset or 0,
        "cachedMsgSizeInMiB": process.body_bytes >> 20,
        "commitOffset": readers.positions.get(reader.queue, 0),
        "droped": reader.is_dropped,
        "lastConsumeTimestamp": round(pulls.answered_at * 1000 + offset_ms),
        "lastLockTimestamp": 0 if locked_at is None else round(locked_at * 1000 + offset_ms),
        "lastPullTimestamp": round(pulls.answered_at * 1000 + offset_ms),
        "locked": locked_at is not None,
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }
