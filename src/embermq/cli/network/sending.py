"""`embermq message send`."""

import click
import msgspec

from embermq.cli.given import message_bodies, parse_pairs, standard_input
from embermq.cli.network.asking import NetworkAccess, connects, fail
from embermq.cli.network.tables import queue_of, show_table
from embermq.cli.output import Output, TableColumn, number
from embermq.cli.topic_words import TopicCommand, topic_parameter
from embermq.client import Producer, SendResult
from embermq.errors import OptionInvalid
from embermq.model.message import Message

# A line of standard input is sent while the ones before it are on their way: at most so many are.
IN_FLIGHT_MAX = 256


class SentMessage(msgspec.Struct, frozen=True, rename="camel"):
    """Where a message was stored."""

    msg_id: str
    uniq_key: str
    status: str
    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int


@click.command(cls=TopicCommand)
@topic_parameter()
@click.argument("body", metavar="[BODY]", required=False)
@click.option("--lines", is_flag=True, help="Each line of standard input becomes a message.")
@click.option("--tags", help="Tag of the message.")
@click.option("--key", "keys", multiple=True, help="A key to find the message by; may be given several times.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="A property; repeatable.")
@click.option("--delay-level", type=click.IntRange(0, 18), default=0, help="Deliver later: 1 is 1 s, 18 is 2 h.")
@click.option("--queue", metavar="BROKER:ID", help="To this queue.")
@click.option("--group", default="TOOLS_PRODUCER", show_default=True, help="Producer group.")
@click.option("--trace", is_flag=True, help="Write a trace of it, for `embermq message trace`.")
@connects
def send(
    output: Output,
    access: NetworkAccess,
    topic: str,
    body: str | None,
    lines: bool,
    tags: str | None,
    keys: tuple[str, ...],
    properties: tuple[str, ...],
    delay_level: int,
    queue: str | None,
    group: str,
    trace: bool,
) -> None:
    """Send BODY, or standard input, to TOPIC; exit code 1 if a message was stored with a reservation.

    \b
    embermq message send orders 'hello' --tags created --key o-17
    seq 1000 | embermq message send numbers --lines
    embermq message send orders 'first' --queue broker-a:0 --trace
    """
    if body is not None and lines:
        raise OptionInvalid("--lines", "it reads standard input: give either BODY or --lines")
    given = parse_pairs("--property", properties)
    source = standard_input() if body is None else None
    target = None if queue is None else queue_of(topic, queue)
    messages = (
        Message(topic, one, tags=tags, keys=keys, properties=given, delay_level=delay_level)
        for one in message_bodies(body, source, lines)
    )
    producer = Producer(
        access.name_servers,
        group,
        credentials=access.credentials,
        tls=access.tls,
        trace=trace,
        in_flight_max=IN_FLIGHT_MAX,
    )
    with producer, output.working(f"sending to {topic}"):
        futures = [producer.send_async(message, queue_by=target) for message in messages]
        sent = [_sent(topic, future.result()) for future in futures]
    columns = [
        TableColumn("msgId", "message id"),
        TableColumn("uniqKey", "unique id"),
        TableColumn("status", "status"),
        TableColumn("brokerName", "broker"),
        number("queueId", "queue", str),
        number("queueOffset", "queue offset"),
    ]
    show_table(output, "sent", columns, sent, empty="no messages were given")
    if any(one.status != "SEND_OK" for one in sent):
        fail()


def _sent(topic: str, result: SendResult) -> SentMessage:
    return SentMessage(
        result.offset_message_id,
        result.message_id,
        str(result.status),
        topic,
        result.queue.broker,
        result.queue.queue_id,
        result.queue_offset,
    )
