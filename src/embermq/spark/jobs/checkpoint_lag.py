"""How far streams and pipelines are behind: what Spark's checkpoint says was done, against what stores hold.

    found = stream_lag("/data/lake/_checkpoint", ["/data/broker-a"])
    [(one.broker_name, one.behind) for one in found.lags]

Looks at files alone: no Spark is started, and the query may be running. What counts is the last batch that Spark has
noted as committed; a stream that reads the log as a whole, and a pipeline, are behind by bytes, one that reads topics
by messages of each queue. Driver side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from embermq.columns import C_STORE_TIME
from embermq.errors import OptionInvalid
from embermq.inspect import Survey
from embermq.spark.lake.files import LakeFiles
from embermq.spark.planning.stores import find_stores
from embermq.spark.report.metrics import Metric, Sample
from embermq.spark.streaming.stream_offsets import StreamOffset
from embermq.store.log import DamagedRange

LagState = Literal["ok", "data lost", "another log", "no store given"]
_OFFSETS, _COMMITS = "offsets", "commits"
_NEAR_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StreamLag:
    """One log, or one queue of it. Positions are next-to-read: physical offsets of a log, queue offsets of a queue."""

    broker_name: str
    topic: str | None  # None: the log as a whole
    queue_id: int | None
    position: int
    end: int | None  # None: no store of this broker was given
    behind_bytes: int | None  # of a log
    behind_messages: int | None  # of a queue
    behind_seconds: float | None  # how long what comes next has been there, of a log; 0 if nothing does
    state: LagState


@dataclass(frozen=True, slots=True)
class CheckpointLag:
    """All that one checkpoint is about."""

    checkpoint: str
    batch: int | None  # the last that was committed; None if none was
    batch_ms: int | None  # when it began
    lags: list[StreamLag]

    @property
    def is_sound(self) -> bool:
        return all(one.state in ("ok", "no store given") for one in self.lags)


def stream_lag(checkpoint: str, paths: Sequence[str], *, now_ms: int) -> CheckpointLag:
    """OptionInvalid if there is no checkpoint of a stream of ours."""
    files = LakeFiles(checkpoint.removeprefix("file:") if not checkpoint.startswith("file://") else checkpoint)
    surveys = {place.broker_name: place.survey() for place in find_stores(paths, shipped=True)}
    batch = _last_committed(files, checkpoint)
    if batch is None:
        starts = [_of_log(name, 0, survey, survey.identity, now_ms) for name, survey in sorted(surveys.items())]
        return CheckpointLag(checkpoint, None, None, starts)
    batch_ms, offsets = _offsets_of(files, checkpoint, batch)
    lags = [lag for offset in offsets for lag in _lags(offset, surveys, now_ms)]
    return CheckpointLag(checkpoint, batch, batch_ms, lags)


def _last_committed(files: LakeFiles, checkpoint: str) -> int | None:
    if not files.exists(_OFFSETS):
        raise OptionInvalid(
            "checkpoint",
            "there is no progress of a stream here; a pipeline keeps it in LAKE/_checkpoint",
            value=checkpoint,
        )
    names = [path.rpartition("/")[2] for path in files.list(_COMMITS)] if files.exists(_COMMITS) else []
    return max((int(name) for name in names if name.isdigit()), default=None)


def _offsets_of(files: LakeFiles, checkpoint: str, batch: int) -> tuple[int | None, list[StreamOffset]]:
    """When a batch began, and where it ended, for each of the streams of a query that is ours."""
    try:
        _version, head, *sources = files.read(f"{_OFFSETS}/{batch}").decode().splitlines()
        batch_ms = msgspec.json.decode(head).get("batchTimestampMs")
        found = [_ours(msgspec.json.decode(text)) for text in sources if text not in ("", "-")]
    except (OSError, ValueError, AttributeError) as problem:
        raise OptionInvalid("checkpoint", f"{_OFFSETS}/{batch} cannot be read: {problem}", value=checkpoint) from None
    ours = [one for one in found if one is not None]
    if not ours:
        raise OptionInvalid("checkpoint", "this is the checkpoint of another source than a store", value=checkpoint)
    return batch_ms or None, ours


def _ours(value: Any) -> StreamOffset | None:
    is_ours = isinstance(value, Mapping) and "stores" in value
    return StreamOffset.from_json(value, by_queue="topics" in value) if is_ours else None


def _lags(offset: StreamOffset, surveys: Mapping[str, Survey], now_ms: int) -> list[StreamLag]:
    if offset.queues is None:
        return [
            _of_log(name, one.position, surveys.get(name), one.identity, now_ms)
            for name, one in sorted(offset.stores.items())
        ]
    return [
        _of_queue(topic, name, queue_id, at, surveys.get(name), offset.stores[name].identity)
        for (topic, name, queue_id), at in sorted(offset.queues.items())
        if name in offset.stores
    ]


def _of_log(name: str, position: int, survey: Survey | None, identity: str, now_ms: int) -> StreamLag:
    if survey is None:
        return StreamLag(name, None, None, position, None, None, None, None, "no store given")
    if not survey.same_log_as(identity):
        return StreamLag(name, None, None, position, survey.log_end, None, None, None, "another log")
    is_lost = (0 < position < survey.log_min) or position > survey.log_end
    start = min(max(position, survey.log_min), survey.log_end)
    behind, waits = survey.log_end - start, _stored_ms(survey, start)
    seconds = 0.0 if waits is None else max(now_ms - waits, 0) / 1000
    return StreamLag(
        name, None, None, position, survey.log_end, behind, None, seconds, "data lost" if is_lost else "ok"
    )


def _stored_ms(survey: Survey, start: int) -> int | None:
    """When the record at `start` was stored; None if nothing whole is there."""
    for scanned in survey.scan(start, min(start + _NEAR_BYTES, survey.log_end), check_crc=False):
        if not isinstance(scanned, DamagedRange) and len(scanned):
            return int(scanned.rows[0, C_STORE_TIME])
    return None


def _of_queue(topic: str, name: str, queue_id: int, at: int, survey: Survey | None, identity: str) -> StreamLag:
    if survey is None:
        return StreamLag(name, topic, queue_id, at, None, None, None, None, "no store given")
    span = survey.queues().get((topic, queue_id))
    if span is None or not survey.same_log_as(identity):
        state: LagState = "another log" if span is not None else "data lost"
        return StreamLag(name, topic, queue_id, at, None, None, None, None, state)
    is_lost = at < span.min_offset or at > span.max_offset
    behind = max(span.max_offset - max(at, span.min_offset), 0)
    return StreamLag(name, topic, queue_id, at, span.max_offset, None, behind, None, "data lost" if is_lost else "ok")


def lag_metrics(found: CheckpointLag, now_ms: int) -> list[Metric]:
    """The same for Prometheus."""

    def samples(of: str) -> list[Sample]:
        values = [(one, getattr(one, of)) for one in found.lags]
        return [Sample(value, _labels(found.checkpoint, one)) for one, value in values if value is not None]

    place = {"checkpoint": found.checkpoint}
    broken = [Sample(float(one.state != "ok"), _labels(found.checkpoint, one)) for one in found.lags]
    begun = [Sample(found.batch_ms / 1000, place)] if found.batch_ms is not None else []
    return [
        Metric(
            "embermq_stream_position", "gauge", "Next to read: byte of the log, or queue offset.", samples("position")
        ),
        Metric("embermq_stream_end", "gauge", "Where the log, or the queue, ends.", samples("end")),
        Metric("embermq_stream_lag_bytes", "gauge", "Log not processed yet.", samples("behind_bytes")),
        Metric("embermq_stream_lag_messages", "gauge", "Messages not processed yet.", samples("behind_messages")),
        Metric(
            "embermq_stream_lag_seconds",
            "gauge",
            "Age of the first message not processed yet.",
            samples("behind_seconds"),
        ),
        Metric("embermq_stream_broken", "gauge", "1 if the log lost what comes next, or is another.", broken),
        Metric("embermq_stream_last_batch_timestamp_seconds", "gauge", "When the last committed batch began.", begun),
        Metric(
            "embermq_stream_looked_timestamp_seconds", "gauge", "When this was found.", [Sample(now_ms / 1000, place)]
        ),
    ]


def _labels(checkpoint: str, one: StreamLag) -> dict[str, str]:
    labels = {"checkpoint": checkpoint, "broker": one.broker_name}
    if one.topic is not None:
        labels |= {"topic": one.topic, "queue": str(one.queue_id)}
    return labels
