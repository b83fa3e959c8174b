"""Which topics of a shipped store were deleted, and up to which place of the log: the store's own note, beside the log.

The object is a file `embermq.deleted.json` (store/layout/deleted_topics.py), byte for byte what a rebuild from the copy
wants to find, and a manifest names it among the files of `config`: what it says counts together with the log that the
manifest names. A manifest without one knows of no deletion. Driver side.
"""

from collections.abc import Mapping

from embermq.errors import StoreError
from embermq.spark.shipped.manifests import Manifest
from embermq.spark.shipped.places import Place
from embermq.store.layout import DELETED_TOPICS_FILE, parse_deleted_topics

__all__ = ["DELETED_TOPICS_FILE", "Deletions", "merged"]


class Deletions:
    """The note of the newest manifest; an object is read once."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._known: tuple[str, dict[str, int]] = "", {}  # name of the object, and what it says

    def of(self, manifest: Manifest) -> dict[str, int]:
        """StoreError if the object is gone or damaged: deleted topics would come back without a word."""
        named = manifest.config.get(DELETED_TOPICS_FILE)
        if named is None:
            return {}
        if self._known[0] != named.name:
            try:
                found = parse_deleted_topics(self._place.read(named.name))
            except FileNotFoundError:
                raise self._wrong(named.name, "is gone") from None
            if found is None:
                raise self._wrong(named.name, "is damaged")
            self._known = named.name, found
        return self._known[1]

    def _wrong(self, name: str, what: str) -> StoreError:
        return StoreError(f"{self._place.named(name)}: {what}; restore it, or ship the store anew")


def merged(noted: Mapping[str, int], shipped: Mapping[str, int], shipped_end: int, log_min: int) -> dict[str, int]:
    """What a copy is to say that ended at `shipped_end` with a note of its own, and now goes on with a store's.

    The store knows best: it lowers a place when its log loses its end, and one that was put back to an earlier day
    never deleted the topic. But it forgets deletions that its log begins behind, and the copy still has what they are
    about: they stay, for what was shipped; what comes after is of a new incarnation.
    """
    before = {topic: min(place, shipped_end) for topic, place in shipped.items()}
    return {topic: place for topic, place in before.items() if 0 < place <= log_min} | dict(noted)
