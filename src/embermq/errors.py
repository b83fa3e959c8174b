"""Every exception this package raises on purpose, as one tree.

    EmberError
    ├─ SettingsError                 names file, line, key, value
    ├─ OptionInvalid                 an option of the Spark format, or a value given to a command
    ├─ InputInvalid                  a line of a file that was handed in: names file, line, column
    ├─ ExpressionInvalid             a SQL92 filter that cannot be compiled: names line, column and token
    ├─ JavaMissing                   Spark needs a Java and there is none that works
    ├─ SparkTooOld                   the installed Spark lacks a feature: names both versions
    ├─ RemotingError
    │  ├─ FrameInvalid               bytes from the network that are no frame
    │  ├─ HeaderInvalid              a request without a field it needs, or with one that cannot be read
    │  ├─ ConnectFailed              a peer that cannot be reached
    │  ├─ ConnectionLost             the connection ended before the answer came
    │  └─ CallTimeout                no answer in time
    ├─ ClientError                   what a producer, consumer or administrator asked for was not done
    │  ├─ ClientClosed               a call after close()
    │  ├─ NameServersUnreachable     none of the name servers answers
    │  ├─ RouteMissing               no broker serves the topic
    │  ├─ NameUnknown                a group, broker, cluster or message that is not there, with the nearest name
    │  ├─ BrokerUnreachable          no connection to a broker, or no answer: names broker, address and topic
    │  ├─ RequestRefused             a broker or name server said no: names it, its code and remark, and what to do
    │  │  ├─ BrokerBusy              flow control: later
    │  │  ├─ BrokerReadOnly          it takes no messages now: another broker may
    │  │  ├─ MessageIllegal          the message breaks a limit of the broker
    │  │  ├─ PermissionMissing       the topic, the group or the account may not
    │  │  ├─ TopicMissing            the broker does not have the topic
    │  │  ├─ GroupMissing            the broker does not have the consumer group
    │  │  ├─ SubscriptionRefused     the expression is wrong, or not the one that the group registered
    │  │  └─ RequestUnsupported      the broker does not know this request
    │  ├─ SendFailed                 no try to send a message succeeded: holds the error of each
    │  ├─ ReplyMissing               a request–reply that got no reply in time
    │  ├─ QueueNotAssigned           a queue that this consumer does not read
    │  ├─ OffsetsUnreadable          the offsets file of a broadcasting consumer
    │  └─ AnswerInvalid              an answer that cannot be read
    ├─ NamesrvError
    │  ├─ LimitReached               a table of the name server is full: nothing was changed
    │  └─ KvConfigFailed             a change of the KV config could not be written down: it was not made
    ├─ ReplicationError
    │  ├─ ReplicaMisbehaved          a peer that does not keep to the replication protocol
    │  ├─ MasterFenced               another master of this name was promoted later
    │  └─ LogsDiffer                 the log of a master does not continue that of its slave
    ├─ StoreError
    │  ├─ StorePathInvalid           the directory is a file, foreign, or not permitted
    │  │  └─ PlaceUnavailable        a file system does not answer, or not now: trying again may help
    │  ├─ StoreLocked                another process (or this one) has the store open
    │  ├─ StoreClosed                a call after close()
    │  ├─ StoreReadOnly              a write on a store opened with read_only=True
    │  ├─ ReplicaMissing             brokerRole=SYNC_MASTER promises a replica, and there is none
    │  ├─ RawBytesInvalid            bytes for a replica's log that do not continue it
    │  ├─ ReadRefused                reads are switched off
    │  ├─ CorruptFrame               a record that does not add up, with its place
    │  ├─ QueueUnknown               a topic and queue that were never written to
    │  ├─ TopicUnknown               a topic that is not in the store, with the nearest names there are
    │  ├─ DataLost                   messages that were asked for are gone (retention, or a cut log)
    │  ├─ StoreReplaced              another store lies at the path of the one that was read before
    │  ├─ MessageIdInvalid           text that is no message id
    │  ├─ AppendRefused              the store cannot take a message now (status says why)
    │  │  ├─ DiskFull
    │  │  ├─ PageCacheBusy
    │  │  ├─ SegmentUnavailable      the next log file could not be created
    │  │  ├─ FlushFailed             an fsync failed: nothing more is acknowledged until reopened
    │  │  └─ WriterFenced            another process may be writing to the store: this one has stopped
    │  └─ MessageRejected            this message can never be stored
    │     ├─ TopicNameInvalid
    │     ├─ QueueIdInvalid
    │     ├─ BodyTooLarge
    │     ├─ PropertiesTooLarge
    │     ├─ PropertyInvalid
    │     ├─ DeliveryTimeInvalid
    │     ├─ RecordTooLarge
    │     └─ BatchInvalid
    └─ SettingsWarning is a warning, not an error: unknown or ignored settings

Expected answers (nothing found, offset moved, flush timed out) are values, not exceptions.
Errors of `append` carry `status`, the name Apache RocketMQ gives to the same refusal.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

_COMMAND_SHOWN = 80  # characters of a command line in a message
_Error = TypeVar("_Error", bound=Exception)


class EmberError(Exception):
    """The root: catch this to catch everything this package raises on purpose."""


class SettingsError(EmberError):
    """A setting has a value that cannot be used."""

    def __init__(
        self, reason: str, *, key: str | None = None, value: object = None, file: str | None = None, line: int = 0
    ) -> None:
        place = f"{file}:{line}: " if file and line else (f"{file}: " if file else "")
        subject = f"{key} = {value!r}: " if key else ""
        super().__init__(f"{place}{subject}{reason}")
        self.reason, self.key, self.value, self.file, self.line = reason, key, value, file, line


class SettingsWarning(UserWarning):
    """Settings that are unknown, or known and not honoured."""


class OptionInvalid(EmberError):
    """An option that does not exist, contradicts another one, or has a value that cannot be used."""

    def __init__(self, option: str, reason: str, *, value: object = None) -> None:
        subject = f"option {option}" if value is None else f"option {option} = {value!r}"
        super().__init__(f"{subject}: {reason}")
        self.option, self.reason, self.value = option, reason, value


class InputInvalid(EmberError):
    """A line of a file that was handed in cannot be used."""

    def __init__(self, file: str, line: int, column: int, reason: str) -> None:
        super().__init__(f"{file}:{line}:{column}: {reason}")
        self.file, self.line, self.column, self.reason = file, line, column, reason


class ExpressionInvalid(EmberError):
    """A SQL92 expression that cannot be compiled.

    `line` and `column` count from 1, and are 0 if no one place is at fault.
    """

    def __init__(self, reason: str, *, line: int = 0, column: int = 0, token: str = "") -> None:
        place = f"line {line}, column {column}: " if line else ""
        super().__init__(f"{place}{reason}")
        self.reason, self.line, self.column, self.token = reason, line, column, token


class JavaMissing(EmberError):
    """Spark needs Java 17 or later, and none was found that works."""


class SparkTooOld(EmberError):
    """The installed Spark lacks what was asked for; a later version has it."""

    def __init__(self, feature: str, *, needed: str, installed: str) -> None:
        super().__init__(
            f"{feature} needs Spark {needed} or later, and Spark {installed} is installed:"
            f" pip install 'pyspark>={needed},<4.4' (docs/spark-versions.md has what each version can do)"
        )
        self.feature, self.needed, self.installed = feature, needed, installed


class RemotingError(EmberError):
    """Something between this process and a peer."""


class FrameInvalid(RemotingError):
    """Bytes that are no frame of the remoting protocol. What follows them cannot be read either."""


class HeaderInvalid(RemotingError):
    """A field of a request is missing or cannot be read."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"header field {field}: {reason}")
        self.field, self.reason = field, reason


