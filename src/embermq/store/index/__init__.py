"""The key index: hash files from topic and key to places in the log.

    index_files.py   all of them: the sink, and the query
    index_file.py    one of them
    repair.py, log_search.py   a damaged file made again; keys looked for in the log itself meanwhile

Other packages import from this face, not from the modules behind it.
"""

from embermq.store.index.index_file import ENTRY_DTYPE
from embermq.store.index.index_files import INDEX_FAMILY, IndexFiles, stamp_after
from embermq.store.index.log_search import places_with

__all__ = ["ENTRY_DTYPE", "INDEX_FAMILY", "IndexFiles", "places_with", "stamp_after"]
