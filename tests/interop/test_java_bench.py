"""The benchmark with RocketMQ's Java client at smoke size: it runs, and both brokers hold the same messages."""

from pathlib import Path

import pytest

from bench import network_java
from bench.course import Course

pytestmark = pytest.mark.interop

ANSWER = "4887532e54a2"


def test_the_java_client_beside_both_brokers(tmp_path: Path) -> None:
    why_not = network_java.missing()
    if why_not is not None:
        pytest.skip(why_not)
    figures = network_java.run(Course("smoke", 1, tmp_path, peers=True))
    assert {figure.answer for figure in figures if figure.answer} == {ANSWER}
    assert all(value > 0 for figure in figures for value in figure.rounds)
    cases = {case.name for case in (*network_java.CASES, network_java.CATCH_UP)}
    assert {figure.case for figure in figures if figure.verdict in ("met", "missed")} == cases
    assert not list(tmp_path.iterdir()), "a scenario leaves nothing behind"