class ConnectFailed(RemotingError):
    """A peer cannot be reached."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot connect to {address}: {reason}")
        self.address, self.reason = address, reason


class ConnectionLost(RemotingError):
    """The connection ended before the answer came; the peer may have done what was asked."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"the connection to {address} ended: {reason}")
        self.address, self.reason = address, reason


class CallTimeout(RemotingError):
    """No answer came in time; the peer may have done what was asked."""

    def __init__(self, address: str, what: str, seconds: float) -> None:
        super().__init__(f"{address} did not answer {what} within {seconds:g} s")
        self.address, self.what, self.seconds = address, what, seconds


class ClientError(EmberError):
    """What a producer, a consumer or an administrator asked for was not done."""


class ClientClosed(ClientError):
    """A call on a client that is not open."""

    def __init__(self, what: str, why: str = "is closed") -> None:
        super().__init__(f"{what} {why}")
        self.what, self.why = what, why


class NameServersUnreachable(ClientError):
    """None of the name servers answers."""

    def __init__(self, addresses: Sequence[str], reason: str) -> None:
        super().__init__(
            f"no name server answers ({reason}); check that one runs at {', '.join(addresses)} and can be reached"
        )
        self.addresses, self.reason = tuple(addresses), reason


class RouteMissing(ClientError):
    """No broker serves the topic."""

    def __init__(self, topic: str, name_servers: Sequence[str], reason: str = "") -> None:
        why = reason or "create the topic, or check that its brokers run and are registered"
        super().__init__(f"topic {topic!r}: the name servers ({', '.join(name_servers)}) know no broker for it; {why}")
        self.topic, self.name_servers = topic, tuple(name_servers)


