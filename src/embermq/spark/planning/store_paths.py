"""A store path that says where the log is: as one text, so that it goes wherever a path does.

    store_at("/data/broker-a", store_config="/etc/rocketmq/broker.conf")
    store_at("/data/broker-a", commit_log_path="/disk-1/commitlog,/disk-2/commitlog")

The options storeConfig and commitLogPath of a read and --store-config and --commit-log of commands become such texts.
A broker.conf in the store's directory needs none of this; where nothing may be written into that directory, this does.
Pure, but for `LogOptions.files`, which reads the broker.conf. Driver side, and tasks that open a store.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from embermq.errors import OptionInvalid
from embermq.files import RealFiles, read_whole
from embermq.settings.java_properties import PropertiesSyntaxError, parse_properties
from embermq.store.layout import BROKER_CONF, ConfiguredFiles

_CONFIG, _LOG = "storeConfig", "commitLogPath"
_SAID = re.compile(rf"\?(?:{_CONFIG}=(?P<config>[^?&]*))?&?(?:{_LOG}=(?P<log>[^?&]*))?$")


def store_at(
    path: str | Path, *, store_config: str | Path | None = None, commit_log_path: str | Path | None = None
) -> str:
    """A path for everything of Spark that takes one: the store at `path`, with its log where a broker.conf anywhere
    says (storePathCommitLog), or in these directories, separated by commas."""
    said = [
        f"{name}={quote(str(value), safe='/,')}"
        for name, value in ((_CONFIG, store_config), (_LOG, commit_log_path))
        if value is not None
    ]
    return f"{path}?{'&'.join(said)}" if said else str(path)


def stores_at(paths: Iterable[str], configs: Sequence[str], commit_log_path: str | None) -> tuple[str, ...]:
    """The same for several stores: a broker.conf for each, in their order. OptionInvalid if the numbers differ."""
    given = tuple(paths)
    if configs and len(configs) != len(given):
        raise OptionInvalid(
            _CONFIG, f"one broker.conf for each path is expected, in their order: {len(given)}, not {len(configs)}"
        )
    if commit_log_path is not None and len(given) != 1:
        raise OptionInvalid(_LOG, f"belongs to one store, and {len(given)} paths are given; use storeConfig")
    each: Sequence[str | None] = configs or [None] * len(given)
    return tuple(
        store_at(path, store_config=config, commit_log_path=commit_log_path)
        for path, config in zip(given, each, strict=True)
    )


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The options of a store path that say where its log is."""

    config: str | None = None
    log: str | None = None

    def __bool__(self) -> bool:
        return self.config is not None or self.log is not None

    def absolute(self) -> "LogOptions":
        """The same for processes with another working directory: tasks, and later runs of a pipeline."""
        config = None if self.config is None else str(Path(self.config).expanduser().absolute())
        return LogOptions(config, None if self.log is None else ",".join(map(str, _directories(self.log))))

    def added_to(self, path: Path) -> str:
        return store_at(path, store_config=self.config, commit_log_path=self.log)

    def files(self, root: Path) -> RealFiles:
        """The disk, on which the store at `root` has its log where this says. OptionInvalid if that cannot be read."""
        if not self:
            return RealFiles()
        text = _text_in(root) if self.config is None else _text_of(self.config)
        if self.log is not None:
            text += f"\nstorePathCommitLog={_checked_log(self.log)}\n".replace("\\", "\\\\")
        return ConfiguredFiles(root.resolve(), text.encode())


def parted(text: str) -> tuple[str, LogOptions]:
    """A path without its options, and these."""
    found = _SAID.search(text)
    config, log = (found["config"], found["log"]) if found is not None else (None, None)
    if found is None or (config is None and log is None):
        return text, LogOptions()
    return text[: found.start()], LogOptions(
        None if config is None else unquote(config), None if log is None else unquote(log)
    )


def plain_path(text: str) -> str:
    """A path to be shown: without the options of its log."""
    return parted(text)[0]


def files_at(text: str) -> tuple[Path, RealFiles]:
    """The directory that the path of one store names, and the disk to look at it with."""
    path, said = parted(text)
    return Path(path), said.files(Path(path))


def _text_in(root: Path) -> str:
    """A broker.conf in the store's directory still names the broker. One that cannot be read says nothing."""
    try:
        text = read_whole(root / BROKER_CONF).decode("utf-8")
        parse_properties(text)
    except (OSError, UnicodeDecodeError, PropertiesSyntaxError):
        return ""
    return text


def _text_of(config: str) -> str:
    file = Path(config).expanduser()
    try:
        text = read_whole(file).decode("utf-8")
        parse_properties(text)
    except OSError as problem:
        raise OptionInvalid(_CONFIG, f"cannot be read: {problem.strerror or problem}", value=config) from None
    except (UnicodeDecodeError, PropertiesSyntaxError) as problem:
        raise OptionInvalid(_CONFIG, f"is no broker.conf: {problem}", value=config) from None
    return text


def _directories(log: str) -> list[Path]:
    return [Path(part.strip()).expanduser().absolute() for part in log.split(",") if part.strip()]


def _checked_log(log: str) -> str:
    parts = _directories(log)
    if not parts:
        raise OptionInvalid(_LOG, "directories of log files are expected, separated by commas", value=log)
    for part in parts:
        if not part.is_dir():
            raise OptionInvalid(_LOG, f"there is no directory {part}", value=log)
    return ",".join(map(str, parts))
