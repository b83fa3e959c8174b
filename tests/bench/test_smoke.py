"""Every benchmark scenario at smoke size: it runs, its answers are the known ones, its figures are complete.

Speeds are not judged here, with one exception: a scan kernel that is not clearly faster than plain Python is no
compiled kernel at all. A changed hash means that a scenario now does other work; if that is meant, write the new
one down here.

Scenarios with Spark take the session of the tests, which is there already; one of them runs as a user starts it, in a
process and a session of its own.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import (
    append,
    client_consume,
    client_send,
    delays,
    memory,
    network_filter,
    network_java,
    network_read,
    network_replication,
    network_scale,
    network_send,
    network_start,
    network_sync,
    network_transact,
    packed,
    reads,
    rebuild,
    recovery,
    scan,
    spark_jobs,
    spark_kafka,
    spark_read,
    spark_stream,
    spark_wire,
    sync,
    tools,
    topics,
    verify,
)
from bench.__main__ import SCENARIOS, main
from bench.course import Course
from bench.figures import Figure, as_markdown, at_least, at_most
from bench.network import generator

pytestmark = [pytest.mark.bench, pytest.mark.extended]

ANSWERS = {
    "append": {
        "100 B, with unique key": "aacbf021a374",
        "100 B, tags and keys": "3d6979ded5d7",
        "1 KiB, with unique key": "2fb893c54eb0",
        "1 KiB, tags and keys": "af7eb4790459",
    },
    "delays": {},
    "client_consume": {"stored messages, 1 KiB": "d496571a8428", "1,000 msg/s, 1 KiB": "18b6a89cc242"},
    "client_send": {"1 in flight, 1 KiB": "3ac3290d0913", "256 in flight, 1 KiB": "1d09e782f4bf"},
    "memory": {
        "recovery of 4 MiB": "d5aafea0708e",
        "rebuild of 4 MiB": "d5aafea0708e",
    },
    "network_filter": {
        "SQL92, 1 % of 1 KiB messages": "4dde1978c116",
    },
    "network_read": {
        "pull, 1 KiB": "4c130b628b98",
    },
    "network_replication": {
        "ASYNC_MASTER, 1 x 256, 1 KiB": "3e34d0ddc6a1",
        "SYNC_MASTER, 1 x 64, 1 KiB": "bf7695ea4418",
        "tapped, 1 x 256, 1 KiB": "3e34d0ddc6a1",
        "catch-up": "ab048bf81046",
    },
    "network_scale": {
        "1 to 20 topics": "e668effa4af8",
        "100 pulls wait": "e668effa4af8",
    },
    "network_send": {
        "1 x 256, 100 B": "e09970482c19",
        "1 x 256, 1 KiB": "e09970482c19",
        "1 x 1, 100 B": "e09970482c19",
        "16 x 16, 100 B": "e09970482c19",
        "64 x 1, 100 B": "e09970482c19",
    },
    "network_start": {},
    "network_sync": {
        "64 x 1, 100 B, synced": "052b14114f07",
        "1 x 64, 100 B, synced": "052b14114f07",
    },
    "network_transact": {
        "1 x 64, 100 B, committed": "4b0058af190a",
        "64 x 1, 100 B, committed": "4b0058af190a",
    },
    "packed": {
        "100 B, packed": "9cc57260b25c",
        "100 B, raw": "4e2533ecc826",
        "100 B, columns": "32cff662b2e4",
        "100 B, Arrow": "32cff662b2e4",
        "100 B, built, 256": "32cff662b2e4",
        "100 B, built, one": "32cff662b2e4",
        "1 KiB, packed": "1353c169e925",
        "1 KiB, raw": "deb46a6f125e",
        "1 KiB, columns": "1a62f0579a27",
        "1 KiB, Arrow": "1a62f0579a27",
        "1 KiB, built, 256": "1a62f0579a27",
        "1 KiB, built, one": "1a62f0579a27",
    },
    "reads": {
        "all": "1e5ba0374fea",
        "one tag": "1e5ba0374fea",
        "arrivals of 1,000": "000000122870",
    },
    "rebuild": {
        "1 KiB": "6fe2bf1048b1",
        "100 B": "8034bf19c5ee",
    },
    "recovery": {
        "4 MiB": "7db1c2cbf5cf",
        "killed, 4 MiB": "7db1c2cbf5cf",
        "power cut, 4 MiB": "7db1c2cbf5cf",
        "no proofs, 4 MiB": "7db1c2cbf5cf",
        "closed, 2 MiB": "b0f2bc3d34b8",
        "closed, 8 MiB": "ddc41d40e4bc",
    },
    "scan": {
        "1 KiB": "2b857a1a7048",
        "100 B": "ee2db8bae17f",
    },
    "spark_jobs": {
        "rebuild, 4 MiB of 1 KiB": "c5dd093fd09f",
        "audit, 4 MiB of 1 KiB": "3de2492591a4",
        "audit, 8 MiB of 1 KiB": "8459af8bacd9",
        "pipeline into queues and index, 4 MiB of 1 KiB": "c5dd093fd09f",
        "pipeline into a lake, 4 MiB of 1 KiB": "5653ba7a2b78",
        "rebuild, 8 MiB of 1 KiB": "a12cb778af85",
    },
    "spark_read": {
        "1 KiB, all columns": "b9756b69d6cd",
        "1 KiB, all columns by scan()": "b9756b69d6cd",
        "1 KiB, three columns": "5e652b911e15",
        "200 B, all columns": "a8290c8001f6",
        "200 B, all columns by scan()": "a8290c8001f6",
        "200 B, three columns": "9aa391b23425",
        "200 B, tuples": "c0e3e96a48e2",
        "8 MiB, all columns": "781a42aa4a9a",
        "8 MiB, one tag in a hundred": "ed899a322f76",
        "8 MiB, one key in a hundred": "7b09664d1294",
        "8 MiB, count by topic": "ba2660f57a24",
    },
    "spark_kafka": {
        "1 KiB, all columns": "f1b6ea16762a",
        "1 KiB, Kafka's columns": "f1b6ea16762a",
        "1 KiB, Kafka's columns by scan()": "f1b6ea16762a",
        "1 KiB, three columns": "083b49ee1c2c",
        "200 B, all columns": "076c437cb126",
        "200 B, Kafka's columns": "076c437cb126",
        "200 B, Kafka's columns by scan()": "076c437cb126",
        "200 B, three columns": "1fdf7ebeda69",
    },
    "spark_wire": {
        "1 KiB, all columns": "32b522fef700",
        "1 KiB, Kafka's columns": "f1b6ea16762a",
        "200 B, all columns": "611a419ef338",
        "200 B, Kafka's columns": "076c437cb126",
    },
    "spark_stream": {
        "one message": "666aa17826ad",
        "4 MB/s for 2 s": "9b79df1dfee1",
    },
    "sync": {
        "64 threads, 1 KiB": "005bf111e429",
        "64 threads, 1 KiB, on one core": "005bf111e429",
    },
    "tools": {
        "dump, 1 KiB": "351f06b1af93",
        "dump, 100 B": "33940a646275",
        "find among 5,000 keys": "a6b6bb26f5dc",
    },
    "topics": {
        "single, 1 topic": "02f0b2299c60",
        "single, 10 topics": "1b36ebfc0ef6",
        "single, 50 topics": "88b0666bb0b3",
        "256 at a time, 1 topic": "02f0b2299c60",
        "256 at a time, 10 topics": "1b36ebfc0ef6",
        "256 at a time, 50 topics": "88b0666bb0b3",
    },
    "verify": {
        "1 KiB": "c7eb6fd6e04f",
        "100 B": "7bfd837454e4",
        "rebuild, 4,000 messages of 1 KiB": "6fe2bf1048b1",
        "salvage, 4,000 messages of 1 KiB": "6fe2bf1048b1",
    },
}


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return Course("smoke", 1, tmp_path)


NEED_COMPILER = (network_read.NAME, network_scale.NAME, network_start.NAME, network_transact.NAME)
ALONE = spark_stream.NAME
# Their targets are those of a comparison.
PEER_TARGETS = (
    append.NAME,
    network_read.NAME,
    network_send.NAME,
    network_transact.NAME,
    spark_kafka.NAME,
    spark_wire.NAME,
)


def answers_of(figures: list[Figure]) -> dict[str, str]:
    """Case -> hash; every figure of a case has the same one, or none."""
    found: dict[str, str] = {}
    for figure in figures:
        assert figure.rounds, figure
        assert all(value > 0 for value in figure.rounds), figure
        assert figure.unit, figure
        if figure.answer:
            assert found.setdefault(figure.case, figure.answer) == figure.answer, figure
    return found


# What they measure has tests of its own: here only the measuring is looked at, which takes many processes and a minute.
LONG = (network_replication.NAME, spark_jobs.NAME, spark_kafka.NAME)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] * (name in LONG))
        for name in sorted(set(SCENARIOS) - {ALONE, network_java.NAME, verify.NAME})
    ],
)
@pytest.mark.slow(60)
def test_a_scenario_gives_the_known_answers(name: str, course: Course, request: pytest.FixtureRequest) -> None:
    if name.startswith("spark_"):
        request.getfixturevalue("spark")  # They take the session that is there.
    if name in NEED_COMPILER and generator.compiler() is None:
        pytest.skip("no C compiler: part of the load generator is missing")
    figures: list[Figure] = SCENARIOS[name].run(course)
    assert answers_of(figures) == ANSWERS[name]
    assert any(figure.target is not None for figure in figures) or name in PEER_TARGETS
    assert not list(course.directory.iterdir()), "a scenario leaves nothing behind"
    if name == scan.NAME:
        ratios = [figure for figure in figures if figure.measure == "kernel / twin"]
        assert len(ratios) == 2
        assert all(ratio.rounds[0] >= 3 for ratio in ratios), ratios


# The long one makes a session of its own.
@pytest.mark.parametrize("name", [verify.NAME, pytest.param(ALONE, marks=pytest.mark.long)])
@pytest.mark.slow(8)
def test_a_scenario_as_a_command(name: str, tmp_path: Path) -> None:
    words = ["--size", "smoke", "--rounds", "1", "--only", name, "--output", "json", "--dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "bench", *words],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = {}
    for figure in json.loads(done.stdout)["figures"]:
        assert figure["scenario"] == name
        assert figure["rounds"], figure
        assert all(value > 0 for value in figure["rounds"]), figure
        assert figure["unit"], figure
        if figure["answer"]:
            assert found.setdefault(figure["case"], figure["answer"]) == figure["answer"], figure
    assert found == ANSWERS[name]
    assert not list(tmp_path.iterdir()), "a scenario leaves nothing behind"


def test_every_scenario_has_answers_to_compare_with() -> None:
    modules = (
        append,
        delays,
        client_consume,
        client_send,
        memory,
        network_filter,
        network_java,
        network_read,
        network_replication,
        network_scale,
        network_send,
        network_start,
        network_sync,
        network_transact,
        packed,
        reads,
        rebuild,
        recovery,
        scan,
        spark_jobs,
        spark_kafka,
        spark_read,
        spark_stream,
        spark_wire,
        sync,
        tools,
        topics,
        verify,
    )
    # The Java client is looked at by tests/interop/test_java_bench.py.
    assert {*ANSWERS, network_java.NAME} == set(SCENARIOS) == {module.NAME for module in modules}


def test_the_verdict_is_given_on_the_median_and_never_hidden() -> None:
    assert Figure("c", "m", "x", [1.0, 9.0, 10.0], at_least(9)).verdict == "met"
    assert Figure("c", "m", "x", [1.0, 8.9, 10.0], at_least(9)).verdict == "missed"
    assert Figure("c", "m", "x", [1.0, 8.9, 10.0], at_most(9)).verdict == "met"
    assert Figure("c", "m", "x", [1.0]).verdict == ""
    assert Figure("c", "m", "x", [], at_least(9), why_not="no java").verdict == "not measured"


def test_tables_in_markdown() -> None:
    figures = [Figure("1 x 1", "rate", "x", [1.0, 3.0, 2.0], at_least(3)), Figure("c", "m", "x", [], why_not="no java")]
    lines = as_markdown("network", figures).splitlines()
    assert lines[4] == "| 1 x 1 | rate | 2.00 x | 1.00..3.00 | >= 3 | missed |"
    assert lines[5] == "| c | m | - | no java |  | not measured |"


def test_without_a_compiler_a_scenario_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "program", lambda: None)
    page = tmp_path / "tables.md"
    words = ["--size", "smoke", "--rounds", "1", "--only", "network_start", "--output", "json", "--markdown", str(page)]
    ran = CliRunner().invoke(main, [*words, "--dir", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    (figure,) = json.loads(ran.stdout)["figures"]
    assert (figure["verdict"], "apt-get install gcc" in figure["why_not"]) == ("not measured", True)
    assert "apt-get install gcc" in page.read_text()


def test_a_wrong_answer_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(course: Course) -> list[Figure]:
        raise generator.LoadFailed("send --port 1: message 3: the answer has code 1")

    monkeypatch.setattr(network_send, "run", fails)
    ran = CliRunner().invoke(main, ["--size", "smoke", "--only", "network_send", "--dir", str(tmp_path)])
    assert ran.exit_code == 1
    assert "Error: send --port 1: message 3: the answer has code 1" in ran.output


def test_the_command_prints_one_json_document(tmp_path: Path) -> None:
    words = ["--size", "smoke", "--rounds", "2", "--only", "sync", "--output", "json", "--dir", str(tmp_path)]
    ran = CliRunner().invoke(main, words)
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.stdout)
    assert document["machine"]["size"] == "smoke"
    figures = document["figures"]
    assert {figure["scenario"] for figure in figures} == {"sync"}
    assert all(figure["unit"] and len(figure["rounds"]) == 2 for figure in figures)
    assert all(figure["min"] <= figure["median"] <= figure["max"] for figure in figures)
    held = [figure for figure in figures if figure["target"] is not None]
    assert held
    assert {figure["verdict"] for figure in held} <= {"met", "missed"}
