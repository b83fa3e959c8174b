"""The mark of all slaves: it grows with the best of them, and says who may have what soon."""

from embermq.replication import Replicas


def test_the_mark_is_that_of_the_best_and_never_goes_back() -> None:
    replicas, told = Replicas(1000), list[int]()
    replicas.listen(told.append)
    one, two = replicas.joined("a:1"), replicas.joined("b:1")
    replicas.moved(one, 0, 500, 100)
    replicas.moved(two, 0, 500, 300)
    replicas.moved(one, 0, 500, 200)
    assert replicas.mark == 300
    assert told == [100, 300]
    replicas.left(two)
    assert replicas.mark == 300  # It has gone, and keeps what it has.
    assert [view.acknowledged for view in replicas.view()] == [200]


def test_one_that_has_not_said_where_it_is_does_not_count() -> None:
    replicas = Replicas(1000)
    replica = replicas.joined("a:1")
    assert len(replicas) == 0
    assert not replicas.can_have(10)
    assert replicas.view() == []
    replicas.moved(replica, 10, 10, 0)
    assert len(replicas) == 1
    assert replicas.can_have(10)


def test_one_too_far_behind_cannot_have_it_soon() -> None:
    replicas = Replicas(1000)
    replica = replicas.joined("a:1")
    replicas.moved(replica, 5000, 5000, 0)
    assert replicas.can_have(5999)  # Where it began counts, though it acknowledges nothing.
    assert not replicas.can_have(6000)
    replicas.moved(replica, 5000, 7000, 6500)
    assert replicas.can_have(7499)


def test_what_a_slave_still_needs_is_kept_within_bounds() -> None:
    replicas = Replicas(1000)
    assert not replicas.needs(100, 800)
    replica = replicas.joined("a:1")
    assert not replicas.needs(100, 800)  # It has not said where it is.
    replicas.moved(replica, 50, 800, 50)
    assert replicas.needs(100, 800)
    replicas.moved(replica, 50, 800, 100)
    assert not replicas.needs(100, 800)
    assert replicas.needs(200, 1099)
    assert not replicas.needs(200, 1100)  # Too far behind, whatever it was sent: the disk is not kept full for it.
