"""Where a rebuild works, and what it will replace: decided, and refused if need be, before anything is touched.

A directory is swapped by two renames, so what is built must lie on the same file system. An operator may have put
consumequeue/ or index/ on another disk by a link. The link stays; its target is replaced, by a directory that was
built beside it:

    consumequeue/                           built in  embermq.rebuild/ in the store
    consumequeue -> /disk2/queues           built in  /disk2/queues.embermq.rebuild/

Queues and index in two such places are two rebuilds, one after the other. Refused are links further down (a topic, a
queue, a file: what they lead to would be given up), a directory where another file system is mounted (it cannot be
renamed), and a link that leads to a directory that holds something else of the store.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from embermq.errors import StorePathInvalid
from embermq.files import Files, OpenDirectory, PathKind, foreign_in
from embermq.repair.rebuild.journal import WORK, Family
from embermq.settings import StoreSettings
from embermq.store.layout import CONSUME_QUEUE, CONSUME_QUEUE_EXT, FOLDERS, INDEX, in_rebuild, real_path, rebuild_beside

_ELSEWHERE = "use --into, and put the result in place by hand"

DIRECTORIES = {
    Family.QUEUES: (CONSUME_QUEUE, CONSUME_QUEUE_EXT),
    Family.INDEX: (INDEX,),
}


@dataclass(frozen=True, slots=True)
class WorkPlace:
    """One working directory, and the directories that are replaced from it: name in the store to real path."""

    work: Path
    families: tuple[Family, ...]
    targets: dict[str, Path]


def find_places(files: Files, root: Path, families: tuple[Family, ...], settings: StoreSettings) -> list[WorkPlace]:
    """Where to build these families. StorePathInvalid if any of them cannot be replaced; changes nothing."""
    real = {name: real_path(files, root / name) for family in families for name in DIRECTORIES[family]}
    by_work: dict[Path, list[Family]] = {}
    for family in families:
        by_work.setdefault(_work_of(files, root, DIRECTORIES[family][0], real), []).append(family)
    places = []
    for work, found in by_work.items():
        targets = {name: real[name] for family in found for name in DIRECTORIES[family]}
        for name, target in targets.items():
            _check_target(files, root, name, target, work, settings)
        places.append(WorkPlace(work, tuple(found), targets))
    return places


def _work_of(files: Files, root: Path, name: str, real: dict[str, Path]) -> Path:
    is_link = files.kind(root / name) is PathKind.LINK
    return rebuild_beside(real[name]) if is_link else root / WORK


def _check_target(files: Files, root: Path, name: str, target: Path, work: Path, settings: StoreSettings) -> None:
    here = root / name
    is_link, exists = files.kind(here) is PathKind.LINK, files.exists(target)
    if is_link and not exists and not files.exists(work):
        raise StorePathInvalid(here, f"is a link to {target}, which is not there; mount its disk, or remove the link")
    if is_link and (shared := _shared(files, root, name, target, settings)) is not None:
        raise StorePathInvalid(here, f"is a link to {target}, where {shared} of the store is; give it a directory")
    if name == CONSUME_QUEUE_EXT and not exists and not settings.queue_extension:
        return
    if exists and not files.stat(target).is_file and (link := next(_links_below(files, target), None)) is not None:
        raise StorePathInvalid(link, f"is a link, and what it leads to would not be rebuilt; {_ELSEWHERE}")
    if not _same_device(files, target, target.parent):
        raise StorePathInvalid(here, f"a file system is mounted at {target}, which cannot be replaced; {_ELSEWHERE}")
    if not _same_device(files, target.parent, work.parent):
        raise StorePathInvalid(here, f"lies on another file system than {work}, where it is built; {_ELSEWHERE}")


def _same_device(files: Files, one: Path, other: Path) -> bool:
    """Directories that are not there yet are made where they belong."""
    return not files.exists(one) or not files.exists(other) or files.device(one) == files.device(other)


def _shared(files: Files, root: Path, name: str, target: Path, settings: StoreSettings) -> str | None:
    """The name of something else of the store that lies in `target`, or that `target` lies in."""
    if files.real_path(root).is_relative_to(target):
        return "all"
    others = {one: root / one for one in FOLDERS if one != name}
    others |= {str(path): path for path in (*settings.commit_log_paths, *settings.commit_log_read_only_paths)}
    for shown, path in others.items():
        real = real_path(files, path)
        if real.is_relative_to(target) or target.is_relative_to(real):
            return shown
    return None


def _links_below(files: Files, path: Path) -> Iterator[Path]:
    """Links among topics, queues and files. What is no directory of ours is not looked into further down."""
    with files.open_directory(path) as found:
        yield from _links_in(found, 2)


def _links_in(found: OpenDirectory, depth: int) -> Iterator[Path]:
    for name, kind in found.kinds().items():
        if kind is PathKind.LINK:
            yield found.path / name
        elif kind is PathKind.DIRECTORY and depth:
            try:
                with found.enter(name) as below:
                    yield from _links_in(below, depth - 1)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                continue


def check_work(files: Files, work: Path, *, otherwise: str, besides: str = "") -> None:
    """StorePathInvalid if something lies where we would work that an earlier rebuild did not leave there; what is in
    the directory `besides` is not looked at."""
    kind = files.kind(work)
    if kind not in (None, PathKind.DIRECTORY):
        raise StorePathInvalid(work, f"this is a {kind} where we would work; move it away{otherwise}")
    foreign = [path.relative_to(work) for path in foreign_in(files, work, in_rebuild)]
    foreign = [path for path in foreign if len(path.parts) == 1 or path.parts[0] != besides]
    if foreign:
        shown = foreign[0]
        raise StorePathInvalid(work, f"we would work there, and it holds {shown}; move it away{otherwise}")
