"""Making a damaged index file again, from the log, while the store goes on.

The file is written in its own place: nothing in it is believed any more, look-ups read the log instead, and no space
is needed. It gets the keys between the last one of the file before it and the first one of the file behind it; a record
may have keys in both. A crash in the middle leaves a file whose checksums differ still, so it is found again.

One thread at a time; appends, dispatch and look-ups go on meanwhile.
"""

import logging

from embermq.columns import C_PHYSICAL, RecordColumns, key_rows
from embermq.store.index.index_file import IndexFile
from embermq.store.index.index_files import IndexFiles, RepairSite
from embermq.store.index.log_search import KeySearch

log = logging.getLogger(__name__)


class RepairFailed(Exception):
    """The log has other keys than the file had room for."""


def repair_index(index: IndexFiles, search: KeySearch) -> list[str]:
    """Make all damaged files again, oldest first; the names of those that were."""
    done = []
    for name in index.damaged:
        site = index.begin_repair(name)
        if site is None:
            continue
        try:
            _fill(site, search)
        except RepairFailed:
            log.error("index file not made again file=%s; use embermq store rebuild", name)
            continue
        if index.finish_repair(site):
            log.warning("index file made again file=%s entries=%d", name, site.fresh.header().count - 1)
            done.append(name)
    return done


def _fill(site: RepairSite, search: KeySearch) -> None:
    """Put the keys of the file's records. RepairFailed if there are too many."""
    fresh, last = site.fresh, site.damaged.header().end_physical
    before = site.before.header() if site.before is not None and site.before.header().count > 1 else None
    fresh.make_again(site.before.header() if site.before is not None else None)
    start = before.end_physical if before is not None else 0
    had = site.before.entries_of_last_record(start) if site.before is not None and before is not None else 0
    left = site.after.entries_of_first_record(last)  # Keys of the last record that are in the next file.
    for batch in search.records(start, last, check_crc=True):
        first = had if int(batch.rows[0, C_PHYSICAL]) == start else 0
        is_last = int(batch.rows[-1, C_PHYSICAL]) == last
        _put(fresh, _rows(batch, 0, len(batch) - is_last), first)
        if is_last:
            keys = key_rows(_rows(batch, len(batch) - 1, len(batch)))
            if not fresh.put_keys(keys[first if len(batch) == 1 else 0 : len(keys) - left]):
                raise RepairFailed


def _put(file: IndexFile, batch: RecordColumns, key: int) -> None:
    if len(batch) and file.put(batch, 0, key, 0)[0] < len(batch):
        raise RepairFailed


def _rows(batch: RecordColumns, start: int, end: int) -> RecordColumns:
    return RecordColumns(batch.data, batch.base, batch.rows[start:end])
