"""A Spark session on one core, in a process of its own, to be measured beside that of the benchmark.

    python -m bench.spark_one SIZE      starts, says how long that took, then does `rebuild STORE TARGET` line by line

Each answer is one line of JSON. `OneCore` runs in the benchmark's process and starts this.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.course import Course

MASTER = "local[1]"


class OneCore:
    """The other process."""

    def __init__(self, course: Course) -> None:
        command = [sys.executable, "-m", "bench.spark_one", course.size]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.session_seconds = float(self._answer()["session_seconds"])

    def rebuild(self, store: Path, target: Path) -> float:
        """Seconds of one rebuild into a directory that is gone afterwards."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(store), str(target)]) + "\n")
        self._process.stdin.flush()
        return float(self._answer()["seconds"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the session on one core has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> "OneCore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def main() -> None:
    from bench.workload import load_kernels, quiet

    began = time.perf_counter()
    import embermq.spark
    from embermq.spark.jobs.rebuild import rebuild

    spark = embermq.spark.session("one core", MASTER, driver_memory="1g" if sys.argv[1] == "smoke" else "3g")
    print(json.dumps({"session_seconds": time.perf_counter() - began}), flush=True)
    load_kernels()
    for line in sys.stdin:
        store, target = json.loads(line)
        quiet()
        began = time.perf_counter()
        made = rebuild(spark, store, into=target)
        seconds = time.perf_counter() - began
        assert not made.damages, made
        shutil.rmtree(target)
        print(json.dumps({"seconds": seconds}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
