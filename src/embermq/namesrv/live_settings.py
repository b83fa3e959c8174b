"""LiveSettings: the settings of a running name server, and the few that a request may change.

What may be changed is a list of names, and neither a path nor an address is among them. A change is checked as a whole,
written to the file of `configStorePath`, which holds the changed settings only, and then made; the next start applies
that file on top of the others.

Reads from any thread: the settings are replaced as a whole. Changes one at a time, under a lock.
"""

import logging
import threading

from embermq.errors import SettingsError
from embermq.files import Files
from embermq.model.hosts import Host
from embermq.settings import NamesrvSettings
from embermq.settings.java_properties import PropertiesSyntaxError, PropertyEntry, parse_properties
from embermq.settings.names import Given
from embermq.settings.namesrv_settings import NAMES, values_of

log = logging.getLogger(__name__)

CHANGEABLE = frozenset(
    {
        "orderMessageEnable",
        "emberMaxBrokers",
        "emberMaxTopics",
        "emberMaxTopicEntries",
        "emberMaxRegisterBytes",
        "emberMaxKvEntries",
        "emberMaxKvBytes",
    }
)


class ChangeRefused(SettingsError):
    """A key that no request may change."""


class LiveSettings:
    """Settings that may change."""

    def __init__(self, files: Files, settings: NamesrvSettings) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._changed: dict[str, str] = {}
        self.current = settings

    def load(self) -> None:
        """Apply what was changed by request before. What cannot be used is logged and left out."""
        path = self.current.config_store_path
        try:
            changed = _entries(self._files.read_all(path).decode())
            self._check(changed)
            with self._lock:
                self.current = self._with(changed)
                self._changed = {entry.key: entry.value for entry in changed}
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError, SettingsError) as problem:
            log.warning("event=changed_settings_ignored file=%s reason=%r", path, str(problem))
        else:
            log.info("event=changed_settings_applied file=%s keys=%s", path, ",".join(sorted(self._changed)))

    def listens_on(self, address: Host) -> None:
        """Show the address that was taken, which need not be the one in a file."""
        with self._lock:
            self.current = self.current.replace(listen_address=address.address, listen_port=address.port)

    def change(self, body: bytes) -> list[str]:
        """Change settings by the text of a properties file, all or none; the keys. SettingsError, ChangeRefused."""
        try:
            entries = _entries(body.decode())
        except UnicodeDecodeError:
            raise SettingsError("the settings are no UTF-8 text") from None
        self._check(entries)
        with self._lock:
            settings = self._with(entries)
            changed = self._changed | {entry.key: entry.value for entry in entries}
            path = settings.config_store_path
            if changed != self._changed:
                try:
                    self._files.make_directory(path.parent)
                    self._files.replace_file(path, properties_text(changed).encode())
                except OSError as problem:
                    reason = problem.strerror or str(problem)
                    raise SettingsError(f"nothing was changed: cannot be written: {reason}", file=str(path)) from None
            self.current, self._changed = settings, changed
        return [entry.key for entry in entries]

    def text(self) -> str:
        """Every setting, as a properties file."""
        return properties_text(self.current.to_properties())

    def _check(self, entries: list[PropertyEntry]) -> None:
        black_listed = self.current.black_listed
        for entry in entries:
            if entry.key in black_listed:
                raise ChangeRefused(f"{entry.key} is black-listed: no request may change it")
            if entry.key in NAMES.attributes and entry.key not in CHANGEABLE:
                raise ChangeRefused(f"{entry.key} cannot be changed while the name server runs")

    def _with(self, entries: list[PropertyEntry]) -> NamesrvSettings:
        for entry in entries:
            if entry.key not in CHANGEABLE:
                values_of(
                    [Given(entry.key, entry.value)]
                )  # Names the nearest one if it is no setting of RocketMQ's either.
                raise ChangeRefused(f"{entry.key} has no effect on this name server")
        return self.current.replace(**values_of([Given(entry.key, entry.value) for entry in entries]))


def _entries(text: str) -> list[PropertyEntry]:
    try:
        return parse_properties(text)
    except PropertiesSyntaxError as problem:
        raise SettingsError(str(problem)) from None


def properties_text(properties: dict[str, str]) -> str:
    """The text of a properties file; what would be read otherwise is escaped."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{escaped}" if escaped[:1] in (" ", "\t", "\f") else escaped