class NameUnknown(ClientError):
    """A group, a broker, a cluster or a message that the cluster does not have."""

    def __init__(self, kind: str, name: str, nearest: Sequence[str] = (), advice: str = "") -> None:
        hint = advice or (f"did you mean {nearest[0]}?" if nearest else "check the name")
        super().__init__(f"{kind} {name!r} is not known; {hint}" if name else f"no {kind}: {hint}")
        self.kind, self.name, self.nearest, self.advice = kind, name, tuple(nearest), advice


def _subject(topic: str, group: str) -> str:
    parts = [f"topic {topic!r}"] if topic else []
    return ", ".join([*parts, f"group {group!r}"] if group else parts)


class BrokerUnreachable(ClientError):
    """No connection to a broker, or no answer from it. `is_sent`: it may have done what was asked."""

    def __init__(
        self, broker: str, address: str, what: str, reason: str, *, topic: str = "", group: str = "", is_sent: bool
    ) -> None:
        subject = _subject(topic, group)
        advice = "it may have been done all the same" if is_sent else "check that it runs and can be reached"
        where = f"broker {broker} ({address})" if broker else address
        super().__init__(f"{what}{f' ({subject})' if subject else ''}: {where}: {reason}; {advice}")
        self.broker, self.address, self.what, self.reason = broker, address, what, reason
        self.topic, self.group, self.is_sent = topic, group, is_sent


class RequestRefused(ClientError):
    """A broker or name server did not do what was asked, and said so."""

    def __init__(
        self,
        what: str,
        code: int,
        code_name: str,
        remark: str,
        *,
        broker: str,
        address: str,
        topic: str = "",
        group: str = "",
        advice: str = "",
    ) -> None:
        subject = _subject(topic, group)
        where = f"broker {broker} ({address})" if broker else address
        said = f"{code_name}{f': {remark}' if remark else ''}"
        super().__init__(
            f"{what}{f' ({subject})' if subject else ''}: {where} answers {said}{f'; {advice}' if advice else ''}"
        )
        self.what, self.code, self.code_name, self.remark = what, code, code_name, remark
        self.broker, self.address, self.topic, self.group, self.advice = broker, address, topic, group, advice


class BrokerBusy(RequestRefused):
    """The broker has too much to do; the same may work a little later."""


class BrokerReadOnly(RequestRefused):
    """The broker takes no messages now: its disk is full, it is shutting down, or it is a slave."""


class MessageIllegal(RequestRefused):
    """The message breaks a limit of the broker."""


class PermissionMissing(RequestRefused):
    """The topic, the group or the account does not permit it."""


class TopicMissing(RequestRefused):
    """The broker does not have the topic."""


class GroupMissing(RequestRefused):
    """The broker does not have the consumer group, and does not create it."""


