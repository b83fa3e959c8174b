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
    from embermq.spark.jobs.cluster_tasks import ProgressReport
    from embermq.spark.jobs.dead_letters import DeadLetter, resend
    from embermq.spark.jobs.replay import Window
    from embermq.spark.jobs.ship_follow import EVERY_SECONDS, Round, keep_shipping
    from embermq.spark.jobs.ship_store import Shipped
    from embermq.spark.jobs.stats import Stats
    from embermq.spark.jobs.stats_page import stats_report

__all__ = [
    "Archived",
    "Audit",
    "AuditFinding",
    "DeadLetter",
    "EVERY_SECONDS",
    "ProgressReport",
    "Round",
    "Shipped",
    "Stats",
    "StoreAudit",
    "Window",
    "archive_guard",
    "audit_report",
    "check_place",
    "keep_shipping",
    "resend",
    "stats_report",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Archived": "embermq.spark.jobs.archive",
            "Audit": "embermq.spark.jobs.audit",
            "AuditFinding": "embermq.spark.jobs.audit_findings",
            "DeadLetter": "embermq.spark.jobs.dead_letters",
            "EVERY_SECONDS": "embermq.spark.jobs.ship_follow",
            "ProgressReport": "embermq.spark.jobs.cluster_tasks",
            "Round": "embermq.spark.jobs.ship_follow",
            "Shipped": "embermq.spark.jobs.ship_store",
            "Stats": "embermq.spark.jobs.stats",
            "StoreAudit": "embermq.spark.jobs.audit",
            "Window": "embermq.spark.jobs.replay",
            "archive_guard": "embermq.spark.jobs.archive",
            "audit_report": "embermq.spark.jobs.audit_page",
            "check_place": "embermq.spark.jobs.audit_findings",
            "keep_shipping": "embermq.spark.jobs.ship_follow",
            "resend": "embermq.spark.jobs.dead_letters",
            "stats_report": "embermq.spark.jobs.stats_page",
        },
    )
