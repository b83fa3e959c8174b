"""Shipping that does not end: behind a store that is written, through a target that fails now and then, until it is
asked to stop. Tasks run here, without Spark."""

import errno
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import embermq.spark
from embermq import Message, MessageStore
from embermq.cli.app import run
from embermq.errors import DataLost, OptionInvalid, PlaceUnavailable, StorePathInvalid, StoreReplaced
from embermq.spark.jobs import ship_follow, ship_pieces
from embermq.spark.jobs.ship_follow import PAUSE_SECONDS_MAX, FollowRound, keep_shipping
from embermq.spark.shipped.manifests import KEEP_MS, Manifest, newest_manifest
from embermq.spark.shipped.places import Place, is_passing
from embermq.testing.builder import StoreBuilder
from embermq.testing.clock import ManualClock
from tests.support.shipping import NO_SPARK, objects_in, read_at, rows_of, run_here

pytestmark = pytest.mark.extended

SEGMENT_BYTES = 64 << 10
PATIENCE_SECONDS = 300


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    run_here(monkeypatch)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it would have waited after each round."""
    found: list[float] = []
    monkeypatch.setattr(ship_follow, "_wait", lambda seconds, stop: found.append(seconds))
    return found


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "broker-a", segment_bytes=SEGMENT_BYTES)


def put(store: MessageStore, count: int, size: int = 900) -> None:
    store.append_many([Message("orders", b"x" * size, keys=[f"o-{n}"], queue_id=n % 2) for n in range(count)])
    store.flush()


def following(builder: StoreBuilder, target: Path, **options: Any) -> Iterator[FollowRound]:
    return keep_shipping(NO_SPARK, [str(builder.root)], str(target), **options)


def manifest_at(target: Path) -> Manifest:
    found = newest_manifest(Place(str(target / "broker-a")))
    assert found is not None
    return found


# -- behind a store that is written ------------------------------------------------------------------------------------


def test_round_after_round(builder: StoreBuilder, tmp_path: Path, waits: list[float]) -> None:
    target = tmp_path / "far"
    with builder.open() as store:
        rounds = following(builder, target, every_seconds=7)
        shipped = 0
        for turn, count in enumerate((10, 0, 100, 1, 1), 1):
            put(store, count) if count else None
            done = next(rounds)
            assert (done.number, done.failure, bool(done.shipped)) == (turn, None, count > 0)
            assert done.lag_bytes == 0
            assert done.bytes_per_second > 0 or not count
            shipped += done.bytes
            assert rows_of(read_at(target)) == rows_of(read_at(builder.root))
        assert shipped >= manifest_at(target).end
        before = manifest_at(target).number
        next(rounds)
        assert manifest_at(target).number == before, "nothing new: nothing written"
    assert all(0 <= seconds <= 7 for seconds in waits)


def test_what_piles_up_is_bounded(
    builder: StoreBuilder, tmp_path: Path, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many rounds over several log files: few parts at any time, one object for a full log file; old ones go."""
    monkeypatch.setattr(ship_pieces, "TIER_BYTES", 4 << 10)
    clock, target = ManualClock(1_800_000_000_000), tmp_path / "far"
    with builder.open() as store:
        rounds = following(builder, target, clock=clock)
        uploaded = most = 0
        for _ in range(90):
            put(store, 1, 1_000 + 37 * (len(waits) % 50))
            clock.advance(ms=3_600_000)
            uploaded += next(rounds).bytes
            most = max(most, max(len(one.parts) for one in manifest_at(target).segments))
        manifest = manifest_at(target)
        assert len(manifest.segments) >= 3
        assert [one.is_sealed for one in manifest.segments[:-1]] == [True] * (len(manifest.segments) - 1)
        assert 7 < most <= 21
        assert uploaded < 5 * manifest.end
        named = {name for part in manifest.parts for name in part.names} | {one.name for one in manifest.dropped}
        there = objects_in(target / "broker-a")
        assert {name for name in there if name.startswith(("tail/", "commitlog/", "summaries/"))} <= named
        assert all(one.since_ms > clock.now_ms() - KEEP_MS for one in manifest.dropped)
        assert len([name for name in there if name.startswith("manifests/")]) <= 100
        assert rows_of(read_at(target)) == rows_of(read_at(builder.root))


