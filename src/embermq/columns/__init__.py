"""Many records at once: a scan of the log as rows of numbers, and what is done with such rows.

    rows.py        what a row holds; RecordColumns, rows with the bytes they point into
    operations.py  scan, select, gather, pick, check, derive: each in the form that is done sooner
    choosing.py    compiled or plain: the one place that decides
    plain/         the forms in Python and numpy, which state the rules
    compiled/      the same compiled by numba, the only place that knows it; tests run both on the same bytes
"""

from embermq.columns.choosing import is_loaded, pays
from embermq.columns.compiled.derive import QueueTable
from embermq.columns.operations import (
    CheckLoops,
    Gather,
    RunLoops,
    Scan,
    check_index_links,
    check_loops_for,
    compiled_index_keys,
    compiled_put_index_keys,
    compiled_scan,
    compiled_write_lines,
    gather_for,
    hash_column_for,
    index_keys_for,
    log_check,
    new_log_check_walk,
    pick_for,
    put_index_rows,
    queue_table,
    rebuild_index_slots,
    repeated,
    resync_for,
    run_loops,
    scan_for,
    select_for,
)
from embermq.columns.plain.check import (
    Q_COLUMNS,
    Q_FIRST,
    Q_NEXT,
    Q_WINDOW_AT,
    Q_WINDOW_END,
    Q_WINDOW_START,
    W_AT,
    W_COUNT,
    W_ENTRY,
    W_NEWEST_MS,
    W_QUEUE,
    W_RECORDS,
    W_ROW,
    W_STOP,
    CheckStop,
)
from embermq.columns.plain.derive import key_rows, put_key_rows
from embermq.columns.plain.gather import COLUMN_BYTES_MAX, NOTHING, HostKind, Keep, Pairs, Parts
from embermq.columns.plain.json_lines import LineForm, LineStop, encode_in_order, encode_line
from embermq.columns.plain.links import LinkCheck
from embermq.columns.plain.messages import PackedStop, list_head_bytes
from embermq.columns.plain.pick import ANY_SIZE
from embermq.columns.plain.runs import N_PLACED_COLUMNS, N_RUN_COLUMNS, R_QUEUE
from embermq.columns.plain.scan import resync, scan_rows
from embermq.columns.plain.select import I64_MAX, I64_MIN, SYSTEM_PREFIXES, SYSTEM_TOPICS, Selection, is_system_topic
from embermq.columns.plain.text_hashes import NO_TEXT, mixed, text_hash
from embermq.columns.rows import (
    C_BODY_AT,
    C_BODY_LEN,
    C_BORN_TIME,
    C_FLAG,
    C_KEYS_AT,
    C_KEYS_LEN,
    C_PHYSICAL,
    C_PREPARED,
    C_PROPS_AT,
    C_PROPS_LEN,
    C_QUEUE_ID,
    C_QUEUE_OFFSET,
    C_RECONSUME,
    C_SIZE,
    C_STORE_TIME,
    C_SYS_FLAG,
    C_TAG_CODE,
    C_TAGS_AT,
    C_TAGS_LEN,
    C_TOPIC_AT,
    C_TOPIC_LEN,
    C_UNIQ_AT,
    C_UNIQ_LEN,
    RecordColumns,
    Rows,
    new_rows,
)

__all__ = ["ANY_SIZE", "COLUMN_BYTES_MAX", "C_BODY_AT", "C_BODY_LEN", "C_BORN_TIME", "C_FLAG", "C_KEYS_AT", "C_KEYS_LEN", "C_PHYSICAL", "C_PREPARED", "C_PROPS_AT", "C_PROPS_LEN", "C_QUEUE_ID", "C_QUEUE_OFFSET", "C_RECONSUME", "C_SIZE", "C_STORE_TIME", "C_SYS_FLAG", "C_TAGS_AT", "C_TAGS_LEN", "C_TAG_CODE", "C_TOPIC_AT", "C_TOPIC_LEN", "C_UNIQ_AT", "C_UNIQ_LEN", "CheckLoops", "CheckStop", "Gather", "HostKind", "I64_MAX", "I64_MIN", "Keep", "LineForm", "LineStop", "LinkCheck", "NOTHING", "NO_TEXT", "N_PLACED_COLUMNS", "N_RUN_COLUMNS", "PackedStop", "Pairs", "Parts", "Q_COLUMNS", "Q_FIRST", "Q_NEXT", "Q_WINDOW_AT", "Q_WINDOW_END", "Q_WINDOW_START", "QueueTable", "R_QUEUE", "RecordColumns", "Rows", "RunLoops", "SYSTEM_PREFIXES", "SYSTEM_TOPICS", "Scan", "Selection", "W_AT", "W_COUNT", "W_ENTRY", "W_NEWEST_MS", "W_QUEUE", "W_RECORDS", "W_ROW", "W_STOP", "check_index_links", "check_loops_for", "compiled_index_keys", "compiled_put_index_keys", "compiled_scan", "compiled_write_lines", "encode_in_order", "encode_line", "gather_for", "hash_column_for", "index_keys_for", "is_loaded", "is_system_topic", "key_rows", "list_head_bytes", "log_check", "mixed", "new_log_check_walk", "new_rows", "pays", "pick_for", "put_index_rows", "put_key_rows", "queue_table", "rebuild_index_slots", "repeated", "resync", "resync_for", "run_loops", "scan_for", "scan_rows", "select_for", "text_hash"]
