"""Options of a read: every name, every value that is refused, and what the refusal says."""

import dataclasses
import re
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.client import Credentials
from embermq.errors import OptionInvalid
from embermq.spark.options import read_options as options
from embermq.spark.options.access import ACCESS_OPTIONS, ClusterAccess, Tls
from embermq.spark.options.read_options import OPTIONS, ReadOptions, Scope, nearest_name
from embermq.spark.options.values import WantedQueues, parse_duration_ms, parse_size, parse_tags
from embermq.spark.planning.offsets import AtOffsets, AtTime, AtTimes, Earliest, Latest


def parse(streaming: bool | None = False, /, **given: str) -> ReadOptions:
    return options.parse({"path": "/store", **given}, streaming)


def refused(streaming: bool | None = False, /, **given: str) -> OptionInvalid:
    with pytest.raises(OptionInvalid) as raised:
        parse(streaming, **given)
    return raised.value


# One good value for every option, so that none is forgotten.
GOOD = {
    "path": "/a",
    "paths": '["/a"]',
    "storeConfig": "/etc/broker.conf",
    "commitLogPath": "/disk-1/log,/disk-2/log",
    "nameServer": "127.0.0.1:9876",
    "brokerTimeout": "10s",
    "accessKey": "reader",
    "secretKey": "secret",
    "securityToken": "token",
    "tls": "true",
    "tlsCaFile": "/ca.pem",
    "tlsCertFile": "/cert.pem",
    "tlsKeyFile": "/key.pem",
    "tlsVerify": "ca",
    "namespace": "shop",
    "topic": "orders",
    "subscribe": "orders",
    "subscribePattern": "ord.*",
    "queues": "0,2-3",
    "subExpression": "a || b",
    "sqlExpression": "a > 5",
    "keys": "k1,k2",
    "startingOffsets": "earliest",
    "endingOffsets": "latest",
    "startingTimestamp": "1700000000000",
    "endingTimestamp": "1700000000000",
    "startingOffsetsByTimestamp": '{"orders": {"0": 1700000000000}}',
    "endingOffsetsByTimestamp": '{"orders": {"0": 1700000000000}}',
    "startingPhysicalOffset": "1073741824",
    "endingPhysicalOffset": "1073741824",
    "minPartitions": "3",
    "maxBytesPerPartition": "1m",
    "failOnDataLoss": "false",
    "verifyCrc": "false",
    "includeSystemTopics": "true",
    "onCorrupt": "rows",
    "decompress": "false",
    "schemaMode": "kafka",
    "includeHeaders": "false",
    "batchRows": "100",
    "batchBytes": "1m",
    "pushdown": "true",
    "maxOffsetsPerTrigger": "10",
    "maxBytesPerTrigger": "1g",
    "minOffsetsPerTrigger": "10",
    "maxTriggerDelay": "1m",
    "groupId": "g",
}


def test_there_is_a_good_value_for_every_option() -> None:
    assert set(GOOD) == {option.name for option in OPTIONS}
    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)
    for option in OPTIONS:
        assert option.meaning.endswith(".")
        assert option.scope in get_args(Scope)


OF_ACCESS = {name for name, _, _ in ACCESS_OPTIONS}


@pytest.mark.parametrize("name", sorted(GOOD.keys() - OF_ACCESS))
def test_every_option_is_heard_in_any_case(name: str) -> None:
    more = {"minoffsetspertrigger": "1"} if name == "maxTriggerDelay" else {}
    streaming = next(option.scope for option in OPTIONS if option.name == name) == "stream"
    path = {} if name.startswith("path") or name == "nameServer" else {"path": "/store"}
    if name in ("brokerTimeout", "groupId"):
        path = {"nameServer": "127.0.0.1:9876"}
    heard = options.parse({**path, name.lower(): GOOD[name], **more}, streaming)
    assert heard == options.parse({**path, name.upper(): GOOD[name], **more}, streaming)
    silent = options.parse({**(path or {"path": "/other"}), **more}, streaming)
    unchanged = {"startingOffsets", "endingOffsets", "includeHeaders", "maxTriggerDelay"}
    assert (heard != silent) or name in unchanged


