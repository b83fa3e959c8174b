"""RocketMQ behind a pipe: fetched and compiled once, then started as often as a test likes.

Built into $EMBERMQ_REFERENCE_CACHE, or else $XDG_CACHE_HOME/embermq/reference-<hash of pom.xml> (~/.cache
where XDG_CACHE_HOME is not set). The first build needs Maven and the network; later ones need neither, unless
the Java sources change (then Maven runs offline). Only tests and benchmarks import this module.
"""

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

ROOT = Path(__file__).resolve().parents[2]
POM = ROOT / "tests" / "interop" / "java" / "pom.xml"
SOURCES = (ROOT / "tests" / "interop" / "java", ROOT / "bench" / "peers" / "java")
BUILD_SECONDS_MAX = 900
SESSION_SECONDS_MAX = 120

# RocketMQ reaches into the JDK to unmap files; Java 9 and later must be made to allow it.
_OPEN_MODULES = [
    f"--add-{what}=java.base/{package}=ALL-UNNAMED"
    for what, package in (
        ("opens", "java.nio"),
        ("opens", "sun.nio.ch"),
        ("opens", "jdk.internal.ref"),
        ("exports", "jdk.internal.ref"),
        ("opens", "java.lang"),
        ("opens", "java.util"),
    )
]

Json = dict[str, Any]


class ReferenceMissing(Exception):
    """RocketMQ cannot run here; the text says why, in words fit for a skip."""


class ReferenceFailed(Exception):
    """RocketMQ ended or answered otherwise than asked; the text holds what it printed."""


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """A record as RocketMQ decodes it."""

    phy: int
    size: int
    msg_id: str
    topic: str
    queue_id: int
    queue_offset: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: tuple[str, int]
    store_timestamp: int
    store_host: tuple[str, int]
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    tags: str | None
    keys: str | None
    properties: dict[str, str]
    body_len: int
    body_hash: str
    record_hash: str


class Queue(msgspec.Struct, frozen=True, rename="camel"):
    """A queue as RocketMQ serves it; `odd` names pulls inside the bounds that gave nothing."""

    topic: str
    queue_id: int
    min: int
    max: int
    phys: list[int]
    odd: list[str]


class Dump(msgspec.Struct, frozen=True):
    """Everything RocketMQ reads in a store."""

    records: list[Record]
    queues: list[Queue]
    min_physical: int
    max_physical: int


class PutAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a put; the fields after `ok` stay at -1 when nothing was appended."""

    status: str
    ok: bool
    append_status: str = ""
    wrote_offset: int = -1
    wrote_bytes: int = -1
    msg_id: str = ""
    store_timestamp: int = -1
    logics_offset: int = -1
    msg_num: int = 0


@functools.cache
def java_version() -> int:
    """Major version of the java on the PATH; ReferenceMissing when there is none, or it is too old."""
    java = shutil.which("java")
    if java is None:
        raise ReferenceMissing("java is not on the PATH; a JDK, 8 or later, is needed to run RocketMQ")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None:
        raise ReferenceMissing(f"java -version was not understood: {said.strip()!r}")
    if int(found[1]) < 8:
        raise ReferenceMissing(f"java is version {found[1]}; RocketMQ needs 8 or later")
    return int(found[1])


@functools.cache
def class_path(pom: Path = POM, folders: tuple[Path, ...] = SOURCES) -> str:
    """The class path of a Maven project, the built reference by default, building it first where needed."""
    java_version()
    sources = sorted(path for folder in folders for path in folder.glob("embermq/*.java"))
    folder = _cache_folder(pom)
    # Named by content: a rebuild never takes classes away from a process that runs them.
    classes = folder / f"classes-{_hash_of(sources)[:12]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ReferenceMissing(f"the cache folder {folder} cannot be made: {problem}") from problem
    with open(folder / "building", "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)  # Parallel test workers build once between them.
        if not classes.exists():
            _build(folder, pom, sources)
            (folder / "classes").rename(classes)
    return os.pathsep.join([str(classes), str(folder / "lib" / "*")])


def _hash_of(paths: Iterable[Path]) -> str:
    summed = hashlib.sha256()
    for path in paths:
        summed.update(path.name.encode() + b"\0" + path.read_bytes())
    return summed.hexdigest()


def _cache_folder(pom: Path) -> Path:
    chosen = os.environ.get("EMBERMQ_REFERENCE_CACHE")
    if chosen:
        return Path(chosen) if pom == POM else Path(chosen) / pom.parent.name
    return cache_of("reference", pom)


def cache_of(name: str, *sources: Path) -> Path:
    """Where what is made of some files (a pom.xml, a lock file) is kept: another folder for another content."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(caches) / "embermq" / f"{name}-{_hash_of(sources)[:12]}"


