"""Who reads a queue in order, and for how long."""

from embermq.broker.members.queue_locks import QueueLocks, QueueName

FIRST, SECOND = QueueName("T", "b", 0), QueueName("T", "b", 1)


def test_a_lock_is_held_by_one_client() -> None:
    locks = QueueLocks(10)
    assert locks.lock("g", "c1", [FIRST], now=0.0) == [FIRST]
    assert locks.lock("g", "c2", [FIRST, SECOND], now=1.0) == [SECOND]
    assert locks.lock("other", "c2", [FIRST], now=1.0) == [FIRST], "groups do not share locks"


def test_a_lock_expires_a_minute_after_its_renewal() -> None:
    locks = QueueLocks(10)
    locks.lock("g", "c1", [FIRST], now=0.0)
    assert locks.lock("g", "c1", [FIRST], now=50.0) == [FIRST]
    assert locks.lock("g", "c2", [FIRST], now=110.0) == [], "renewed at 50"
    assert locks.lock("g", "c2", [FIRST], now=110.1) == [FIRST]


def test_locks_that_are_not_renewed_are_forgotten() -> None:
    locks = QueueLocks(10)
    locks.lock("g", "c1", [FIRST], now=0.0)
    locks.lock("g", "c1", [SECOND], now=30.0)
    locks.expire(60.0)
    assert len(locks) == 2
    locks.expire(60.1)
    assert len(locks) == 1


def test_only_the_owner_unlocks() -> None:
    locks = QueueLocks(10)
    locks.lock("g", "c1", [FIRST], now=0.0)
    locks.unlock("g", "c2", [FIRST])
    locks.unlock("unknown", "c1", [FIRST])
    assert len(locks) == 1
    locks.unlock("g", "c1", [FIRST, SECOND])
    assert len(locks) == 0
