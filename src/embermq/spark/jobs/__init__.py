"""Jobs over whole stores, one file each; `cluster_tasks.py` runs their pieces on the cluster.

A job is a function that takes a Spark session and plain values, and answers a plain value that the command line
shows as a table or as JSON. What runs in workers are module functions over picklable pieces: workers need this
package installed, and nothing else.
"""

from typing import TYPE_CHECKING

from embermq.lazy import lazy_names

if TYPE_CHECKING:
    from embermq.spark.jobs.archive import Archived, archive_guard
    from embermq.spark.jobs.audit import Audit, StoreAudit
    from embermq.spark.jobs.audit_findings import AuditFinding, check_place
    from embermq.spark.jobs.audit_page import audit_report
    from embermq.spark.jobs.checkpoint_lag import CheckpointLag, StreamLag, lag_metrics, stream_lag
    from embermq.spark.jobs.cluster_tasks import ProgressReport
    from embermq.spark.jobs.dead_letters import DeadLetter, DeadLetterTotal, dead_letter_totals, resend
    from embermq.spark.jobs.replay import ReplayWindow
    from embermq.spark.jobs.ship_follow import EVERY_SECONDS, FollowRound, keep_shipping
    from embermq.spark.jobs.ship_store import Shipped
    from embermq.spark.jobs.sql_files import check_rows_file, csv_text, save_rows
    from embermq.spark.jobs.stats import Stats
    from embermq.spark.jobs.stats_page import stats_report

__all__ = [
    "Archived",
    "Audit",
    "AuditFinding",
    "CheckpointLag",
    "DeadLetter",
    "DeadLetterTotal",
    "EVERY_SECONDS",
    "ProgressReport",
    "FollowRound",
    "Shipped",
    "Stats",
    "StoreAudit",
    "StreamLag",
    "ReplayWindow",
    "archive_guard",
    "audit_report",
    "check_place",
    "check_rows_file",
    "csv_text",
    "dead_letter_totals",
    "keep_shipping",
    "lag_metrics",
    "resend",
    "save_rows",
    "stats_report",
    "stream_lag",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Archived": "embermq.spark.jobs.archive",
            "Audit": "embermq.spark.jobs.audit",
            "AuditFinding": "embermq.spark.jobs.audit_findings",
            "CheckpointLag": "embermq.spark.jobs.checkpoint_lag",
            "DeadLetter": "embermq.spark.jobs.dead_letters",
            "EVERY_SECONDS": "embermq.spark.jobs.ship_follow",
            "ProgressReport": "embermq.spark.jobs.cluster_tasks",
            "FollowRound": "embermq.spark.jobs.ship_follow",
            "Shipped": "embermq.spark.jobs.ship_store",
            "Stats": "embermq.spark.jobs.stats",
            "StoreAudit": "embermq.spark.jobs.audit",
            "StreamLag": "embermq.spark.jobs.checkpoint_lag",
            "lag_metrics": "embermq.spark.jobs.checkpoint_lag",
            "stream_lag": "embermq.spark.jobs.checkpoint_lag",
            "ReplayWindow": "embermq.spark.jobs.replay",
            "archive_guard": "embermq.spark.jobs.archive",
            "audit_report": "embermq.spark.jobs.audit_page",
            "check_place": "embermq.spark.jobs.audit_findings",
            "keep_shipping": "embermq.spark.jobs.ship_follow",
            "check_rows_file": "embermq.spark.jobs.sql_files",
            "csv_text": "embermq.spark.jobs.sql_files",
            "save_rows": "embermq.spark.jobs.sql_files",
            "DeadLetterTotal": "embermq.spark.jobs.dead_letters",
            "dead_letter_totals": "embermq.spark.jobs.dead_letters",
            "resend": "embermq.spark.jobs.dead_letters",
            "stats_report": "embermq.spark.jobs.stats_page",
        },
    )