def _build(folder: Path, pom: Path, sources: list[Path]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ReferenceMissing("mvn is not on the PATH; Maven is needed once, to build RocketMQ")
    for stale in ("src", "classes", "target"):
        shutil.rmtree(folder / stale, ignore_errors=True)
    (folder / "src" / "embermq").mkdir(parents=True)
    shutil.copy(pom, folder / "pom.xml")
    for path in sources:
        shutil.copy(path, folder / "src" / "embermq")
    command = [maven, "-q", "-B", "compile"]
    offline = [maven, "-o", *command[1:]]
    # What was fetched before is not asked for again, so a rebuild works without a network.
    attempts = [offline, command] if (folder / "lib").exists() else [command]
    output = ""
    for attempt in attempts:
        try:
            ran = subprocess.run(
                attempt, cwd=folder, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX, check=False
            )
        except subprocess.TimeoutExpired:
            raise ReferenceMissing(f"mvn did not finish in {BUILD_SECONDS_MAX} s in {folder}") from None
        if ran.returncode == 0:
            return
        output = ran.stdout + ran.stderr
    if "COMPILATION ERROR" in output:
        raise ReferenceFailed(f"the Java sources do not compile:\n{output}")
    raise ReferenceMissing(f"mvn could not fetch RocketMQ (no network?): {output.strip()[:600]}")


def java_command(
    main: str, arguments: Sequence[str], *, jvm: Sequence[str] = (), classes: str | None = None
) -> list[str]:
    """The command line that runs one of our Java mains; `classes`: a class path other than the reference's."""
    return ["java", *jvm, *jvm_options(), "-cp", classes or class_path(), f"embermq.{main}", *arguments]


def jvm_options() -> list[str]:
    """What every JVM of ours gets."""
    opened = _OPEN_MODULES if java_version() >= 9 else []
    return ["-Dfile.encoding=UTF-8", "-Duser.timezone=UTC", *opened]


def setting_words(settings: Mapping[str, str]) -> list[str]:
    return ["--settings", *(f"{name}={value}" for name, value in settings.items())]


class ReferenceSession:
    """RocketMQ with one store open. Leaving the `with` block closes the store, an exception kills it."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str] | None = None, *, deliver_delayed: bool = False
    ) -> None:
        words = ["write", str(directory), *(["--deliver"] if deliver_delayed else [])]
        quick_start = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = java_command("ReferenceStore", [*words, *setting_words(settings or {})], jvm=quick_start)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the session)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said)
        self._feeders: list[threading.Thread] = []
        # A reference that hangs must fail a test, not stop the suite.
        self._watchdog = threading.Timer(SESSION_SECONDS_MAX, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()
        try:
            self.opened = self._hear()
            if self.opened["is"] != "open":
                empty = [str(path) for path in _empty_files(directory)]
                raise ReferenceFailed(f"RocketMQ refuses to load {directory}; empty files: {empty}")
        except ReferenceFailed:
            self.kill()
            self._release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._process.poll() is None:
            self.close()
        else:
            self.kill()
        self._release()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, question: str, **details: Any) -> Json:
        """One question, one answer."""
        self._tell({"do": question, **details})
        return self._hear()

    def put(self, put: Json) -> PutAnswer:
        return msgspec.convert(self.ask("put", **put), PutAnswer)

    def put_all(self, puts: Iterable[Json]) -> list[PutAnswer]:
        """Many puts, sent while earlier answers are on their way."""
        listed = list(puts)
        self.feed(listed)
        return [msgspec.convert(self._hear(), PutAnswer) for _ in listed]

    def feed(self, puts: list[Json]) -> None:
        """Sends puts from a thread of its own; the answers wait in the pipe for `put_answers`."""

        def send() -> None:
            try:
                for put in puts:
                    self._tell({"do": "put", **put})
            except ReferenceFailed:
                pass  # Killed meanwhile, as some tests want.

        feeder = threading.Thread(target=send, daemon=True)
        feeder.start()
        self._feeders.append(feeder)

    def put_answers(self) -> Iterator[PutAnswer]:
        """Answers as they come, until the process is gone."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):
                yield msgspec.convert(msgspec.json.decode(line), PutAnswer)

    def dump(self) -> Dump:
        """Everything in the store, through RocketMQ's reads."""
        self._tell({"do": "dump"})
        records: list[Record] = []
        queues: list[Queue] = []
        while True:
            line = self._hear()
            match line.pop("is"):
                case "record":
                    records.append(msgspec.convert(line, Record))
                case "queue":
                    queues.append(msgspec.convert(line, Queue))
                case "bounds":
                    return Dump(records, queues, line["minPhyOffset"], line["maxPhyOffset"])
                case other:
                    raise ReferenceFailed(f"{other}: {line}")

    def find(self, topic: str, key: str, *, limit: int = 64, begin_ms: int = 0, end_ms: int = 1 << 62) -> list[int]:
        """Physical offsets queryMessage gives."""
        answer = self.ask("key", topic=topic, key=key, max=limit, begin=begin_ms, end=end_ms)
        return [int(each) for each in answer["phys"]]

    def offset_at(self, topic: str, queue_id: int, time_ms: int) -> int:
        return int(self.ask("time", topic=topic, queueId=queue_id, time=time_ms)["offset"])

    def fetch(self, topic: str, queue_id: int, offset: int, limit: int, codes: list[int] | None = None) -> Json:
        """One getMessage: status, next, min, max, phys."""
        return self.ask("get", topic=topic, queueId=queue_id, offset=offset, max=limit, codes=codes)

    def look(self, physical_offset: int) -> Record | None:
        found = self.ask("look", phy=physical_offset)["record"]
        return None if found is None else msgspec.convert(found, Record)

    def settle(self) -> None:
        """Returns when queues and index hold all the log holds."""
        self.ask("settle")

    def close(self) -> None:
        """Clean shutdown."""
        self._tell({"do": "close"})
        last = self._hear()
        if last["is"] != "closed":
            raise ReferenceFailed(f"asked to close, RocketMQ answered {last}")
        self._process.wait()

    def kill(self) -> None:
        """SIGKILL, at once. Answers already given stay readable until the `with` block ends."""
        self._process.kill()
        self._process.wait()

    def _release(self) -> None:
        """Frees pipes and threads of a process that has ended."""
        self._watchdog.cancel()
        for feeder in self._feeders:
            feeder.join()  # Its pipe has no reader any more, so it ends at its next write.
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass  # Unsent puts of a killed process.
        self._said.close()

    def _tell(self, question: Json) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(question) + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise ReferenceFailed(f"RocketMQ is gone:\n{self._errors()}") from None

    def _hear(self) -> Json:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise ReferenceFailed(f"RocketMQ ended early:\n{self._errors()}")
        heard: Json = msgspec.json.decode(line)
        return heard

    def _errors(self) -> str:
        if self._said.closed:
            return ""
        self._said.seek(0)
        return self._said.read()[-4000:].decode(errors="replace")


def _empty_files(directory: Path) -> list[Path]:
    """Log and queue files of no length: one is enough for RocketMQ to refuse a store."""
    families = [directory / "commitlog", directory / "consumequeue"]
    paths = [path for family in families for path in family.rglob("*")]
    return [path for path in paths if path.is_file() and path.stat().st_size == 0]


@contextmanager
def copied(directory: Path, *, drop_empty_files: bool = False) -> Iterator[Path]:
    """A sparse copy of a store, so that looking at it changes nothing.

    `drop_empty_files` is for stores RocketMQ itself was killed on, and for no others: it creates a file and
    sizes it in two steps, and killed in between it refuses its own store. A store written here must load as it
    is, so there an empty file has to show.
    """
    scratch = Path(tempfile.mkdtemp(prefix="embermq-copy-", dir=directory.parent))
    try:
        subprocess.run(["cp", "-a", "--sparse=always", f"{directory}/.", str(scratch)], check=True)
        if drop_empty_files:
            for path in _empty_files(scratch):
                path.unlink()
        yield scratch
    finally:
        shutil.rmtree(scratch)
