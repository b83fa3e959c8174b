"""A shipped store as a Survey: what there is comes from manifest and summaries, records come by range reads.

    survey = ShippedSurvey.open(Place("s3://bucket/logs/broker-a"))

Nothing of the log is read to find out what it holds. There are no queue files: queues are known by stretches of some
MiB, and `extents` says which of these can hold what is wanted. Keys are known to the record, by lists beside the log
(key_lists.py; not of what version 1 has shipped). Deleted topics have no queues (deletions.py), as in the store; their
records are still in the log. One thread at a time. Driver side.
"""

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from embermq.columns import QueueName
from embermq.errors import StoreError, StorePathInvalid
from embermq.files import Files
from embermq.inspect import LogView, Queue, QueueSpan, QueueView, Survey
from embermq.spark.shipped.deletions import Deletions
from embermq.spark.shipped.files import ShippedFiles
from embermq.spark.shipped.key_lists import KeyList
from embermq.spark.shipped.manifests import (
    HEAD,
    Head,
    Manifest,
    ShippedObject,
    ShippedPart,
    is_shipped,
    load_head,
    newest_manifest,
)
from embermq.spark.shipped.places import Place
from embermq.spark.shipped.summaries import OffsetRange, Summary, from_bytes
from embermq.store.log import LogSegment

_KEYS_ASKED_MAX = 1_000  # topics times keys: each is a look into each list
_READERS = 16  # Summaries are small: it is the way there that takes time.


class ShippedLog(LogView):
    """The log as the manifest has it."""

    def __init__(self, root: Path, place: Place) -> None:
        self.place = place
        self.manifest: Manifest | None = None
        self._head: Head | None = None
        self.shipped = ShippedFiles(place.address, root, {})
        super().__init__(root, self.shipped.as_files, lambda: 0)

    def look(self) -> None:
        head = load_head(self.place)
        if head != self._head:  # It was wiped, and shipped anew: manifests of the same number are others.
            self._head, self.manifest = head, None
            self.forget()
        before, manifest = self.manifest, newest_manifest(self.place, self.manifest)
        if manifest is None:
            raise StorePathInvalid(self.place.shown, "nothing was shipped here yet; run `embermq spark ship` again")
        if manifest is before:
            return
        if before is not None and (manifest.cuts != before.cuts or manifest.end < before.end):
            self.forget()
        self.manifest = manifest
        self.shipped = ShippedFiles.of(self.place.address, self._root, manifest.segments)
        self.files, self.segments, self.end = self.shipped.as_files, self.shipped.segments, manifest.end


class ShippedQueues(QueueView):
    """Queues by the summaries; where entries are asked for, by a scan of a stretch."""

    def __init__(self, root: Path, log: ShippedLog) -> None:
        super().__init__(root, log.files, log)
        self._shipped_log = log
        self._tables: dict[str, pa.Table] = {}  # by the summary's checksum
        self._of: Manifest | None = None
        self._summary = Summary([])
        self._key_lists: dict[str, KeyList] = {}  # by their checksums, those that were asked
        self._topics: dict[str, frozenset[str]] = {}  # by the summary's checksum
        self._deletions = Deletions(log.place)

    def summary(self) -> Summary:
        """Of all that is shipped now."""
        manifest = self._shipped_log.manifest
        if manifest is not None and manifest is not self._of:
            self._load(manifest.parts)
            deleted = self._deletions.of(manifest)
            self._of = manifest
            self._reset(self._log.end)
            # A topic's deletion ends between two records: what ends above that place has newer ones.
            self._queues = {
                name: queue
                for name, queue in self._summary.queues().items()
                if queue.end_physical > deleted.get(queue.topic, -1)
            }
        return self._summary

    def deleted(self) -> dict[str, int]:
        """Topics that were deleted, and where the log ended then."""
        manifest = self._shipped_log.manifest
        return {} if manifest is None else self._deletions.of(manifest)

    def _load(self, parts: list[ShippedPart]) -> None:
        missing = [part for part in parts if part.summary.sha256 not in self._tables]
        if missing:
            with ThreadPoolExecutor(min(_READERS, len(missing))) as pool:
                for part, table in zip(missing, pool.map(self._read, missing), strict=True):
                    self._tables[part.summary.sha256] = table
        # Of two parts with the same records the summaries are not the same: places are in them.
        self._tables = {part.summary.sha256: self._tables[part.summary.sha256] for part in parts}
        self._summary = Summary(list(self._tables.values()))

    def _read(self, part: ShippedPart) -> pa.Table:
        place, name = self._shipped_log.place, part.summary.name
        try:
            return from_bytes(place.read(name))
        except (FileNotFoundError, pa.ArrowException, OSError) as problem:
            reason = "is gone" if isinstance(problem, FileNotFoundError) else "is no summary any more"
            raise StoreError(f"{place.named(name)}: {reason}; restore it, or ship the store anew") from None

    # -- keys ------------------------------------------------------------------------------------------------

    @property
    def parts(self) -> list[ShippedPart]:
        manifest = self._shipped_log.manifest
        return [] if manifest is None else manifest.parts

    def places_of(self, names: Iterable[tuple[str, str]]) -> list[int]:
        """Where the parts with a list have records that may have one of these keys, each with its topic."""
        self.summary()
        asked: list[tuple[KeyList, list[tuple[str, str]]]] = []
        for part in self.parts:
            if part.keys is not None:
                topics = self._topics_of(part)
                some = [(topic, key) for topic, key in names if topic in topics]
                asked += [(self._key_list(part.keys), some)] if some else []
        if not asked:
            return []
        with ThreadPoolExecutor(min(_READERS, len(asked))) as pool:
            found = pool.map(lambda one: [place for name in one[1] for place in one[0].find(*name)], asked)
            return sorted({place for places in found for place in places})

    def _topics_of(self, part: ShippedPart) -> frozenset[str]:
        of = part.summary.sha256
        if of not in self._topics:
            self._topics[of] = frozenset(self._tables[of]["topic"].unique().to_pylist())
        return self._topics[of]

    def _key_list(self, of: ShippedObject) -> KeyList:
        if of.sha256 not in self._key_lists:
            self._key_lists[of.sha256] = KeyList(self._shipped_log.place, of.name)
        return self._key_lists[of.sha256]

    @property
    def key_bytes_read(self) -> int:
        return sum(one.bytes_read for one in self._key_lists.values())

    def _current(self) -> dict[tuple[str, int], Queue]:
        self.summary()
        self._files = self._log.files
        assert self._queues is not None
        return self._queues


