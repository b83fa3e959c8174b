"""Namespaces: `ns%topic` on the wire for what the user calls `topic`, and `%RETRY%ns%group`. Pure.

System topics and groups belong to no namespace; a name that has the namespace already is left as it is.
"""

from embermq.model.names import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX, SYSTEM_PREFIX, SYSTEM_TOPICS

_SEPARATOR = "%"


def with_namespace(name: str, namespace: str) -> str:
    """The name of a topic or group on the wire."""
    if not namespace or not name or _is_system(name):
        return name
    prefix, plain = _parted(name)
    head = namespace + _SEPARATOR
    return name if plain.startswith(head) else f"{prefix}{head}{plain}"


def without_namespace(name: str, namespace: str) -> str:
    """The name as the user knows it."""
    if not namespace:
        return name
    prefix, plain = _parted(name)
    return prefix + plain.removeprefix(namespace + _SEPARATOR)


def _parted(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def _is_system(name: str) -> bool:
    return name in SYSTEM_TOPICS or name.startswith((SYSTEM_PREFIX, SYSTEM_GROUP_PREFIX))
