"""The version of a config table, as RocketMQ writes it: when it last changed, and how often it was changed.

A broker registers its topics with this version, and a slave fetches a table again when the master's differs: two
versions are the same when all numbers are. 4.9 writes `counter` and `timestamp`; 5.x adds `stateVersion`, which is
written only where it is not 0, so that a file of 4.9 keeps its form. Pure.
"""

from dataclasses import dataclass
from typing import Any

DATA_VERSION = "dataVersion"


@dataclass(frozen=True, slots=True)
class DataVersion:
    """When a table last changed (ms), how often it was changed, and in which term of its broker (5.x)."""

    timestamp: int = 0
    counter: int = 0
    state_version: int = 0

    def following(self, now_ms: int) -> "DataVersion":
        """The version after one more change."""
        return DataVersion(now_ms, self.counter + 1, self.state_version)

    def to_document(self) -> dict[str, Any]:
        state = {"stateVersion": self.state_version} if self.state_version else {}
        return {"counter": self.counter, **state, "timestamp": self.timestamp}


def parse_data_version(document: Any) -> DataVersion:
    """The version in a file; numbers that are missing count as 0. ValueError when it is none."""
    if document is None:
        return DataVersion()
    if not isinstance(document, dict):
        raise ValueError(f"{DATA_VERSION} is {document!r}")
    numbers = [document.get(name, 0) for name in ("timestamp", "counter", "stateVersion")]
    for number in numbers:
        if type(number) is not int:
            raise ValueError(f"{DATA_VERSION} has {number!r} for a number")
    return DataVersion(*numbers)
