"""The statistics of a lake by minute, as a reader adds them up."""

import pyarrow as pa
import pyarrow.parquet as pq

from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.names import SUFFIX
from embermq.spark.pipelines.minute_statistics import FOLDER, joined


def read_minutes(root: str) -> pa.Table | None:
    """One row for each broker, topic, queue, tag and minute; None if there are none."""
    files = LakeFiles(root)
    names = [name for name in files.list(FOLDER) if name.endswith(SUFFIX)]
    tables = [pq.read_table(files.full(name), filesystem=files.arrow, partitioning=None) for name in names]
    return joined(pa.concat_tables([one.replace_schema_metadata() for one in tables])) if tables else None
