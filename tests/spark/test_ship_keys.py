"""Keys of shipped stores: a look-up reads a small part of the log, and answers what the store itself answers."""

import json
import random
import struct
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from embermq import Message
from embermq.errors import StoreError
from embermq.format.java import index_key_hash
from embermq.inspect.snapshot import Survey
from embermq.model import flags
from embermq.spark.jobs import ship_pieces
from embermq.spark.planning.explain import explain_read
from embermq.spark.shipped import key_lists
from embermq.spark.shipped.files import ShippedFiles
from embermq.spark.shipped.key_lists import BLOCK_ENTRIES, HEAD, KeyList, KeyListMaker
from embermq.spark.shipped.manifests import HEAD as STORE_HEAD
from embermq.spark.shipped.manifests import Manifest, load_head, manifest_name, newest_manifest
from embermq.spark.shipped.places import Place
from embermq.spark.shipped.surveys import ShippedSurvey
from embermq.testing.builder import StoreBuilder
from tests.support.kernels import force_compiled, force_plain
from tests.support.records import LogOfRecords
from tests.support.shipping import objects_in, read_at, rows_of, run_here, ship
from tests.support.spark_reads import Read

pytestmark = pytest.mark.extended

SEGMENT_BYTES = 512 << 10


# -- a list by itself --------------------------------------------------------------------------------------------------


def listed(log: LogOfRecords, tmp_path: Path) -> KeyList:
    maker = KeyListMaker(log.start, log.end)
    for at in range(0, len(log.offsets), 700):
        maker.take(log.columns(at, min(at + 700, len(log.offsets))))
    data = maker.to_bytes()
    assert data is not None
    (tmp_path / "keys").write_bytes(data)
    return KeyList(Place(str(tmp_path)), "keys")


def test_what_a_list_finds(tmp_path: Path) -> None:
    """Every key, in blocks of any number; one that many records have; none that nobody has."""
    log, chance = LogOfRecords(5000), random.Random(4)
    expected: dict[tuple[str, str], list[int]] = {}
    for n in range(6000):
        topic, keys = f"t{n % 3}", [f"k{chance.randrange(4000)}", "everybody"] if n % 5 else []
        place = log.end
        log.append(topic, 0, n, properties={"KEYS": " ".join(keys), "UNIQ_KEY": f"u{n}"})
        for key in {*keys, f"u{n}"}:
            expected.setdefault((topic, key), []).append(place)
    keys_of = listed(log, tmp_path)
    entries = sum(len(places) for places in expected.values())
    for name in [*chance.sample(sorted(expected), 300), *((f"t{n}", "everybody") for n in range(3))]:
        assert keys_of.find(*name) == expected[name], name
    assert keys_of.find("t0", "nobody") == []
    assert keys_of.find("other", "everybody") == []
    read_all = keys_of.bytes_read
    again = KeyList(Place(str(tmp_path)), "keys")
    assert again.find("t1", "u1") == expected["t1", "u1"]
    assert again.bytes_read <= key_lists.FIRST_READ_BYTES + 2 * BLOCK_ENTRIES * 8 < entries * 8
    assert read_all > again.bytes_read


def test_both_ways_to_make_one_and_no_keys_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogOfRecords(100)
    for n in range(50):
        flag = flags.ROLLBACK if n % 10 == 0 else 0
        log.append("t", 0, n, sys_flag=flag, properties={"KEYS": f" a{n}  b{n} ", "UNIQ_KEY": f"ü{n}"})
    made = []
    for force in (force_plain, force_compiled):
        force(monkeypatch)
        maker = KeyListMaker(log.start, log.end)
        maker.take(log.columns())
        made.append(maker.to_bytes())
    assert made[0] == made[1]
    assert listed(log, tmp_path).find("t", "ü7") == [log.offsets[7]]
    assert listed(log, tmp_path).find("t", "a10") == [], "rolled back: no consumer sees it"
    empty = LogOfRecords(7)
    empty.append("t", 0, 0)
    assert listed(empty, tmp_path).find("t", "a") == []


def test_too_much_for_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogOfRecords()
    for n in range(9):
        log.append("t", 0, n, properties={"KEYS": f"a{n}"})
    monkeypatch.setattr(key_lists, "KEYS_MAX", 8)
    maker = KeyListMaker(log.start, log.end)
    maker.take(log.columns(0, 8))
    assert maker.to_bytes() is not None
    maker.take(log.columns(8, 9))
    assert maker.to_bytes() is None
    far = KeyListMaker(0, 1 << 32)
    far.take(log.columns())
    assert far.to_bytes() is None, "places have 32 bits"