def test_options_of_an_account_are_heard_in_any_case() -> None:
    place = {"nameServer": "127.0.0.1:9876"}
    given = {name: GOOD[name] for name in OF_ACCESS}
    heard = options.parse(place | {name.lower(): value for name, value in given.items()}, None)
    assert heard == options.parse(place | {name.upper(): value for name, value in given.items()}, None)
    assert heard.access == ClusterAccess(
        Credentials("reader", "secret", "token"), Tls("/ca.pem", "/cert.pem", "/key.pem", "ca"), "shop"
    )


def test_defaults() -> None:
    chosen = parse()
    assert chosen == ReadOptions(paths=("/store",))
    assert (chosen.start, chosen.end) == (Earliest(), Latest())
    assert parse(True) == dataclasses.replace(chosen, start=Latest())
    assert not chosen.has_topics
    assert chosen.wants_topic("anything")


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"topic": "a, b ,a"}, "topics", ("a", "b")),
        ({"subscribe": "a"}, "topics", ("a",)),
        ({"queues": "0, 2-4"}, "queues", WantedQueues(every_topic=frozenset({0, 2, 3, 4}))),
        ({"queues": '{"a": [1]}'}, "queues", WantedQueues(by_topic={"a": frozenset({1})})),
        ({"subExpression": " a||b || a"}, "tags", ("a", "b")),
        ({"subExpression": "*"}, "tags", None),
        ({"subExpression": ""}, "tags", None),
        ({"sqlExpression": "a > 5 AND b IN ('c')"}, "sql_expression", "a > 5 AND b IN ('c')"),
        ({"keys": "a, b c"}, "keys", ("a", "b", "c")),
        ({"keys": '["a,b", "c"]'}, "keys", ("a,b", "c")),
        ({"startingTimestamp": "2023-11-14T22:13:20.001Z"}, "start", AtTime("startingTimestamp", 1700000000001)),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": "2023-11-14T23:13:20+01:00"}}'},
            "start",
            AtTimes("startingOffsetsByTimestamp", {("t", None, 0): 1700000000000}),
        ),
        ({"startingTimestamp": " 1700000000001 "}, "start", AtTime("startingTimestamp", 1700000000001)),
        ({"endingTimestamp": "0"}, "end", AtTime("endingTimestamp", 0)),
        ({"startingOffsets": '{"a": {"1": 5}}'}, "start", AtOffsets("startingOffsets", {("a", None, 1): 5})),
        (
            {"startingOffsets": "{'a'".replace("'", '"') + ": {1: 5}}"},
            "start",
            AtOffsets("startingOffsets", {("a", None, 1): 5}),
        ),
        ({"endingOffsets": '{"a": {"b": {"1": -1}}}'}, "end", AtOffsets("endingOffsets", {("a", "b", 1): -1})),
        (
            {"endingOffsetsByTimestamp": '{"a": {"1": 1700000000000}}'},
            "end",
            AtTimes("endingOffsetsByTimestamp", {("a", None, 1): 1700000000000}),
        ),
        ({"maxBytesPerPartition": "64k"}, "max_bytes_per_partition", 65536),
        ({"onCorrupt": "SKIP"}, "on_corrupt", "skip"),
        ({"pushdown": "True"}, "pushdown", True),
    ],
)
def test_values(given: dict[str, str], field: str, value: Any) -> None:
    assert getattr(parse(**given), field) == value


@pytest.mark.parametrize(
    ("text", "place"), [("a in (5)", "line 1, column 7"), ("", "line 1, column 1"), ("5", "boolean")]
)
def test_an_expression_that_does_not_compile(text: str, place: str) -> None:
    with pytest.raises(OptionInvalid, match=place) as raised:
        parse(sqlExpression=text)
    assert raised.value.option == "sqlExpression"


