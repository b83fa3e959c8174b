"""Files that others became: they stay for an hour, for queries that were planned with them, and then make room.

Small files are joined where only readers of commits look (`_joined/`). When those they replaced go, what they became
gets a second name in their place. So a reader of the folder without commits sees one or the other, and one that
planned with commits finds what it planned with. On object stores, without second names, files are replaced at once.
Driver side, in the turn of a writer.
"""

from collections.abc import Sequence

from embermq.spark.lake.commits import LakeCommit
from embermq.spark.lake.files import LakeFiles
from embermq.spark.lake.names import is_joined, shown_name

KEPT_MS = 3_600_000


def keeps_replaced(files: LakeFiles) -> bool:
    return files.is_local


def let_go(files: LakeFiles, commits: Sequence[LakeCommit], now_ms: int) -> int:
    """Remove what these commits replaced, as far as that was long ago; how many of them are done with. May be done
    twice, or be finished by the next writer."""
    done = 0
    for commit in commits:
        if commit.replaced and commit.made_ms > now_ms - KEPT_MS:
            break
        _show_instead(files, commit)
        done += 1
    return done


def _show_instead(files: LakeFiles, commit: LakeCommit) -> None:
    for file in commit.files:
        if is_joined(file.path) and files.exists(file.path):  # Or it was replaced itself.
            files.link(file.path, shown_name(file.path))
    for path in commit.replaced:
        files.remove(path)
        if is_joined(path):
            files.remove(shown_name(path))