def test_a_damaged_list_is_never_an_answer(tmp_path: Path) -> None:
    """Any byte of what is read may be another one, or the list shorter: an error that names it."""
    log = LogOfRecords()
    for n in range(20):
        log.append("t", 0, n, properties={"KEYS": f"a{n}"})
    assert listed(log, tmp_path).find("t", "a7") == [log.offsets[7]]
    file = tmp_path / "keys"
    sound = file.read_bytes()
    for at in range(len(sound)):
        file.write_bytes(sound[:at] + bytes([sound[at] ^ 0x40]) + sound[at + 1 :])
        with pytest.raises(StoreError, match=f"^{file}: is damaged; restore it, or ship the store anew"):
            KeyList(Place(str(tmp_path)), "keys").find("t", "a7")
    for size in range(len(sound)):
        file.write_bytes(sound[:size])
        with pytest.raises(StoreError, match="is damaged"):
            KeyList(Place(str(tmp_path)), "keys").find("t", "a7")
    file.unlink()
    with pytest.raises(StoreError, match="is gone"):
        KeyList(Place(str(tmp_path)), "keys").find("t", "a7")


def test_layout(tmp_path: Path) -> None:
    """As docs/format/shipped.md has it."""
    log = LogOfRecords(300)
    log.append("t", 0, 0, properties={"KEYS": "a"})
    listed(log, tmp_path)
    data = (tmp_path / "keys").read_bytes()
    assert len(data) == HEAD.size + 8 + 8 == 44
    assert (data[:8], struct.unpack_from("<qq", data, 8)) == (b"EMBKEYS1", (300, 1))
    assert struct.unpack_from("<I", data, 28)[0] == index_key_hash("t", "a")
    assert struct.unpack_from("<II", data, 36) == (0, index_key_hash("t", "a"))


# -- in a shipped store ------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    run_here(monkeypatch)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three log files, two topics, keys that one, some and all messages have."""
    made = StoreBuilder(tmp_path_factory.mktemp("keys") / "broker-a", segment_bytes=SEGMENT_BYTES)
    with made.open() as store:
        store.append_many(
            [
                Message(
                    ("orders", "returns")[n % 2], b"x" * 900, keys=[f"o-{n}", f"some-{n % 40}", "all"], queue_id=n % 3
                )
                for n in range(1300)
            ]
        )
    return made.root


QUESTIONS: list[dict[str, str]] = [
    {"keys": "o-700"},
    {"keys": "o-700", "topic": "orders"},
    {"keys": "o-700", "topic": "returns"},
    {"keys": "nobody"},
    {"keys": "some-7"},
    {"keys": "o-1,o-2,o-1299", "queues": "1,2"},
    {"keys": "all", "topic": "returns", "queues": "0"},
    {"keys": "o-3", "startingOffsets": '{"orders": {"0": 5, "1": -2, "2": -2}}', "topic": "orders"},
    {"keys": "o-700", "includeSystemTopics": "true"},
    {"keys": "all", "subExpression": "none"},
]


def bytes_read(found: Read) -> int:
    return sum(cast(ShippedFiles, one.files).bytes_read for one in found.slices)


def survey_at(folder: Path) -> ShippedSurvey:
    return ShippedSurvey.open_at(Place(str(folder)))


def without_lists(folder: Path, *, only: int | None = None) -> None:
    """As version 1 has shipped it; or only so many of the first parts."""
    place = Place(str(folder))
    manifest = newest_manifest(place)
    assert manifest is not None
    raw = json.loads((folder / manifest_name(manifest.number)).read_bytes())
    count = 0
    for segment in raw["segments"]:
        for part in segment["parts"]:
            if only is None or count < only:
                (folder / part.pop("keys")["name"]).unlink()
            count += 1
    bare = msgspec.convert(raw, Manifest)
    (folder / manifest_name(manifest.number)).write_bytes(msgspec.json.encode(bare.sealed()))
    if only is None:
        (folder / STORE_HEAD).write_text('{"version":1,"broker_name":"broker-a","made_ms":17}')
        assert b'"keys"' not in (folder / manifest_name(manifest.number)).read_bytes()


def test_answers_and_what_they_take(root: Path, tmp_path: Path) -> None:
    target = tmp_path / "far"
    ship(root, target)
    log_bytes = Survey.open(root).log_end
    for question in QUESTIONS:
        assert rows_of(read_at(target, **question)) == rows_of(read_at(root, **question)), question
    found = read_at(target, keys="o-700")
    assert [row["keys"] for row in found.rows] == ["o-700 some-20 all"]
    assert found.methods == {"places"}
    assert bytes_read(found) <= 4 << 10 < 0.01 * log_bytes
    survey = survey_at(target / "broker-a")
    assert survey.find_key("orders", "o-700", 0, 1) == [found.rows[0]["physicalOffset"]]
    assert survey.bytes_read < 0.1 * log_bytes, "three lists, a block of each"
    (reported,) = explain_read({"path": str(target), "keys": "o-700"})
    assert reported.reason == "1 record can be meant, by the index"
    many = read_at(target, keys="all")
    assert len(many.rows) == 1300
    assert len(many.slices) <= 4, "many places are no reason for many tasks"


