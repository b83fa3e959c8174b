"""Messages with a delivery time of their own: when are they due, and where do they wait until then?

The properties are those of RocketMQ 5. One of them says when, the first that is there counts:

    TIMER_DELAY_SEC   seconds from now
    TIMER_DELAY_MS    milliseconds from now
    TIMER_DELIVER_MS  a time, in milliseconds since 1970

Such a message is parked in queue 0 of rmq_sys_wheel_timer, with TIMER_OUT_MS, the time at which it is due. One whose
time has come already is stored as if it had no delivery time. A message that names another one in TIMER_DEL_UNIQKEY
cancels it: it waits in queue 1, under the time of the one it cancels, and is never delivered itself.

A delay level (DELAY) wins over all of this, and a message that has TIMER_OUT_MS was parked before: it is not again.

Pure apart from the clock. Any thread.
"""

from collections.abc import Mapping

from embermq.clock import Clock
from embermq.errors import DeliveryTimeInvalid, PropertyInvalid
from embermq.model.properties import (
    TIMER_CANCEL,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_DUE_MS,
    TIMER_TOPIC,
)
from embermq.settings import StoreSettings

MESSAGES_QUEUE, CANCELS_QUEUE = 0, 1
TIMER_QUEUES = 2
_NAMES = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS)
_DIGITS_MAX = 18


def has_delivery_time(properties: Mapping[str, str]) -> bool:
    """Whether a message asks to be delivered later than now, by a time of its own."""
    return any(name in properties for name in _NAMES)


class TimedMessages:
    """What the properties of delivery times mean in one store."""

    def __init__(self, settings: StoreSettings, clock: Clock) -> None:
        self._is_enabled, self._clock = settings.timers, clock
        self._delay_ms_max = settings.timer_delay_seconds_max * 1000

    def applies(self, topic: str, properties: Mapping[str, str]) -> bool:
        """Whether a message has a delivery time that counts."""
        return (
            self._is_enabled
            and topic != TIMER_TOPIC
            and TIMER_DUE_MS not in properties
            and has_delivery_time(properties)
        )

    def park(self, topic: str, properties: dict[str, str]) -> tuple[str, int] | None:
        """Topic and queue in which a message waits for its time, which is added to its properties; None if it need not.

        PropertyInvalid for a time that is no number, DeliveryTimeInvalid for one that is too far away."""
        if not self.applies(topic, properties):
            return None
        now_ms = self._clock.now_ms()
        due_ms = _due_ms(properties, now_ms)
        is_cancel = TIMER_CANCEL in properties
        if due_ms <= now_ms:
            if is_cancel:
                raise DeliveryTimeInvalid(
                    due_ms, f"message {properties[TIMER_CANCEL]!r} was due then, and is not cancelled"
                )
            return None
        if due_ms - now_ms > self._delay_ms_max:
            days = self._delay_ms_max / 86_400_000
            raise DeliveryTimeInvalid(due_ms, f"more than {days:g} days from now; raise timerMaxDelaySec to allow it")
        properties[TIMER_DUE_MS] = str(due_ms)
        return TIMER_TOPIC, CANCELS_QUEUE if is_cancel else MESSAGES_QUEUE


def _due_ms(properties: Mapping[str, str], now_ms: int) -> int:
    for name in _NAMES:
        text = properties.get(name)
        if text is None:
            continue
        if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
            raise PropertyInvalid(
                f"property {name} = {text!r}: a whole number of at most {_DIGITS_MAX} digits is expected"
            )
        if name == TIMER_DELIVER_MS:
            return int(text)
        return now_ms + int(text) * (1000 if name == TIMER_DELAY_SEC else 1)
    raise AssertionError("asked of a message without a delivery time")