def test_files_of_the_configuration_go_along_once_a_minute(
    builder: StoreBuilder, tmp_path: Path, waits: list[float]
) -> None:
    clock, target = ManualClock(1_800_000_000_000), tmp_path / "far"
    (builder.root / "config").mkdir(parents=True)
    seen = []
    with builder.open() as store:
        rounds = following(builder, target, clock=clock)
        for turn in range(8):
            (builder.root / "config" / "consumerOffset.json").write_text(f'{{"offsetTable":{{"a@b":{{"0":{turn}}}}}}}')
            put(store, 1)
            next(rounds)
            seen.append(manifest_at(target).config["consumerOffset.json"].name)
            clock.advance(ms=20_000)
    assert len(set(seen)) == 3


# -- a target that fails -----------------------------------------------------------------------------------------------


def fails(monkeypatch: pytest.MonkeyPatch, name_has: str = "", times: int = 1 << 30) -> None:
    """So many of the next writes of such an object do not arrive."""
    left, real = [times], Place.write

    def write(place: Place, name: str, chunks: Iterable[bytes]) -> None:
        if left[0] and name_has in name:
            left[0] -= 1
            raise PlaceUnavailable(place.named(name), "HTTP status 503")
        real(place, name, chunks)

    monkeypatch.setattr(Place, "write", write)


@pytest.mark.parametrize("name_has", ["commitlog/", "tail/", ".parquet", ".keys", "manifests/"])
def test_what_passes_is_tried_again(
    builder: StoreBuilder, tmp_path: Path, waits: list[float], monkeypatch: pytest.MonkeyPatch, name_has: str
) -> None:
    target = tmp_path / "far"
    with builder.open() as store:
        put(store, 3)
        rounds = following(builder, target)
        next(rounds)
        put(store, 150)
        with monkeypatch.context() as broken:
            fails(broken, name_has)
            failed = [next(rounds) for _ in range(9)]
            assert all(one.failure is not None and "HTTP status 503" in one.failure for one in failed)
            assert [one.pause_seconds for one in failed] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
            assert PAUSE_SECONDS_MAX == 60
            assert all(one.lag_bytes > 0 for one in failed)
        done = next(rounds)
        assert (done.failure, done.lag_bytes) == (None, 0)
        assert waits[1:] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
        assert rows_of(read_at(target)) == rows_of(read_at(builder.root))
        put(store, 1)
        with monkeypatch.context() as broken:
            fails(broken)
            assert next(rounds).pause_seconds == 1, "it has worked since"


