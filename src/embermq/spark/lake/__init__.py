"""The lake: messages as Parquet files by topic and day, and a list of commits that says which files count.

    names.py     where things lie
    commits.py   what a commit says, and reading and writing them
    files.py     the few things asked of a file system, local or any that pyarrow knows
    writing.py   one slice of a log into files, in a worker
    lakes.py     a lake as a whole: open, add, verify, compact

A log range goes in once: files are named after the range they hold, a commit lists them, and what no commit lists is
not there. Readers that know nothing of commits see only whole files, and after a crash at most some that will be
written again under the same names.
"""

from embermq.spark.lake.commits import LakeCommit, LakeFile, LakeRange
from embermq.spark.lake.lakes import Lake

__all__ = ["Lake", "LakeCommit", "LakeFile", "LakeRange"]