class SubscriptionRefused(RequestRefused):
    """The expression cannot be used, or is not the one that the group has registered."""


class RequestUnsupported(RequestRefused):
    """The broker does not know this request."""


class SendFailed(ClientError):
    """A message was not sent: no try succeeded. `attempts` are the errors, in order; the last is the cause as well."""

    def __init__(self, topic: str, attempts: Sequence[ClientError], reason: str) -> None:
        last = f"; the last said: {attempts[-1]}" if attempts else ""
        super().__init__(f"a message for topic {topic!r} was not sent: {reason}{last}")
        self.topic, self.attempts, self.reason = topic, tuple(attempts), reason


class ReplyMissing(ClientError):
    """A request was sent, and no reply came in time."""

    def __init__(self, topic: str, seconds: float) -> None:
        super().__init__(
            f"topic {topic!r}: no reply within {seconds:g} s; check that a consumer of it replies, or wait longer"
        )
        self.topic, self.seconds = topic, seconds


class QueueNotAssigned(ClientError):
    """A consumer was asked about a queue that it does not read."""

    def __init__(self, queue: str, group: str, assigned: Sequence[str]) -> None:
        listed = ", ".join(assigned[:8]) + (", ..." if len(assigned) > 8 else "")
        has = f"its queues are {listed}" if assigned else "it has none: subscribe or assign first"
        super().__init__(f"queue {queue} is not one of this consumer of group {group!r}; {has}")
        self.queue, self.group, self.assigned = queue, group, tuple(assigned)


class OffsetsUnreadable(ClientError):
    """The file with the offsets of a broadcasting consumer cannot be used."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}; repair it, or move it away to begin where consume_from says")
        self.path, self.reason = path, reason


class AnswerInvalid(ClientError):
    """A broker's or name server's answer cannot be read."""

    def __init__(self, what: str, address: str, reason: str) -> None:
        super().__init__(f"{what}: the answer of {address} cannot be read: {reason}")
        self.what, self.address, self.reason = what, address, reason


class NamesrvError(EmberError):
    """The name server cannot do what was asked."""


class LimitReached(NamesrvError):
    """A table of the name server is as large as it may get."""

    def __init__(self, what: str, limit: int, setting: str = "") -> None:
        super().__init__(f"{what}: the limit is {limit:,}{f' ({setting})' if setting else ''}")
        self.what, self.limit, self.setting = what, limit, setting


class KvConfigFailed(NamesrvError):
    """The KV config cannot be written down."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"the KV config was not changed: {path} {reason}")
        self.path, self.reason = path, reason


class ReplicationError(EmberError):
    """Something between a master and its slaves."""


class ReplicaMisbehaved(ReplicationError):
    """The other side of a replication connection sent what the protocol does not allow; the connection is closed."""


class MasterFenced(ReplicationError):
    """Another broker was made the master of this name later: this one may not be it any more."""

    def __init__(self, broker_name: str, address: str, epoch: int) -> None:
        super().__init__(
            f"{address} is master of {broker_name} since epoch {epoch}, which is later than that of this store;"
            f" stop this broker, `embermq broker demote DIR --master {address}`, and start it as a SLAVE"
        )
        self.broker_name, self.address, self.epoch = broker_name, address, epoch


class LogsDiffer(ReplicationError):
    """A master's log does not continue this one. Nothing was changed on either side."""

    def __init__(self, physical_offset: int, reason: str) -> None:
        super().__init__(
            f"the master's log does not continue the log here: {reason}; this log was left as it is"
            " (`embermq broker --resync` moves it aside and copies the master's)"
        )
        self.physical_offset, self.reason = physical_offset, reason


class StoreError(EmberError):
    """The store cannot do what was asked."""