def test_a_target_that_never_answers(
    builder: StoreBuilder, tmp_path: Path, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its address may be wrong: after some tries it is an error."""
    with builder.open() as store:
        put(store, 3)
    fails(monkeypatch)
    rounds = following(builder, tmp_path / "far")
    assert [next(rounds).pause_seconds for _ in range(3)] == [1, 2, 4]
    with pytest.raises(PlaceUnavailable, match="HTTP status 503"):
        next(rounds)


def test_mistakes_end_it_at_once(builder: StoreBuilder, tmp_path: Path, waits: list[float]) -> None:
    target = tmp_path / "far"
    with builder.open() as store:
        put(store, 100)
        next(following(builder, target))
    other = StoreBuilder(tmp_path / "other" / "broker-a", segment_bytes=SEGMENT_BYTES)
    with other.open() as store:
        put(store, 10, 33)
    before = objects_in(target)
    with pytest.raises(StoreReplaced):
        next(following(other, target))
    with pytest.raises(OptionInvalid, match="option every_seconds = 0: must be more than 0"):
        following(builder, target, every_seconds=0)
    with pytest.raises(OptionInvalid, match="option to = "):
        keep_shipping(NO_SPARK, [str(builder.root)], "gopher://x")
    with pytest.raises(StorePathInvalid, match="no such directory"):
        keep_shipping(NO_SPARK, [str(tmp_path / "none")], str(target))
    assert objects_in(target) == before


def test_a_gap_ends_it_and_can_be_accepted(builder: StoreBuilder, tmp_path: Path, waits: list[float]) -> None:
    target = tmp_path / "far"
    with builder.open() as store:
        put(store, 10)
        rounds = following(builder, target)
        next(rounds)
    with builder.open() as store:
        put(store, 300)
    for file in sorted((builder.root / "commitlog").iterdir())[:2]:
        file.unlink()
    with pytest.raises(DataLost, match="--ignore-data-loss"):
        next(rounds)
    assert next(following(builder, target, ignore_data_loss=True)).lag_bytes == 0


def test_the_end_lost_in_a_crash_is_shipped_again_once(
    builder: StoreBuilder, tmp_path: Path, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure in between is no second loss: what was before stays."""
    target = tmp_path / "far"
    with builder.open() as store:
        put(store, 250)
    shutil.copytree(builder.root, tmp_path / "earlier")
    with builder.open() as store:
        put(store, 10)
    rounds = following(builder, target, ignore_data_loss=True)
    next(rounds)
    shutil.rmtree(builder.root)
    (tmp_path / "earlier").rename(builder.root)
    with builder.open() as store:
        put(store, 30, 933)
    with monkeypatch.context() as broken:
        fails(broken, "-cut")
        assert [next(rounds).failure is None for _ in range(3)] == [False] * 3
    assert next(rounds).failure is None
    assert manifest_at(target).cuts == 1
    assert [one.start for one in manifest_at(target).segments][:2] == [0, SEGMENT_BYTES]
    assert rows_of(read_at(target)) == rows_of(read_at(builder.root))


# -- which failures pass -----------------------------------------------------------------------------------------------


def test_which_failures_pass() -> None:
    passing = [
        OSError(
            "When getting information for key 'a' in bucket 'b': AWS Error NETWORK_CONNECTION during HeadObject"
            " operation: curlCode: 7, Couldn't connect to server"
        ),
        OSError("AWS Error INTERNAL_FAILURE during PutObject operation: We encountered an internal error"),
        OSError("AWS Error SLOW_DOWN during PutObject operation: Please reduce your request rate"),
        OSError("AWS Error UNKNOWN (HTTP status 503) during ListObjectsV2 operation: no answer"),
        OSError("AWS Error REQUEST_TIMEOUT during UploadPart operation"),
        TimeoutError(),
        ConnectionResetError(),
        OSError(errno.ETIMEDOUT, "x"),
        OSError(errno.ESTALE, "x"),
        OSError("HDFS: StandbyException: not now"),
    ]
    lasting = [
        OSError("AWS Error NO_SUCH_BUCKET during PutObject operation: The specified bucket does not exist"),
        OSError("AWS Error ACCESS_DENIED during PutObject operation: Access Denied"),
        OSError("AWS Error UNKNOWN (HTTP status 403) during HeadObject operation: No response body"),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EACCES, "x"),
        NotADirectoryError("x"),
    ]
    assert [is_passing(one) for one in passing] == [True] * len(passing)
    assert [is_passing(one) for one in lasting] == [False] * len(lasting)


class Busy(BaseHTTPRequestHandler):
    """An S3 server that has other things to do."""

    def do_GET(self) -> None:
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_HEAD = do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


def test_an_s3_server_that_is_busy() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = f"s3://u:s3cr3t@bucket/x?endpoint_override=127.0.0.1:{server.server_port}&scheme=http&region=us-east-1"
    try:
        with pytest.raises(PlaceUnavailable) as busy:
            Place(address).read("object")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert str(busy.value).startswith("s3://bucket/x/object: ")
    assert "s3cr3t" not in str(busy.value)
    assert "\n" not in str(busy.value)


