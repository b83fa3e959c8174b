"""How many messages wait, and how fast that changes."""

import io

from rich.console import Console

from embermq.cli.network.following import TopicLag, lag_picture, topic_lags
from embermq.cli.output import Output
from embermq.client.admin import Progress, QueueProgress


def progress(*queues: tuple[str, int, int]) -> Progress:
    found = [
        QueueProgress(topic, "broker-a", at, end, consumed, end - consumed, None)
        for at, (topic, end, consumed) in enumerate(queues)
    ]
    return Progress("billing", 0.0, sum(one.lag for one in found), found)


def test_queues_of_a_topic_are_added_up() -> None:
    assert topic_lags(progress(("a", 10, 4), ("b", 5, 5), ("a", 3, 0)), None, 0.0) == [
        TopicLag("a", 9, None, None),
        TopicLag("b", 0, None, None),
    ]


def test_rates_are_those_between_two_looks() -> None:
    before, now = progress(("a", 10, 4)), progress(("a", 30, 8), ("new", 1, 0))
    assert topic_lags(now, before, 2.0) == [TopicLag("a", 22, 10.0, 2.0), TopicLag("new", 1, None, None)]


def test_a_terminal_gets_a_table() -> None:
    now = progress(("a", 30, 8))
    screen = io.StringIO()
    Console(file=screen, width=80).print(lag_picture(Output(False), now, topic_lags(now, progress(("a", 10, 4)), 2.0)))
    shown = screen.getvalue()
    assert "billing   lag 22" in shown
    assert shown.splitlines()[-1].split() == ["a", "22", "10.0", "2.0"]
