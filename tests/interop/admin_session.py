"""mqadmin in one virtual machine for many commands: starting one for each would take most of the time of the tests.

with AdminSession(tmp_path, "127.0.0.1:9876") as admin:
    admin.run("topicList")      # what it prints
"""

import os
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.interop import java_broker, reference

SCRIPT = reference.ROOT / "tests" / "interop" / "java" / "admin" / "AdminScript.java"
SOURCE_LAUNCHER = 11  # The version of Java from which a source file can be run.
COMMAND_SECONDS_MAX = 120
_WORDS, _END = "\x01", "\x02\n"


class AdminSession:
    """mqadmin for one name server."""

    def __init__(self, directory: Path, name_server: str) -> None:
        if reference.java_version() < SOURCE_LAUNCHER:
            raise reference.ReferenceMissing(f"java {SOURCE_LAUNCHER} is needed to run mqadmin's commands in one go")
        self._name_server = name_server
        home = java_broker.home_of(directory)
        words = ["java", *java_broker.QUICK, *reference.jvm_options(), f"-Duser.home={directory}"]
        self._process = subprocess.Popen(
            [*words, "-cp", java_broker.class_path(), str(SCRIPT)],
            env=os.environ | {"ROCKETMQ_HOME": str(home)},
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str) -> str:
        """What a command prints. Its exit code says nothing."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(_WORDS.join([*words, "-n", self._name_server]) + "\n")
        process.stdin.flush()
        watchdog = threading.Timer(COMMAND_SECONDS_MAX, process.kill)
        watchdog.start()
        said: list[str] = []
        try:
            for line in process.stdout:
                if line.endswith(_END):
                    said.append(line.removesuffix(_END))
                    return "".join(said)
                said.append(line)
        finally:
            watchdog.cancel()
        raise reference.ReferenceFailed(f"mqadmin {' '.join(words)} did not end:\n{''.join(said)[-4000:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
