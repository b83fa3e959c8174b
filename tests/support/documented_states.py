"""The states of a message with a delivery time, of one that a consumer gives back, of a registered filter, and of a
request that waits for a reply: the tables that tests go through row by row, and that tools/state_pages.py makes the
diagrams of docs/delays.md, docs/order-and-retries.md, docs/filters.md and docs/request-reply.md from."""

from typing import NamedTuple

NEW, WAITING, CANCELLED, DELIVERED, DONE, REFUSED = "new", "waiting", "cancelled", "delivered", "done", "refused"
QUEUE, DELAYED, RETRY, DEAD, DROPPED = "in_its_queue", "delayed", "in_the_retry_topic", "dead_letter", "dropped"
NONE, ALIVE, LEFT = "not_registered", "alive", "dead"
ASKED, ANSWERED, TIMED_OUT, GONE = "waiting", "answered", "timed_out", "given_up"


class Step(NamedTuple):
    """In a state, an event, and the state after it."""

    state: str
    event: str
    then: str


TIMED: tuple[Step, ...] = (
    Step(NEW, "sent with a time ahead", WAITING),
    Step(NEW, "sent with a time that has come", DELIVERED),
    Step(NEW, "sent with a time too far ahead", REFUSED),
    Step(NEW, "sent with a time that is no number", REFUSED),
    Step(WAITING, "its time comes", DELIVERED),
    Step(WAITING, "cancelled by key and time", CANCELLED),
    Step(WAITING, "cancelled by key and another time", WAITING),
    Step(WAITING, "half of fileReservedTime passes, stored again", WAITING),
    Step(WAITING, "the clock is set back", WAITING),
    Step(WAITING, "a restart", WAITING),
    Step(CANCELLED, "a restart", CANCELLED),
    Step(CANCELLED, "its time comes", DONE),
    Step(DELIVERED, "a restart", DELIVERED),
)

RETRIED: tuple[Step, ...] = (
    Step(QUEUE, "given back, level 3 + times tried", DELAYED),
    Step(QUEUE, "given back with a level", DELAYED),
    Step(QUEUE, "given back with a level below 0", DEAD),
    Step(QUEUE, "given back, retryMaxTimes is 0", DEAD),
    Step(QUEUE, "given back, retryQueueNums is 0", DROPPED),
    Step(QUEUE, "given back, the consumer's own limit is 0", DEAD),
    Step(DELAYED, "the delay ends", RETRY),
    Step(DELAYED, "a restart", DELAYED),
    Step(RETRY, "given back, retryMaxTimes is 1", DEAD),
    Step(RETRY, "given back again", DELAYED),
)

FILTERED: tuple[Step, ...] = (
    Step(NONE, "heartbeat with an expression", ALIVE),
    Step(NONE, "heartbeat with an expression that does not compile", NONE),
    Step(ALIVE, "heartbeat with a newer version", ALIVE),
    Step(ALIVE, "heartbeat with the same version", ALIVE),
    Step(ALIVE, "heartbeat with an older version", ALIVE),
    Step(ALIVE, "heartbeat with a newer version that does not compile", NONE),
    Step(ALIVE, "heartbeat without the topic, or with tags for it", LEFT),
    Step(ALIVE, "the last member of the group is gone", LEFT),
    Step(ALIVE, "filterDataCleanTimeSpan passes", ALIVE),
    Step(ALIVE, "a restart", LEFT),
    Step(LEFT, "heartbeat with the same version", ALIVE),
    Step(LEFT, "heartbeat with a newer version", ALIVE),
    Step(LEFT, "heartbeat with an older version", LEFT),
    Step(LEFT, "heartbeat with a newer version that does not compile", NONE),
    Step(LEFT, "a restart", LEFT),
    Step(LEFT, "filterDataCleanTimeSpan passes", NONE),
)

REPLIED: tuple[Step, ...] = (
    Step(ASKED, "the reply comes", ANSWERED),
    Step(ASKED, "a reply to another request comes", ASKED),
    Step(ASKED, "the timeout passes", TIMED_OUT),
    Step(ASKED, "the requester closes", GONE),
    Step(ANSWERED, "the reply comes again", ANSWERED),
    Step(TIMED_OUT, "the reply comes", TIMED_OUT),
    Step(GONE, "the reply comes", GONE),
)