class StorePathInvalid(StoreError):
    """The path cannot be a store: a file, a foreign directory, or no permission."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class PlaceUnavailable(StorePathInvalid):
    """A file system did not answer in time, or said that it cannot at the moment; the same may work later."""


def _program(command: str) -> str:
    """What runs there, in a few words: `java BrokerStartup`, `python -m embermq.cli`; a broker's whole command line
    has hundreds of characters."""
    words = command.split()
    name = words[0].rpartition("/")[2]
    if name.startswith("python") and "-m" in words[1:-1]:
        name = f"{name} -m {words[words.index('-m') + 1]}"
    elif name.startswith("java"):
        main = next((word for word in words[1:] if re.fullmatch(r"(\w+\.)+[A-Z]\w*", word)), "")
        name = f"{name} {main.rpartition('.')[2]}".rstrip()
    elif name.startswith("python") and "-c" not in words:
        script = next((word for word in words[1:] if not word.startswith("-")), "")
        name = f"{name} {script.rpartition('/')[2]}".rstrip()
    return name if len(name) <= _COMMAND_SHOWN else f"{name[:_COMMAND_SHOWN]}…"


class StoreLocked(StoreError):
    """Another process has this store open for writing."""

    def __init__(self, path: Path, holder_pid: int | None, holder: str = "") -> None:
        who = f"process {holder_pid}" if holder_pid else "another process"
        detail = f" ({_program(holder)})" if holder.strip() else ""
        super().__init__(
            f"{path} is already open for writing by {who}{detail}; close it there, or open with read_only=True"
        )
        self.path, self.holder_pid, self.holder = path, holder_pid, holder


class StoreClosed(StoreError):
    """The store was closed before this call."""

    status = "SERVICE_NOT_AVAILABLE"

    def __init__(self, path: Path, why: str = "is closed") -> None:
        super().__init__(f"the store at {path} {why}")
        self.path = path


class StoreReadOnly(StoreError):
    """The store was opened read-only."""

    status = "SERVICE_NOT_AVAILABLE"

    def __init__(self, path: Path) -> None:
        super().__init__(f"the store at {path} was opened with read_only=True; open it without to write")
        self.path = path


class ReplicaMissing(StoreError):
    """The settings promise that a second copy exists of each acknowledged message; this store cannot make one."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(
            f"{path}: brokerRole=SYNC_MASTER: an acknowledgement would promise a replica that does not exist, because"
            " a store alone replicates nothing: run it behind `embermq broker`, set brokerRole=ASYNC_MASTER, or"
            " emberAllowUnreplicated=true to append without a replica"
        )
        self.path = path


class RawBytesInvalid(StoreError):
    """Bytes of a master's log that do not continue this replica's, or are damaged. Nothing of them was stored."""

    def __init__(self, physical_offset: int, reason: str) -> None:
        super().__init__(f"log bytes for physical offset {physical_offset}: {reason}")
        self.physical_offset, self.reason = physical_offset, reason


class ReadRefused(StoreError):
    """Reads are switched off (`set_readable(False)`)."""

    status = "SERVICE_NOT_AVAILABLE"


class CorruptFrame(StoreError):
    """A record in the log does not add up."""

    def __init__(self, physical_offset: int, reason: str) -> None:
        super().__init__(f"the record at physical offset {physical_offset} is damaged: {reason}")
        self.physical_offset, self.reason = physical_offset, reason


class QueueUnknown(StoreError):
    """No message was ever stored in this topic and queue."""

    def __init__(self, topic: str, queue_id: int, known: str = "") -> None:
        super().__init__(f"topic {topic!r} has no queue {queue_id}{known}")
        self.topic, self.queue_id = topic, queue_id


class TopicUnknown(StoreError):
    """There is no such topic in the store."""

    def __init__(self, topic: str, path: Path | str, nearest: Sequence[str] = ()) -> None:
        hint = f"; did you mean {', '.join(nearest)}?" if nearest else ""
        super().__init__(f"topic {topic!r} is not in {path}{hint}")
        self.topic, self.path, self.nearest = topic, path, tuple(nearest)


class DataLost(StoreError):
    """Messages that were asked for are not in the log any more."""


class StoreReplaced(StoreError):
    """The store at this path is not the one that was read before."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"{path} is not the store that was read before: {reason}")
        self.path, self.reason = path, reason


class MessageIdInvalid(StoreError):
    """The text is no message id (32 or 56 hexadecimal digits)."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is not a message id: 32 (IPv4) or 56 (IPv6) hexadecimal digits are expected")
        self.text = text