def test_queues_by_topic_choose_the_topics() -> None:
    chosen = parse(queues='{"a": [1], "b": [0]}')
    assert chosen.topics == ("a", "b")
    assert chosen.has_topics
    assert chosen.queues.has("a", 1)
    assert not chosen.queues.has("a", 0)
    assert chosen.queues.has("b", 0)
    both = parse(queues='{"a": [1]}', topic="a,c")
    assert both.topics == ("a", "c")
    assert both.queues.has("c", 9)


def test_a_pattern_matches_whole_names() -> None:
    chosen = parse(subscribePattern="ord.*s")
    assert chosen.has_topics
    assert chosen.wants_topic("orders")
    assert not chosen.wants_topic("my-orders")


def test_several_paths() -> None:
    assert options.parse({"paths": '["/a", "/b/*"]'}, None).paths == ("/a", "/b/*")
    assert options.parse({"path": "/x", "paths": '["/a"]'}, None).paths == ("/x", "/a")


@pytest.mark.parametrize(
    "given", [{}, {"path": ""}, {"paths": "[]"}, {"paths": '[""]'}, {"paths": "/a"}, {"paths": "[1]"}]
)
def test_a_path_is_needed(given: dict[str, str]) -> None:
    with pytest.raises(OptionInvalid) as raised:
        options.parse(given, None)
    assert raised.value.option in ("path", "paths")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("startingoffset", "startingOffsets"),
        ("topics", "topic"),
        ("subscripePattern", "subscribePattern"),
        ("maxoffsetpertrigger", "maxOffsetsPerTrigger"),
        ("oncorupt", "onCorrupt"),
        ("STARTINGTIMESTAMPS", "startingTimestamp"),
    ],
)
def test_an_unknown_name_shows_the_nearest(name: str, nearest: str) -> None:
    problem = refused(**{name: "1"})
    assert problem.option == name
    assert f"did you mean {nearest}?" in str(problem)


def test_an_unknown_name_like_none() -> None:
    assert "no such option" in str(refused(zzz="1"))
    assert nearest_name("zzz") is None


def wire(streaming: bool | None = False, /, **given: str) -> ReadOptions:
    return options.parse({"nameServer": "a:9876;b", **given}, streaming)


def test_a_cluster_in_place_of_a_path() -> None:
    chosen = wire(topic="t", brokerTimeout="5s", groupId="g")
    assert (chosen.paths, chosen.name_servers) == ((), ("a:9876", "b:9876"))
    assert (chosen.broker_timeout_ms, chosen.group_id) == (5000, "g")
    assert "contradicts path" in str(refused(nameServer="a:9876"))
    assert "only a stream" in str(refused(groupId="g"))
    assert "without nameServer" in str(refused(brokerTimeout="1s"))
    for said, text in (
        ({"startingPhysicalOffset": "1"}, "use startingOffsets"),
        ({"endingPhysicalOffset": "1"}, "use endingOffsets"),
        ({"nameServer": "a:x"}, "an address looks like"),
        ({"nameServer": " ; "}, "an address is needed"),
    ):
        with pytest.raises(OptionInvalid, match=text):
            wire(**said)
    with pytest.raises(OptionInvalid, match="or instead of it the option nameServer"):
        options.parse({}, False)


def test_names_of_others_are_explained() -> None:
    assert "give the path" in str(refused(**{"kafka.bootstrap.servers": "x"}))
    assert "use topic" in str(refused(assign="{}"))
    assert "groupId" in str(refused(consumergroup="g"))


def test_names_of_spark_itself_are_left_alone() -> None:
    assert parse(__internal="x") == parse()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("topic", "subscribe"),
        ("topic", "subscribePattern"),
        ("startingTimestamp", "startingOffsets"),
        ("startingOffsetsByTimestamp", "startingOffsets"),
        ("endingTimestamp", "endingOffsetsByTimestamp"),
    ],
)
def test_contradictions_name_both(first: str, second: str) -> None:
    problem = refused(**{first: GOOD[first], second: GOOD[second]})
    assert problem.option == first
    assert f"contradicts {second}" in str(problem)


