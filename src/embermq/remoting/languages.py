"""Languages of clients: a name in JSON headers, a number in binary ones. Pure."""

LANGUAGES = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)
_CODES = {name: code for code, name in enumerate(LANGUAGES)}
_OTHER = _CODES["OTHER"]


def language_name(given: str | int | None) -> str | None:
    """The name, where a header has a name or a number; None for what is unknown, as in RocketMQ."""
    if isinstance(given, int):
        return LANGUAGES[given] if 0 <= given < len(LANGUAGES) else None
    return given if given in _CODES else None


def language_code(name: str | None) -> int:
    return _CODES.get(name or "", _OTHER)