def test_filters_of_a_query(root: Path, tmp_path: Path) -> None:
    from pyspark.sql.datasource import EqualTo, In

    ship(root, tmp_path / "far")
    whole, several = EqualTo(("keys",), "o-9 some-9 all"), In(("keys",), ("o-9", "o-10 x"))
    for filters in ([whole], [several, EqualTo(("topic",), "orders")]):
        found, here = (read_at(path, filters=filters) for path in (tmp_path / "far", root))
        assert rows_of(found) == rows_of(here)
        assert found.methods == {"places"}


@pytest.mark.parametrize("only", [None, 1])
def test_what_was_shipped_without_lists(root: Path, tmp_path: Path, only: int | None) -> None:
    """By version 1, or in part: it is read, and all of the parts that nobody knows anything about."""
    target, folder = tmp_path / "far", tmp_path / "far" / "broker-a"
    ship(root, target)
    without_lists(folder, only=only)
    for question in QUESTIONS:
        assert rows_of(read_at(target, **question)) == rows_of(read_at(root, **question)), question
    found, log_bytes = read_at(target, keys="o-1250"), Survey.open(root).log_end
    assert (found.methods, len(found.rows)) == ({"log"}, 1)
    if only is None:
        assert bytes_read(found) >= log_bytes
    else:
        assert SEGMENT_BYTES <= bytes_read(found) < SEGMENT_BYTES + 4 * (64 << 10), "and a stretch of the others"


def test_a_store_of_version_1_goes_on(root: Path, tmp_path: Path) -> None:
    """What comes is shipped with lists; the head says so before any manifest does."""
    target, folder = tmp_path / "far", tmp_path / "far" / "broker-a"
    ship(root, target, tail=False)
    without_lists(folder)
    before = objects_in(folder)
    ship(root, target)
    head, manifest = load_head(Place(str(folder))), newest_manifest(Place(str(folder)))
    assert head is not None
    assert (head.version, head.made_ms) == (2, 17)
    assert manifest is not None
    assert [part.keys is not None for part in manifest.parts] == [False] * (len(manifest.parts) - 1) + [True]
    after = objects_in(folder)
    assert {name: after[name] for name in before if name != STORE_HEAD} == {
        name: data for name, data in before.items() if name != STORE_HEAD
    }
    assert rows_of(read_at(target, keys="some-3")) == rows_of(read_at(root, keys="some-3"))


def test_a_newer_version_is_refused(root: Path, tmp_path: Path) -> None:
    ship(root, tmp_path / "far")
    (tmp_path / "far" / "broker-a" / STORE_HEAD).write_text('{"version":3,"broker_name":"broker-a","made_ms":17}')
    with pytest.raises(StoreError, match="version 3 is not known here; a newer EmberMQ wrote it"):
        read_at(tmp_path / "far")


def test_damage_may_have_had_any_key(tmp_path: Path) -> None:
    made = StoreBuilder(tmp_path / "broker-a", segment_bytes=SEGMENT_BYTES)
    with made.open() as store:
        receipts = [store.append(Message("orders", b"x" * 900, keys=[f"o-{n}"])) for n in range(600)]
    place = receipts[300].physical_offset
    file = made.root / "commitlog" / ("0" * 20)
    data = bytearray(file.read_bytes())
    data[place + 200] ^= 1
    file.write_bytes(data)
    ship(made.root, tmp_path / "far")
    found = read_at(tmp_path / "far", keys="o-5", onCorrupt="rows")
    assert [row["physicalOffset"] for row in found.rows] == [receipts[5].physical_offset, place]
    assert bytes_read(found) < 0.6 * Survey.open(made.root).log_end


def test_a_list_that_is_gone_is_told(root: Path, tmp_path: Path) -> None:
    ship(root, tmp_path / "far")
    folder = tmp_path / "far" / "broker-a"
    (gone, *_) = (folder / "summaries").glob("*.keys")
    gone.unlink()
    with pytest.raises(StoreError, match=f"^{gone}: is gone; restore it, or ship the store anew"):
        read_at(tmp_path / "far", keys="o-1")
    assert len(read_at(tmp_path / "far").rows) == 1300, "who asks for no key needs none"


def test_a_part_with_too_many_keys(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_lists, "KEYS_MAX", 1500)
    ship(root, tmp_path / "far")
    manifest = newest_manifest(Place(str(tmp_path / "far" / "broker-a")))
    assert manifest is not None
    assert {part.keys is None for part in manifest.parts} == {True, False}
    assert not any(name.endswith(".keys") and "tail" not in name for name in objects_in(tmp_path / "far"))
    assert rows_of(read_at(tmp_path / "far", keys="o-1")) == rows_of(read_at(root, keys="o-1"))


def test_a_list_is_read_back(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Spoilt(Place):
        def write(self, name: str, chunks: Any) -> None:
            super().write(name, [b"wrong"] if name.endswith(".keys") else chunks)

    monkeypatch.setattr(ship_pieces, "Place", Spoilt)
    with pytest.raises(StoreError, match=r"\.keys: is not what was written"):
        ship(root, tmp_path / "far")
    assert newest_manifest(Place(str(tmp_path / "far" / "broker-a"))) is None
