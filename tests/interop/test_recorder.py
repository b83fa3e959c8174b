"""The same raw requests to RocketMQ's broker and to ours: what both send back is compared frame by frame.

Differences there may be are rows in recorder/wanted.py, each with a line in docs/compatibility.md; all others fail.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from embermq.remoting import RequestCode
from tests.interop import java_broker, reference
from tests.interop.java_broker import broker_config, java_server
from tests.interop.recorder import admins, clients, habits, oddities, reads, sends, transactions
from tests.interop.recorder.answers import comparable, pushes
from tests.interop.recorder.wanted import OWN_SETTINGS, WANTED, Answer, differences
from tests.interop.recorder.wire import Step, playing
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.interop

COMPATIBILITY = reference.ROOT / "docs" / "compatibility.md"
SETTINGS = ("brokerName=broker-a", "brokerIP1=127.0.0.1")
# Refused by name here (docs/compatibility.md); what RocketMQ does with them changes its files.
NOT_SENT = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.QUERY_TOPICS_BY_CONSUMER,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
}


@dataclass(frozen=True)
class Recording:
    """What one broker sent."""

    answers: dict[str, Answer]
    pushed: dict[str, list[Any]]


def common_steps() -> list[Step]:
    return [*sends.steps(), *reads.steps(), *clients.steps(), *habits.steps(), *admins.steps(), *transactions.steps()]


def odd_steps() -> list[Step]:
    return [*transactions.odd_steps(), *oddities.steps()]


def record(port: int) -> Recording:
    common, odd = common_steps(), odd_steps()
    with playing(port) as player:
        player.play(common)
        pushed = pushes(player, port)
        player.play(odd)
        answers = {step.name: comparable(step, player.answers[step.name], player, port) for step in [*common, *odd]}
    return Recording(answers, pushed)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    try:
        java_broker.class_path()
    except reference.ReferenceMissing as why:
        pytest.skip(str(why))
    place = tmp_path_factory.mktemp("theirs")
    config = broker_config(place, "") | {"mappedFileSizeCommitLog": 16 << 20}
    del config["namesrvAddr"]
    with java_server("broker.BrokerStartup", place, config):
        return record(int(str(config["listenPort"])))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    arguments = [word for one in SETTINGS for word in ("--set", one)]
    with BrokerProcess(tmp_path_factory.mktemp("ours"), *arguments) as broker:
        yield record(int(broker.address.rpartition(":")[2]))
        assert "level=ERROR" not in broker.log


def test_every_answer_is_the_same_but_where_it_is_wanted(theirs: Recording, ours: Recording) -> None:
    used, others = set(), []
    for step, answer in theirs.answers.items():
        for part, row in differences(step, answer, ours.answers[step]):
            if row is None:
                others.append(f"{step}: {part}: {answer.get(part)!r:.400} became {ours.answers[step].get(part)!r:.400}")
            used.add(row)
    assert others == [], "\n".join(others)
    assert [row for row in WANTED if row not in used] == [], "rows of the table that nothing needs"


def test_what_clients_are_asked_is_the_same(theirs: Recording, ours: Recording) -> None:
    """In any order: a broker of RocketMQ notifies from several threads."""
    both = [{name: sorted(asked, key=repr) for name, asked in one.pushed.items()} for one in (ours, theirs)]
    assert both[0] == both[1]


def test_settings_that_both_have_are_the_same(theirs: Recording, ours: Recording) -> None:
    ask = "settings: all"
    their_own, own = theirs.answers[ask]["body"], ours.answers[ask]["body"]
    shared = their_own.keys() & own.keys() - OWN_SETTINGS
    assert len(shared) > 60
    assert {key: own[key] for key in shared} == {key: their_own[key] for key in shared}


def test_the_runtime_table_has_all_names(theirs: Recording, ours: Recording) -> None:
    names = [set(one.answers["figures: runtime"]["body"]["table"]) for one in (theirs, ours)]
    missing = {name for name in names[0] - names[1] if not name.startswith("commitLogDiskRatio_")}
    assert missing == set()
    tables = [one.answers["figures: runtime"]["body"]["table"] for one in (theirs, ours)]
    for name in ("commitLogMaxOffset", "commitLogMinOffset", "putMessageTimesTotal", "dispatchBehindBytes"):
        assert tables[0][name] == tables[1][name], name


def test_properties_of_stored_replies_are_the_same_in_another_order(theirs: Recording, ours: Recording) -> None:
    def pairs(record: bytes) -> list[bytes]:
        head, _, texts = record.partition(b"_REPLY_TOPIC")
        return [head, *sorted(texts[2:].split(b"\x02"))]

    replies = [list(map(pairs, one.answers["pull: reply topic"]["body"])) for one in (theirs, ours)]
    assert replies[0] == replies[1]
    assert len(replies[0]) == 6


def test_every_wanted_difference_has_a_line_in_the_documentation() -> None:
    cells = {line.split("|")[1].strip() for line in COMPATIBILITY.read_text().splitlines() if line.startswith("| ")}
    assert {row.point for row in WANTED} - cells == set()


def test_every_request_of_a_broker_is_asked() -> None:
    from_clients = {39, 40, 220, 221, 326}
    name_server = {100, 101, 102, 103, 104, 106, 205, 216, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327}
    asked = {step.code for step in [*common_steps(), *odd_steps()]}
    assert {int(code) for code in RequestCode} - asked == {int(code) for code in NOT_SENT} | from_clients | name_server
    assert len(common_steps()) > 600
