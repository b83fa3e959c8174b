"""Log against index: every key of every record has its entry, in log order, and links and slots lead to it.

The pieces of the log are compared where they are read (store/compare/keys.py); here the files are found, what the
pieces say is put together, and links and slots are checked (store/index/links.py). Of a store that is being written,
only what was there at the beginning counts.

`check_structure` is the fast form: headers, and the order of some entries. One thread. Reads only.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np

from embermq.files import Files, entries_of
from embermq.format.frame import Frame
from embermq.format.index import HEADER_BYTES, decode_header, entry_at
from embermq.format.names import parse_index_name
from embermq.inspect import IndexShape
from embermq.repair.verify.findings import Flaw, Remedies, Severity
from embermq.store.compare import EntryPlace, IndexStream, KeyFlaw, KeyPart
from embermq.store.index import INDEX_FAMILY, CheckedIndexFile, LinkFlaw
from embermq.store.log import DamagedRange

FrameAt = Callable[[int], Frame | None]
EVERYTHING = 1 << 62  # As a place: all that there is.
_SAMPLES = 200
_KEPT_MAX = 20_000  # findings; further ones are counted in the last one about their file


class IndexCheck:
    """Compares the index files below `root` with the log."""

    def __init__(
        self,
        root: Path,
        files: Files,
        shape: IndexShape | None,
        frame_at: FrameAt,
        remedies: Remedies,
        *,
        believed: int | None,
        is_live: bool,
    ) -> None:
        """`believed`: a start believes that keys of all records below this place are there; None: as far as the
        newest entry says."""
        self._directory, self._files, self._remedies = root / INDEX_FAMILY, files, remedies
        self._is_live, self._frame_at = is_live, frame_at
        # A start after a crash looks at lengths, headers and slots itself, and makes the index again if need be.
        self._is_trusted = is_live or (believed is not None and believed >= EVERYTHING)
        self._flaws: list[Flaw] = []
        self._last_places: dict[int, int] = {}  # of findings about a range, by their number in the list
        self.parts = self._load(shape)
        self.stream = IndexStream(self.parts)
        newest = max((part.header.end_physical for part in self.parts), default=0)
        self._believed = newest if believed is None else believed
        self._at = EntryPlace(0, 1)
        self.entries = sum(part.header.count - 1 for part in self.parts)
        self.pending = 0  # Keys that are not proven yet.

    def _load(self, shape: IndexShape | None) -> list[CheckedIndexFile]:
        found: list[CheckedIndexFile] = []
        for entry in entries_of(self._files, self._directory):
            if not entry.is_file or parse_index_name(entry.name) is None:
                continue
            if shape is None or entry.size != shape.file_bytes:
                expected = "its shape is unknown" if shape is None else f"it should be {shape.file_bytes}"
                fault = f"the file is {entry.size} bytes long; {expected}"
                self._add(entry.name, fault, certain=self._is_trusted)
                continue
            try:
                file = self._files.open(self._directory / entry.name, False)
            except FileNotFoundError:
                continue  # Retention took it.
            header = decode_header(file.pread(HEADER_BYTES, 0))
            if header.count > shape[1]:
                fault = f"the header counts {header.count} entries of at most {shape[1]}"
                self._add(entry.name, fault, at=36, certain=self._is_trusted)
                continue
            if header.count == 1 and header.slot_count:
                fault = f"the header counts no entries, and {header.slot_count} slots that lead to some"
                self._add(entry.name, fault, at=36, certain=self._is_trusted)
                continue
            found.append(CheckedIndexFile(entry.name, file, header, *shape))
        return found

    def _add(
        self, name: str, fault: str, *, at: int = 0, place: int | None = None, count: int = 1, certain: bool = True
    ) -> None:
        severity = Severity.FAULT if certain else Severity.NOTE
        if len(self._flaws) >= _KEPT_MAX and self._count_in(name, severity, count):
            return
        self._flaws.append(
            Flaw(
                severity=severity,
                family=INDEX_FAMILY,
                file=f"{INDEX_FAMILY}/{name}",
                fault=fault,
                remedy=self._remedies.index if certain else self._remedies.start,
                physical_offset=place,
                byte_offset=at,
                count=count,
            )
        )

    def _count_in(self, name: str, severity: Severity, count: int) -> bool:
        """Too much is wrong to list it all: count this in the last finding about its file. False if there is none."""
        for number in range(len(self._flaws) - 1, -1, -1):
            known = self._flaws[number]
            if known.severity is severity and known.file == f"{INDEX_FAMILY}/{name}":
                self._flaws[number] = msgspec.structs.replace(known, count=known.count + count)
                return True
        return False

    # -- taking the log --------------------------------------------------------------------------------------

    def merge(self, part: KeyPart) -> None:
        """What the next piece of the log says."""
        for flaw in part.flaws:
            self._tell(flaw)
        if part.missing_count:
            _, physical, _ = (int(number) for number in part.missing[0])
            if physical < self._believed and self.parts:
                self._add(
                    self.parts[-1].name,
                    f"keys of the record at {physical} and of later ones have no entry",
                    place=physical,
                    count=part.missing_count,
                )
            else:
                self.pending += part.missing_count
        self._at = part.end

    def _tell(self, flaw: KeyFlaw) -> None:
        # By the record it was compared with: an entry that was never written may lead anywhere.
        certain = flaw.reached < self._believed
        if flaw.kind == "missing" and not certain:
            self.pending += flaw.times
            return
        if flaw.kind == "twice":
            self._tell_twice(flaw)
            return
        file = min(flaw.place.file, len(self.stream.parts) - 1)
        part = self.stream.parts[file]
        if flaw.times > 1:
            self._last_places[len(self._flaws)] = flaw.last_physical
        self._add(
            part.name,
            _fault_text(flaw),
            at=entry_at(flaw.place.entry, part.slots_max),
            place=flaw.physical,
            count=flaw.times,
            certain=certain or self._is_live,
        )

    def _tell_twice(self, flaw: KeyFlaw) -> None:
        which = f"the record at {flaw.physical} is"
        if flaw.times > 1:
            which = f"records from {flaw.physical} to {flaw.last_physical} are"
        self._flaws.append(
            Flaw(
                severity=Severity.NOTE,
                family=INDEX_FAMILY,
                file=INDEX_FAMILY,
                remedy=self._remedies.nothing,
                fault=f"{which} indexed twice, as RocketMQ does after a crash",
                physical_offset=flaw.physical,
                count=flaw.times,
            )
        )

    # -- after the log ---------------------------------------------------------------------------------------

    def finish(
        self, log_min: int, log_end: int, damages: list[DamagedRange], links: dict[str, list[LinkFlaw]]
    ) -> Iterator[Flaw]:
        """What is wrong with the index; `log_min` is where the log begins now, `damages` what is wrong with it, and
        `links` what is wrong with the links of each file."""
        beyond = self.stream.count_between(self._at, self.stream.end) if self.stream.parts else 0
        if beyond and not self._is_live:
            self._add(
                self.parts[-1].name,
                f"entries lead past the end of the log ({log_end})",
                place=log_end,
                count=beyond,
                certain=self._believed > log_end,
            )
        if not self.stream.parts and not self._is_live and log_end > log_min:
            for part in self.parts:
                self._add(part.name, "holds no entries, and neither does any other", certain=False)
        for part in self.stream.parts:
            if not (self._is_live and part is self.parts[-1]):
                self._check_header(part, log_min, log_end)
        for name, wrong in links.items():
            for link in wrong:
                self._add(name, link.fault, at=link.at, count=link.times, certain=self._is_trusted)
        for number, flaw in enumerate(self._flaws):
            places = (flaw.physical_offset, self._last_places.get(number, flaw.physical_offset))
            if any(_is_about_index(place, log_min, damages) for place in places):
                yield flaw

    def _check_header(self, part: CheckedIndexFile, log_min: int, log_end: int) -> None:
        """The header names the first and the last entry and the times of their records. A file that was cut back
        knows its last time in whole seconds only."""
        header = part.header
        ends = (
            ("begin", 1, 0, header.begin_physical, header.begin_timestamp),
            ("end", header.count - 1, 8, header.end_physical, header.end_timestamp),
        )
        for name, number, at, physical, time_ms in ends:
            found = int(part.entries(number, number + 1)[0]["physical_offset"])
            if found != physical:
                fault = f"the header's {name} is at {physical}, the entry's at {found}"
                self._add(part.name, fault, at=at + 16, place=found, certain=self._is_trusted)
                continue
            frame = self._frame_at(physical) if log_min <= physical < log_end else None
            if frame is not None and not frame.store_timestamp - 1000 < time_ms <= frame.store_timestamp:
                fault = f"the header's {name} time is {time_ms}, its record's {frame.store_timestamp}"
                self._add(part.name, fault, at=at, place=physical, certain=self._is_trusted)

    # -- the fast form ---------------------------------------------------------------------------------------

    def check_structure(self, log_end: int) -> Iterator[Flaw]:
        """Headers agree with the entries they name; entries, of which some are looked at, are in order."""
        before = 0
        for part in self.stream.parts:
            header = part.header
            places = part.sampled_places(_SAMPLES)
            is_growing = self._is_live and part is self.parts[-1]
            if (int(places[0]), int(places[-1])) != (header.begin_physical, header.end_physical) and not is_growing:
                fault = "the first or last entry is not the one the header names"
                self._add(part.name, fault, at=16, certain=self._is_trusted)
            elif int(places[0]) < before or (np.diff(places) < 0).any():
                fault = "entries are out of the order of the log"
                self._add(part.name, fault, place=int(places[0]), certain=header.end_physical < self._believed)
            elif header.end_physical >= log_end and not self._is_live:
                self._add(
                    part.name,
                    f"entries lead past the end of the log ({log_end})",
                    place=header.end_physical,
                    certain=self._believed > log_end,
                )
            before = int(places[-1])
        yield from self._flaws


def _fault_text(flaw: KeyFlaw) -> str:
    """What is wrong with one key or entry, or with a run of them."""
    first, last, number, found = flaw.physical, flaw.last_physical, flaw.place.entry, flaw.found or (0, 0, 0)
    if flaw.times == 1:
        return {
            "missing": f"a key (hash {flaw.key_hash}) of the record at {first} has no entry",
            "extra": f"entry {number} (hash {found[0]}) leads to {found[1]}, where no record has this key",
            "wrong": f"entry {number} is {found[0]} at {found[1]}; the log has {flaw.key_hash} at {first}",
            "seconds": f"entry {number} is {found[2]} s after the file's begin, its record is not",
        }[flaw.kind]
    records = f"records from {first} to {last}" if last > first else f"the record at {first}"
    return {
        "missing": f"keys of {records} have no entry",
        "extra": f"entries from {number} on lead to places from {first} to {last}, where no record has their key",
        "wrong": f"entries from {number} on are not those of {records}",
        "seconds": f"entries from {number} on have other times than {records}",
    }[flaw.kind]


def _is_about_index(place: int | None, log_min: int, damages: list[DamagedRange]) -> bool:
    """And not about a place that retention took meanwhile, or that is damaged, which is reported of the log."""
    return place is None or (place >= log_min and not _is_in(damages, place))


def _is_in(damages: list[DamagedRange], place: int) -> bool:
    return any(damage.start <= place < damage.end for damage in damages)
