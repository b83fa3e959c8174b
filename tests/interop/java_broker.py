"""Apache RocketMQ's broker, name server and mqadmin as processes: fetched once, started on free ports of loopback.

Fetched into a folder beside the reference store's (see reference.py); the first time needs Maven and the network. Every
process has a directory of its own for its home, and is ended with its `with` block.
"""

import fcntl
import functools
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.interop import reference

_POMS = Path(__file__).resolve().parent / "java"
# RocketMQ 4.9.7 and 5.3.3, by what is fetched for them.
RELEASE_4, RELEASE_5 = _POMS / "broker" / "pom.xml", _POMS / "broker5" / "pom.xml"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0:copy-dependencies"
START_SECONDS_MAX = 120
ADMIN_SECONDS_MAX = 120

_LOGBACK = "<configuration><root level='OFF'/></configuration>\n"
QUICK = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@functools.cache
def class_path(release: Path = RELEASE_4) -> str:
    """The class path of the fetched jars; ReferenceMissing when they cannot be had."""
    reference.java_version()
    folder = reference.cache_of("reference-broker", release)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "fetching", "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not (folder / "lib").exists():
            _fetch(folder, release)
    return str(folder / "lib" / "*")


def _fetch(folder: Path, pom: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise reference.ReferenceMissing("mvn is not on the PATH; Maven is needed once, to fetch RocketMQ's broker")
    shutil.copy(pom, folder)
    shutil.rmtree(folder / "fetched", ignore_errors=True)
    command = [maven, "-q", "-B", COPY, "-DoutputDirectory=fetched", "-DincludeScope=runtime"]
    try:
        ran = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=reference.BUILD_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise reference.ReferenceMissing(f"mvn did not finish in {reference.BUILD_SECONDS_MAX} s in {folder}") from None
    if ran.returncode:
        said = (ran.stdout + ran.stderr).strip()[:600]
        raise reference.ReferenceMissing(f"mvn could not fetch RocketMQ's broker (no network?): {said}")
    (folder / "fetched").rename(folder / "lib")


def free_port() -> int:
    """A port that is free now, with the two below it (a broker listens there as well)."""
    for _ in range(100):
        with socket.create_server(("127.0.0.1", 0)) as first:
            port = int(first.getsockname()[1])
            try:
                with socket.create_server(("127.0.0.1", port - 2)), socket.create_server(("127.0.0.1", port + 1)):
                    return port
            except OSError:
                continue
    raise OSError("no three free ports together")


class JavaProcess:
    """A server of RocketMQ's that has said it is up."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """A clean end: a broker unregisters."""
        self._process.terminate()
        self._process.wait(60)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def java_server(
    main: str,
    directory: Path,
    config: Mapping[str, object],
    *,
    jvm: Sequence[str] = QUICK,
    release: Path = RELEASE_4,
) -> Iterator[JavaProcess]:
    """A main class of RocketMQ's with a config file, up until the block ends."""
    home = home_of(directory)
    file = directory / "server.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    # A key pair for TLS is made in the directory for temporary files at every start, and left there.
    places = [f"-Duser.home={directory}", f"-Djava.io.tmpdir={directory}"]
    places.append(f"-Drmq.logback.configurationFile={home}/conf/logback_broker.xml")  # 5.x looks for it here.
    words = ["java", *jvm, *reference.jvm_options(), *places, "-cp", class_path(release)]
    process = subprocess.Popen(
        [*words, f"org.apache.rocketmq.{main}", "-c", str(file)],
        env=os.environ | {"ROCKETMQ_HOME": str(home)},
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    # One that hangs must fail a test, not stop the suite.
    watchdog = threading.Timer(START_SECONDS_MAX, process.kill)
    watchdog.start()
    assert process.stdout is not None
    reader = threading.Thread(target=process.stdout.read, daemon=True)
    try:
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if "boot success" in line:
                break
        else:
            raise reference.ReferenceFailed(f"{main} did not start:\n{''.join(said)[-4000:]}")
        watchdog.cancel()
        reader.start()  # A full pipe would stop it.
        yield JavaProcess(process)
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        if reader.is_alive():
            reader.join()
        process.stdout.close()


def broker_config(
    directory: Path, name_servers: str, *, name: str = "broker-a", broker_id: int = 0, port: int | None = None
) -> dict[str, object]:
    """A broker.conf for loopback, with small files."""
    chosen = port or free_port()
    return {
        "brokerClusterName": "DefaultCluster",
        "brokerName": name,
        "brokerId": broker_id,
        "brokerRole": "SLAVE" if broker_id else "ASYNC_MASTER",
        "namesrvAddr": name_servers,
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": chosen,
        "haListenPort": chosen + 1,
        "storePathRootDir": directory / "store",
        "storePathCommitLog": directory / "store" / "commitlog",
        "mappedFileSizeCommitLog": 1 << 20,
        "mappedFileSizeConsumeQueue": 20_000,
        "maxHashSlotNum": 1000,
        "maxIndexNum": 4000,
        "autoCreateTopicEnable": "true",
        "diskMaxUsedSpaceRatio": 95,
    }


def mqadmin(directory: Path, words: Sequence[str]) -> str:
    """What mqadmin prints. Its exit code says nothing."""
    home = home_of(directory)
    command = ["java", *QUICK, *reference.jvm_options(), f"-Duser.home={directory}", "-cp", class_path()]
    ran = subprocess.run(
        [*command, "org.apache.rocketmq.tools.command.MQAdminStartup", *words],
        env=os.environ | {"ROCKETMQ_HOME": str(home)},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=ADMIN_SECONDS_MAX,
        check=False,
    )
    return ran.stdout + ran.stderr


def home_of(directory: Path) -> Path:
    conf = directory / "home" / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    for part in ("broker", "namesrv", "tools"):
        (conf / f"logback_{part}.xml").write_text(_LOGBACK)
    return conf.parent
