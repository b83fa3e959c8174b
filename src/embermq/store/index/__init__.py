"""The key index: hash files from topic and key to places in the log.

    index_files.py   all of them: the sink, and the query; keys_in_memory.py: of a store opened read-only
    index_file.py    one of them; links.py its links and slots checked
    index_state.py   what the files were when they were proven
    proof.py         embermq.index.json: what of the index is durable
    repair.py, log_search.py   a damaged file made again; keys looked for in the log itself meanwhile

Other packages import from this face, not from the modules behind it.
"""

from embermq.store.index.index_file import ENTRY_DTYPE
from embermq.store.index.index_files import INDEX_FAMILY, IndexFiles, stamp_after
from embermq.store.index.links import CheckedIndexFile, LinkFlaw, link_flaws
from embermq.store.index.log_search import places_with
from embermq.store.index.proof import drop_index_proof, load_index_proof, prove_rebuilt_index

__all__ = [
    "CheckedIndexFile",
    "ENTRY_DTYPE",
    "INDEX_FAMILY",
    "IndexFiles",
    "LinkFlaw",
    "drop_index_proof",
    "link_flaws",
    "load_index_proof",
    "places_with",
    "prove_rebuilt_index",
    "stamp_after",
]
