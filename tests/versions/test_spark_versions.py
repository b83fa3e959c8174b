"""Every supported version of Spark, with the wheel in an environment of its own: what runs, and what is refused.

`make spark-versions` runs this; the first time it downloads about 450 MB for each version. Versions are named with
their patch release; everything else is that of the lock file.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.bare_environment import BareEnvironment, bare_environment

pytestmark = pytest.mark.versions

VERSIONS = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
FEATURES = Path(__file__).with_name("features.py")
# First versions of what not every Spark has; docs/spark-versions.md has the same table.
SINCE = {"json_values": "4.1", "write": "4.1", "stream": "4.2", "pipeline": "4.2"}
SECONDS_MAX = 1200  # on a busy machine, kernels to compile included


@pytest.fixture(scope="module", params=VERSIONS)
def environment(request: pytest.FixtureRequest) -> Iterator[BareEnvironment]:
    with bare_environment("spark", pyspark=request.param) as made:
        yield made


@pytest.fixture(scope="module")
def found(environment: BareEnvironment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What features.py printed with this version: rows or an error for each feature."""
    place = tmp_path_factory.mktemp("features")
    ran = _run(environment, environment.python, str(FEATURES), str(place))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return answer


def test_rows_are_exact_and_missing_features_are_named(found: dict[str, Any]) -> None:
    expected = {name: rows if _has(found["spark"], name) else None for name, rows in _expected().items()}
    assert found["features"].keys() == expected.keys()
    for name, rows in expected.items():
        answer = found["features"][name]
        if rows is None:
            assert f"needs Spark {SINCE[name]} or later, and Spark {found['spark']} is installed" in answer, name
            assert "Traceback" not in answer
        else:
            assert answer == rows, name


def test_a_pipeline_on_the_command_line(environment: BareEnvironment, found: dict[str, Any], tmp_path: Path) -> None:
    store = tmp_path / "store"
    code = "import sys, pathlib; from features import append; append(pathlib.Path(sys.argv[1]), 0, 10)"
    made = _run(environment, environment.python, "-c", code, str(store), cwd=FEATURES.parent)
    assert made.returncode == 0, made.stderr
    words = ["spark", "pipeline", str(store), "--into", str(tmp_path / "lake"), "--output", "json"]
    ran = _run(environment, environment.embermq, *words)
    if _has(found["spark"], "pipeline"):
        assert ran.returncode == 0, ran.stderr
        assert sum(batch["records"] for batch in json.loads(ran.stdout)["batches"]) == 10
    else:
        assert ran.returncode == 1
        assert f"needs Spark 4.2 or later, and Spark {found['spark']} is installed" in ran.stdout + ran.stderr
        assert "Traceback" not in ran.stderr


def _run(environment: BareEnvironment, *command: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment.variables,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def _has(version: str, feature: str) -> bool:
    major, minor = SINCE.get(feature, "4.0").split(".")
    return tuple(int(part) for part in version.split(".")[:2]) >= (int(major), int(minor))


def _expected() -> dict[str, list[list[Any]]]:
    """Of the messages that features.py appends: 60, and 20 more before the second run of the stream."""
    first, all_ = _messages(60), _messages(80)
    orders = [row for row in first if row[0] == "orders"]
    returns = [row for row in first if row[0] == "returns"]
    streamed = [row for row in all_ if row[0] == "orders"]
    tags = sorted({row[3] for row in orders})
    return {
        "batch": first,
        "options": [row for row in orders if row[2] >= 2],
        "kafka_schema": sorted([row[0], row[1], row[2], row[4], row[5]] for row in returns),
        "filters": [row for row in orders if row[4] in ("k-7", "k-9")],
        "table": sorted([row[4], row[2]] for row in returns if row[2] < 3),
        "scan": first,
        "sql": [[tag, sum(row[3] == tag for row in orders)] for tag in tags],
        "stats": [["orders", len(orders)], ["returns", len(returns)]],
        "audit": [[True]],
        "archive": first,
        "json_values": sorted([row[4], json.loads(row[5])["id"]] for row in orders),
        "write": sorted(["copies", row[5]] for row in orders),
        "stream": streamed,
        "pipeline": all_,
    }


def _messages(count: int) -> list[list[Any]]:
    """Topic, queue, offset, tags, keys and body of each, in one queue a topic."""
    rows = []
    for number in range(count):
        topic = "orders" if number % 2 else "returns"
        rows.append([topic, 0, number // 2, f"t{number % 3}", f"k-{number}", json.dumps({"id": number})])
    return sorted(rows)
