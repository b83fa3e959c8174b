"""The rules of a round: every combination of facts has one decision, and facts come from records."""

from dataclasses import dataclass
from itertools import product

import pytest

from embermq.broker.transactions.check_rules import RULES, CheckDecision, Facts, Limits, decide, facts_of, total_checks
from embermq.format.frame import encode
from embermq.model.hosts import Host
from embermq.model.message import StoredMessage
from embermq.model.properties import encode_properties
from tests.support.transactions import stored_of

LIMITS = Limits(timeout_ms=6000, checks_max=15, reserved_hours=72)
NOW = 1_704_067_200_000
HOST = Host("127.0.0.1", 10911)


@dataclass(frozen=True)
class Half:
    """A half message of so many milliseconds."""

    age_ms: int = 10_000
    stored_ms_ago: int = 10_000
    properties: tuple[tuple[str, str], ...] = ()

    def stored(self) -> StoredMessage:
        record = encode(
            physical_offset=0,
            queue_id=0,
            queue_offset=3,
            topic="RMQ_SYS_TRANS_HALF_TOPIC",
            body=b"x",
            properties=encode_properties(dict(self.properties)),
            born_timestamp=NOW - self.age_ms,
            born_host=HOST,
            store_timestamp=NOW - self.stored_ms_ago,
            store_host=HOST,
        )
        return stored_of(record)


def decision_on(half: Half | None, checks: int = 0, decided_before: frozenset[int] = frozenset()) -> CheckDecision:
    stored = half.stored() if half is not None else None
    return decide(facts_of(stored, checks, decided_before, NOW - 100, NOW, LIMITS))


@pytest.mark.parametrize("values", list(product((False, True), repeat=len(Facts._fields))))
def test_the_first_rule_that_holds_decides(values: tuple[bool, ...]) -> None:
    facts = Facts(*values)
    expected = [
        CheckDecision.FORGET,
        CheckDecision.FINISH,
        CheckDecision.GIVE_UP,
        CheckDecision.STOP,
        CheckDecision.WAIT,
        CheckDecision.STOP,
    ]
    first = next((decision for decision, holds in zip(expected, values, strict=True) if holds), CheckDecision.CHECK)
    assert decide(facts) is first


def test_the_last_rule_always_holds() -> None:
    assert RULES[-1][1](Facts(*[False] * 6))


IMMUNE = (("CHECK_IMMUNITY_TIME_IN_SECONDS", "60"),)


@pytest.mark.parametrize(
    ("half", "checks", "decision"),
    [
        (None, 0, CheckDecision.FORGET),
        (Half(), 0, CheckDecision.CHECK),
        (Half(), 14, CheckDecision.CHECK),
        (Half(), 15, CheckDecision.GIVE_UP),
        (Half(properties=(("TRANSACTION_CHECK_TIMES", "14"),)), 0, CheckDecision.CHECK),
        (Half(properties=(("TRANSACTION_CHECK_TIMES", "14"),)), 1, CheckDecision.GIVE_UP),
        (Half(properties=(("TRANSACTION_CHECK_TIMES", "many"),)), 0, CheckDecision.CHECK),
        (Half(age_ms=72 * 3_600_000), 0, CheckDecision.CHECK),
        (Half(age_ms=72 * 3_600_000 + 1), 0, CheckDecision.GIVE_UP),
        (Half(stored_ms_ago=101), 0, CheckDecision.CHECK),
        (Half(stored_ms_ago=100), 0, CheckDecision.STOP),
        (Half(age_ms=5999), 0, CheckDecision.STOP),
        (Half(age_ms=6000), 0, CheckDecision.CHECK),
        (Half(age_ms=-1), 0, CheckDecision.CHECK),
        (Half(age_ms=59_999, properties=IMMUNE), 0, CheckDecision.WAIT),
        (Half(age_ms=60_000, properties=IMMUNE), 0, CheckDecision.CHECK),
        (Half(age_ms=-1, properties=IMMUNE), 0, CheckDecision.WAIT),
        (Half(age_ms=5999, properties=(("CHECK_IMMUNITY_TIME_IN_SECONDS", "soon"),)), 0, CheckDecision.WAIT),
        (Half(age_ms=6000, properties=(("CHECK_IMMUNITY_TIME_IN_SECONDS", "soon"),)), 0, CheckDecision.CHECK),
        (Half(age_ms=100, properties=(("CHECK_IMMUNITY_TIME_IN_SECONDS", "0"),)), 0, CheckDecision.CHECK),
    ],
)
def test_what_is_done(half: Half | None, checks: int, decision: CheckDecision) -> None:
    assert decision_on(half, checks) is decision


def test_a_copy_of_a_decided_half_message_is_finished() -> None:
    copy = Half(properties=(("TRAN_PREPARED_QUEUE_OFFSET", "7"),))
    assert decision_on(copy, decided_before=frozenset((7,))) is CheckDecision.FINISH
    assert decision_on(copy, decided_before=frozenset((8,))) is CheckDecision.CHECK


def test_checks_of_other_brokers_count() -> None:
    assert total_checks(Half(properties=(("TRANSACTION_CHECK_TIMES", "4"),)).stored(), 3) == 7