@pytest.mark.parametrize(
    ("given", "option", "text"),
    [
        ({"includeHeaders": "true"}, "includeHeaders", "schemaMode=kafka"),
        ({"startingTimestamp": "1700000000001", "endingTimestamp": "1700000000000"}, "endingTimestamp", "before"),
        ({"topic": "a", "startingOffsets": '{"b": {"0": 1}}'}, "startingOffsets", "b queue 0"),
        ({"queues": "1", "startingOffsets": '{"b": {"0": 1}}'}, "startingOffsets", "b queue 0"),
        ({"queues": '{"b": [0]}', "topic": "a"}, "queues", "topic b"),
        ({"startingOffsets": "latest"}, "startingOffsets", "empty"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "startingOffsets", "no start for a batch"),
        ({"endingOffsets": "earliest"}, "endingOffsets", "empty"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "endingOffsets", "no end"),
        ({"startingOffsets": "newest"}, "startingOffsets", "earliest, latest or JSON"),
        ({"startingOffsets": '{"a": '}, "startingOffsets", "no JSON"),
        ({"startingOffsets": '{"a": 3}'}, "startingOffsets", "topic a"),
        ({"startingOffsets": '{"a": {"x": 3}}'}, "startingOffsets", "'x' is no queue"),
        ({"startingOffsets": '{"a": {"0": "3"}}'}, "startingOffsets", "no whole number"),
        ({"startingOffsets": '{"a": {"0": true}}'}, "startingOffsets", "no whole number"),
        ({"startingOffsets": '{"a": {"0": 1.5}}'}, "startingOffsets", "no whole number"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "startingOffsets", "no offset"),
        ({"startingOffsets": '{"a": {"0": 1, "00": 2}}'}, "startingOffsets", "twice"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp", "milliseconds"),
        ({"startingTimestamp": "1700000000"}, "startingTimestamp", "2023-11-14 22:13:20 UTC in seconds"),
        ({"startingTimestamp": "1700000000"}, "startingTimestamp", "1700000000000"),
        ({"endingTimestamp": "1700000000000000"}, "endingTimestamp", "in microseconds"),
        ({"endingTimestamp": "1700000000000000000"}, "endingTimestamp", "in nanoseconds"),
        ({"endingTimestamp": "-5"}, "endingTimestamp", "before 1970"),
        ({"startingTimestamp": "17"}, "startingTimestamp", "milliseconds"),
        ({"startingOffsetsByTimestamp": '{"a": {"0": 1700000000}}'}, "startingOffsetsByTimestamp", "in seconds"),
        ({"minPartitions": "0"}, "minPartitions", "from 1"),
        ({"minPartitions": "many"}, "minPartitions", "from 1"),
        ({"maxBytesPerPartition": "64q"}, "maxBytesPerPartition", "64m"),
        ({"maxBytesPerPartition": "0"}, "maxBytesPerPartition", "bytes"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss", "true or false"),
        ({"onCorrupt": "ignore"}, "onCorrupt", "fail, skip or rows"),
        ({"schemaMode": "pulsar"}, "schemaMode", "rocketmq or kafka"),
        ({"subscribePattern": "a("}, "subscribePattern", "regular expression"),
        ({"queues": "a"}, "queues", "0,2-3"),
        ({"queues": "3-1"}, "queues", "0,2-3"),
        ({"queues": '{"a": 1}'}, "queues", "topic a"),
        ({"queues": '{"a"'}, "queues", "no JSON"),
        ({"topic": " , "}, "topic", "names of topics"),
        ({"startingTimestamp": "2023-11-14T22:13:20"}, "startingTimestamp", "a time zone is needed"),
        ({"subExpression": "price > 5"}, "subExpression", "for a condition use sqlExpression"),
        ({"subExpression": "paid, shipped"}, "subExpression", "not a list of tags"),
        ({"storeConfig": '["a", "b"]'}, "storeConfig", "one broker.conf for each path is expected, in their order: 1"),
        ({"subExpression": "paid AND shipped"}, "subExpression", "for a condition use sqlExpression"),
        ({"subExpression": "price is not null"}, "subExpression", "for a condition use sqlExpression"),
        ({"subExpression": "a && b"}, "subExpression", "separated by ||"),
        ({"subExpression": "a | b"}, "subExpression", "separated by ||"),
        ({"subExpression": "||"}, "subExpression", "separated by ||"),
        ({"keys": " "}, "keys", "keys are expected"),
        ({"keys": '["a b"]'}, "keys", "none holds a space"),
        ({"keys": "[1]"}, "keys", "list of texts"),
    ],
)
def test_bad_values_say_what_is_expected(given: dict[str, str], option: str, text: str) -> None:
    problem = refused(**given)
    assert problem.option == option
    assert text in str(problem)
    assert "\n" not in str(problem)
    assert len(str(problem)) < 300


@pytest.mark.parametrize(
    ("given", "option", "text"),
    [
        ({"maxTriggerDelay": "1m"}, "maxTriggerDelay", "minOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon", "minOffsetsPerTrigger": "1"}, "maxTriggerDelay", "30s"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger", "larger"),
        ({"groupId": " "}, "groupId", "name"),
        ({"groupId": "sp@ark"}, "groupId", "letters, digits"),
        ({"groupId": "a b"}, "groupId", "letters, digits"),
        ({"groupId": "größe"}, "groupId", "letters, digits"),
        ({"endingOffsets": "latest"}, "endingOffsets", "only a batch"),
        ({"endingTimestamp": "0"}, "endingTimestamp", "only a batch"),
        ({"pushdown": "true"}, "pushdown", "only a batch"),
    ],
)
def test_streams(given: dict[str, str], option: str, text: str) -> None:
    problem = refused(True, **given)
    assert problem.option == option
    assert text in str(problem)


def test_names_of_groups() -> None:
    for group in ("lake", "%RETRY%lake", "A-b_9|c"):
        assert parse(True, groupId=f" {group} ").group_id == group


def test_options_of_a_stream_are_refused_in_a_batch() -> None:
    assert "only a stream" in str(refused(maxOffsetsPerTrigger="1"))
    # Where it is not known yet which of the two it will be, both are fine.
    parse(None, maxOffsetsPerTrigger="1", endingOffsets="latest")
    assert parse(True, startingOffsets="latest").start == Latest()


@given(st.integers(1, 1 << 40), st.sampled_from("kmgt"))
def test_sizes(number: int, unit: str) -> None:
    factor = 1 << 10 * ("kmgt".index(unit) + 1)
    assert parse_size("x", str(number)) == number
    if number * factor < 1 << 62:
        for text in (f"{number}{unit}", f"{number} {unit.upper()}B", f"{number}{unit}ib"):
            assert parse_size("x", text) == number * factor


@pytest.mark.parametrize(
    ("text", "expected"), [("5ms", 5), ("30s", 30_000), ("15 minutes", 900_000), ("2h", 7_200_000), ("1d", 86_400_000)]
)
def test_durations(text: str, expected: int) -> None:
    assert parse_duration_ms("x", text) == expected


@given(st.dictionaries(st.sampled_from([*GOOD, "topics", "nonsense"]), st.text(max_size=20), max_size=5))
def test_any_text_is_accepted_or_refused_by_name(given: dict[str, str]) -> None:
    text = ""
    try:
        options.parse(given, None)
    except OptionInvalid as problem:
        text = str(problem)
    assert not text or re.match(r"option \w+", text)


def test_tags_may_hold_spaces() -> None:
    assert parse_tags("subExpression", "Tag x|| in transit ||band") == ("Tag x", "in transit", "band")
