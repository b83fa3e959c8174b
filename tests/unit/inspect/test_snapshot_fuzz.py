"""Any bytes anywhere: a survey never fails, shows whole records only, and all of those that were not touched."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embermq.format.frame import Frame, decode
from embermq.inspect.snapshot import Survey
from embermq.testing.builder import StoreBuilder
from tests.crash import numbered
from tests.support.surveys import bounds_of, expected_bounds, frames_of, seen_by

SEGMENT_BYTES = 8192
Change = tuple[int, int, bytes]  # which file, where in it, what


@pytest.fixture(scope="module", params=["closed", "aborted", "foreign"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = StoreBuilder(tmp_path_factory.mktemp("fuzz") / "store", **numbered.TINY)
    with builder.open() as opened:
        numbered.append_until(opened, 0, 100)
    if request.param == "aborted":
        (builder.root / "abort").touch()
    if request.param == "foreign":
        for path in builder.root.glob("embermq.*"):
            path.unlink()
    return builder.root


changes = st.lists(
    st.tuples(
        st.integers(0, 1 << 16),
        st.integers(0, 1 << 16),
        st.one_of(st.binary(min_size=1, max_size=40), st.integers(1, 600).map(bytes)),
    ),
    min_size=1,
    max_size=4,
)


def change(root: Path, family: str, made: list[Change]) -> list[tuple[Path, int, int]]:
    """Change files of a family; answers file, start and end of each change."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and family in str(path.relative_to(root)))
    touched = []
    for number, at, data in made:
        path = files[number % len(files)]
        content = bytearray(path.read_bytes())
        if content:
            start = at % len(content)
            content[start : start + len(data)] = data[: len(content) - start]
            path.write_bytes(content)
            touched.append((path, start, min(start + len(data), len(content))))
    return touched


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=changes)
@pytest.mark.slow(2)
def test_a_log_with_anything_in_it(store: Path, tmp_path: Path, made: list[Change]) -> None:
    frames = frames_of(store)
    root = tmp_path / "copy"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(store, root)
    touched = change(root, "commitlog", made)
    survey = Survey.open(root)
    seen = seen_by(survey)
    for place in seen.places:
        data = (root / "commitlog" / f"{place // SEGMENT_BYTES * SEGMENT_BYTES:020d}").read_bytes()
        one = decode(data, place % SEGMENT_BYTES, len(data), physical_offset=place, check_crc=True)
        assert isinstance(one, Frame)
    ranges = [(int(path.name) + start, int(path.name) + end) for path, start, end in touched]
    whole = [
        one.physical_offset
        for one in frames
        if not any(start < one.end and one.physical_offset < end for start, end in ranges)
    ]
    missed = set(whole) - set(seen.places)
    assert not {place for place in missed if place < survey.log_end}
    assert seen.places == sorted(seen.places)
    for key, (low, high) in bounds_of(survey).items():
        assert low <= high
        survey.entries(*key, low, high)
        survey.offset_at(*key, frames[50].store_timestamp)
    survey.physical_at(frames[50].store_timestamp)
    survey.find_key("Topic0", "id0", 0, 1 << 60)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=changes, family=st.sampled_from(["consumequeue", "index", "embermq", "checkpoint", ""]))
@pytest.mark.slow(2)
def test_derived_files_with_anything_in_them(store: Path, tmp_path: Path, family: str, made: list[Change]) -> None:
    """The log is untouched: whatever the other files say, log and queues are seen as they are."""
    frames = frames_of(store)
    root = tmp_path / "copy"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(store, root)
    for path in (root / "commitlog").iterdir():
        path.rename(root.parent / path.name)
    (root / "commitlog").rmdir()
    if not any(path.is_file() and family in str(path.relative_to(root)) for path in root.rglob("*")):
        family = "consumequeue"
    change(root, family, made)
    (root / "commitlog").mkdir()
    for path in root.parent.glob("0" * 15 + "*"):
        path.rename(root / "commitlog" / path.name)
    survey = Survey.open(root)
    assert survey.log_end == frames[-1].end
    assert seen_by(survey).places == [one.physical_offset for one in frames]
    if (root / "embermq.inventory.json").exists() and family != "":
        assert bounds_of(survey) == expected_bounds(frames)
        return
    # Nobody but the queue files says how long a queue of RocketMQ is; they cannot say more than the log has.
    expected = expected_bounds(frames)
    for key, (low, high) in bounds_of(survey).items():
        assert expected[key][0] <= low <= high <= expected[key][1]
