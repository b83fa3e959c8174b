"""A driver in a process of its own, for work whose answers have to be the same on every master.

    python -m tests.support.same_driver MASTER [NAME=VALUE ...]

starts a session, then answers line by line: each line of its input is JSON, [MODULE, STORE, SCRATCH, MORE], each line
of its output the answers of that module's `answers`, MORE being further arguments of it. `Driver` is the other side, in
the test's process.
"""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from tests.support.spark_daemons import spark_environment

ROOT = Path(__file__).parents[2]


class Driver:
    """The process and its session; it ends with the `with` block."""

    def __init__(self, master: str, scratch: Path, settings: dict[str, str]) -> None:
        self._scratch = scratch
        scratch.mkdir(parents=True, exist_ok=True)
        self._said = (scratch / "driver.log").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, master, *(f"{name}={value}" for name, value in settings.items())],
            env=spark_environment(scratch),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )

    def answers(self, work: ModuleType, *more: Any) -> dict[str, Any]:
        """The answers of `work`, on a store of its own."""
        place = self._scratch / work.__name__
        place.mkdir()
        store = work.make_store(place / "store")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([work.__name__, str(store), str(place / "made"), more]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, (self._scratch / "driver.log").read_text()
        found: dict[str, Any] = json.loads(line)
        return found

    def __enter__(self) -> "Driver":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if kind is not None:
            self._process.kill()
        self._process.stdin.close()
        code = self._process.wait()
        self._process.stdout.close()
        self._said.close()
        assert kind is not None or code == 0, (self._scratch / "driver.log").read_text()


def main(master: str, *settings: str) -> None:
    import embermq.spark

    spark = embermq.spark.session("same answers", master, **dict(setting.split("=", 1) for setting in settings))
    for line in sys.stdin:
        module, store, scratch, more = json.loads(line)
        work = importlib.import_module(module)
        print(json.dumps(work.answers(spark, Path(store), Path(scratch), *more)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