class ShippedSurvey(Survey):
    """One look at a shipped store, and further ones with `refresh`."""

    has_queue_files = False

    def __init__(self, place: Place) -> None:
        """Use `open_at`."""
        root = Path(place.shown)
        super().__init__(root, ShippedFiles(place.address, root, {}).as_files)
        self.place = place
        self._log = self._shipped_log = ShippedLog(root, place)
        self._queues = self._shipped_queues = ShippedQueues(root, self._shipped_log)

    @classmethod
    def open_at(cls, place: Place) -> "ShippedSurvey":
        """StorePathInvalid if nothing was shipped there."""
        if not is_shipped(place):
            raise StorePathInvalid(place.shown, f"not a shipped store: there is no {HEAD} in it")
        survey = cls(place)
        survey.refresh()
        return survey

    def _check_root(self) -> None:
        pass

    @property
    def manifest(self) -> Manifest:
        assert self._shipped_log.manifest is not None
        return self._shipped_log.manifest

    @property
    def bytes_read(self) -> int:
        """What planning took of the log itself and of lists of keys."""
        return self._shipped_log.shipped.bytes_read + self._shipped_queues.key_bytes_read

    def files_for(self, segments: tuple[LogSegment, ...], end: int) -> Files:
        return self._shipped_log.shipped.only(segments, end)

    def deleted_topics(self) -> dict[str, int]:
        return self._shipped_queues.deleted()

    def _is_deleted(self, span: QueueSpan, place: int | None) -> bool:
        return False  # Such queues are left out from the start: the summaries tell, without a look at the log.

    def extents(
        self,
        queues: Mapping[QueueName, OffsetRange] | None,
        begin_ms: int | None,
        end_ms: int | None,
        keys: Collection[str] | None = None,
    ) -> list[tuple[int, int]] | None:
        if queues is None and begin_ms is None and end_ms is None:
            return None
        summary = self._shipped_queues.summary()
        return summary.extents(queues, begin_ms, end_ms, self._may_have(keys, queues))

    def _may_have(
        self, keys: Collection[str] | None, queues: Mapping[QueueName, OffsetRange] | None
    ) -> list[tuple[int, int]] | None:
        """Where one of these keys can be: places that lists tell, and all of the parts that have none."""
        parts = self._shipped_queues.parts
        if keys is None or queues is None or all(part.keys is None for part in parts):
            return None
        names = {(topic, key) for topic, _ in queues for key in keys}
        if len(names) > _KEYS_ASKED_MAX:
            return None
        unlisted = [(part.start, part.end) for part in parts if part.keys is None]
        return unlisted + [(place, place + 1) for place in self._shipped_queues.places_of(names)]

    def find_key(self, topic: str, key: str, begin_ms: int, end_ms: int) -> list[int] | None:
        """As an index would, whatever the time; None if a part has no list, or damage, that may have been anything."""
        if any(part.keys is None or part.damaged_bytes for part in self._shipped_queues.parts):
            return None
        return self._shipped_queues.places_of([(topic, key)])

    def config_text(self, name: str) -> str | None:
        found = self.manifest.config.get(name)
        return None if found is None else self.place.read(found.name).decode("utf-8")