class AppendRefused(StoreError):
    """The store cannot take a message now; a later try may work."""

    def __init__(self, reason: str, status: str = "SERVICE_NOT_AVAILABLE") -> None:
        super().__init__(reason)
        self.reason, self.status = reason, status


class DiskFull(AppendRefused):
    """The disk is too full for more messages; reads go on."""


class PageCacheBusy(AppendRefused):
    """An append has been holding the writer for too long; try again in a moment."""

    def __init__(self, held_ms: int) -> None:
        super().__init__(
            f"an append has held the writer for {held_ms} ms, the disk is not keeping up; try again",
            "OS_PAGECACHE_BUSY",
        )
        self.held_ms = held_ms


class SegmentUnavailable(AppendRefused):
    """The next log file could not be created."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the next log file could not be created: {reason}", "CREATE_MAPEDFILE_FAILED")


class FlushFailed(AppendRefused):
    """An fsync failed, so the message is not known to be durable and is not acknowledged."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the disk refused to make data durable ({reason}); the store is read-only until it is reopened",
            "SERVICE_NOT_AVAILABLE",
        )


class WriterFenced(AppendRefused, OSError):
    """This opening is not the only writer of the store any more, and writes nothing until the store is opened again.

    An OSError as well: to code that writes files it is one more reason why a file cannot be written.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{reason}. This process takes no more messages and leaves the files of the store alone: close it, see to"
            f" it that only one process has {path} open for writing, and open it again"
        )
        self.path = path


class MessageRejected(StoreError):
    """This message can never be stored as it is."""

    status = "MESSAGE_ILLEGAL"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TopicNameInvalid(MessageRejected):
    """The topic name is empty, too long, or has a character that is not allowed."""

    def __init__(self, topic: object, reason: str) -> None:
        shown = repr(topic) if len(repr(topic)) <= 60 else repr(topic)[:57] + "..."
        super().__init__(f"topic {shown}: {reason}")
        self.topic = topic


class QueueIdInvalid(MessageRejected):
    """The queue id is negative or larger than a 32-bit number."""

    def __init__(self, queue_id: object) -> None:
        super().__init__(f"queue_id {queue_id!r}: a whole number from 0 to 2147483647 is expected")
        self.queue_id = queue_id


class BodyTooLarge(MessageRejected):
    """The body is larger than maxMessageSize."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"body of {size:,} bytes is larger than maxMessageSize ({limit:,} bytes)")
        self.size, self.limit = size, limit


class PropertiesTooLarge(MessageRejected):
    """The encoded properties do not fit the record's 16-bit length."""

    status = "PROPERTIES_SIZE_EXCEEDED"

    def __init__(self, size: int, limit: int = 32767) -> None:
        super().__init__(f"properties take {size:,} bytes; at most {limit:,} fit a record (tags and keys included)")
        self.size, self.limit = size, limit


class PropertyInvalid(MessageRejected):
    """A property, tag or key cannot be written without changing its meaning."""


class DeliveryTimeInvalid(MessageRejected):
    """A message asks to be delivered at a time that is too far away, or cancels one that was due already."""

    def __init__(self, due_ms: int, reason: str) -> None:
        super().__init__(f"delivery time {due_ms}: {reason}")
        self.due_ms = due_ms


class RecordTooLarge(MessageRejected):
    """The whole record does not fit one log file."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"record of {size:,} bytes does not fit a log file (at most {limit:,} bytes);"
            " raise mappedFileSizeCommitLog or send a smaller body"
        )
        self.size, self.limit = size, limit


class BatchInvalid(MessageRejected):
    """A batch that cannot be stored as one: delayed, transactional, or empty."""


def again(problem: _Error) -> _Error:
    """The same error as an object of its own, to be raised to one more caller.

    An object that is raised again and again collects the frames of everybody who got it, and all they held.
    """
    made = problem.__class__.__new__(problem.__class__)
    made.args = problem.args
    made.__dict__.update(problem.__dict__)
    return made