# -- asked to stop -----------------------------------------------------------------------------------------------------


def test_stopped_after_the_object_in_hand(
    builder: StoreBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "far"
    run_here(monkeypatch, parallel=1)
    with builder.open() as store:
        put(store, 500)

    def stop() -> bool:
        return (target / "broker-a" / "commitlog" / f"{SEGMENT_BYTES:020}").exists()

    rounds = following(builder, target, stop=stop)
    done = next(rounds)
    assert (done.objects, done.bytes) == (2, 2 * SEGMENT_BYTES)
    assert done.lag_bytes > 0
    assert list(rounds) == []
    assert manifest_at(target).end == 2 * SEGMENT_BYTES
    shown = rows_of(read_at(target))
    assert shown == rows_of(read_at(builder.root))[: len(shown)]
    last = next(following(builder, target))
    assert last.bytes == manifest_at(target).end - 2 * SEGMENT_BYTES


def test_waiting_ends_when_it_is_asked_to() -> None:
    began = time.monotonic()
    ship_follow._wait(1000, lambda: time.monotonic() > began + 0.2)
    ship_follow._wait(0.01, lambda: False)
    assert time.monotonic() < began + 100


class _Asker(threading.Thread):
    """Sends a signal to this process once the target has some manifests; appends something for each."""

    def __init__(self, folder: Path, store: MessageStore, number: int) -> None:
        super().__init__(daemon=True)
        self._folder, self._store, self._number = folder, store, number

    def run(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        for count in (1, 2, 3):
            while len(list((self._folder / "manifests").glob("*.json"))) < count and time.monotonic() < deadline:
                time.sleep(0.02)
            put(self._store, 1)
        os.kill(os.getpid(), self._number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command(
    builder: StoreBuilder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    """A line for each round that shipped something; a signal ends it, with what was done and exit code 0."""
    monkeypatch.setattr(embermq.spark, "session", lambda *_: SimpleNamespace(stop=lambda: None), raising=False)
    before, target = signal.getsignal(number), tmp_path / "far"
    with builder.open() as store:
        put(store, 100)
        _Asker(target / "broker-a", store, number).start()
        code = run(
            [
                "spark",
                "ship",
                str(builder.root),
                "--into",
                str(target),
                "--follow",
                "--every",
                "0.1",
                "--output",
                "json",
            ]
        )
    assert code == 0
    assert signal.getsignal(number) is before
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in err.splitlines()]
    assert len(lines) >= 3
    assert all(line["shipped"] and line["lag_bytes"] >= 0 and line["bytes_per_second"] > 0 for line in lines)
    (total,) = json.loads(out)["shipped"]
    assert total["bytes"] == sum(line["bytes"] for line in lines)
    assert (total["broker_name"], total["start"], total["end"]) == ("broker-a", 0, manifest_at(target).end)


def test_the_command_in_words(
    builder: StoreBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(embermq.spark, "session", lambda *_: SimpleNamespace(stop=lambda: None), raising=False)
    monkeypatch.setattr(ship_follow, "PAUSE_SECONDS", 0.01)
    target = tmp_path / "far"
    with builder.open() as store:
        put(store, 10)
        fails(monkeypatch, times=2)
        _Asker(target / "broker-a", store, signal.SIGTERM).start()
        assert run(["spark", "ship", str(builder.root), "--to", str(target), "--follow", "--every", "0.1"]) == 0
    out = capsys.readouterr().out
    assert out.count("HTTP status 503; trying again in 10.0 ms") == 1
    assert out.count("HTTP status 503; trying again in 20.0 ms") == 1
    assert f"shipped to {target}" in out
    assert run(["spark", "ship", str(builder.root), "--to", str(target), "--every", "3"]) == 2
    assert "option every: has no meaning without --follow" in capsys.readouterr().err
    assert run(["spark", "ship", str(tmp_path / "none"), "--to", str(target), "--follow"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "none" in line
