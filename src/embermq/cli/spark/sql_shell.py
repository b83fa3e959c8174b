"""Statements one after the other in one session: typed at a terminal, with history, or from standard input.

    a statement      ends with `;`, and may have several lines
    \\d              tables; \\d TABLE its columns
    \\limit N        rows shown
    \\?  \\q         help; the end

At a terminal a statement that fails is reported in one line, and the next one is read; elsewhere it ends the run.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from embermq.cli.output import Output
from embermq.errors import EmberError

Ask = Callable[[str], None]  # runs a statement and shows its rows
ReadLine = Callable[[str], str]  # prompt -> line; EOFError at the end

_PROMPT, _MORE = "embermq> ", "    ...> "
_HISTORY_LINES = 5_000
_HELP = r"""a statement ends with ; and may have several lines
\d          list tables: each topic, and messages, which is all of them
\d TABLE    its columns
\limit N    show up to N rows
\?          this list
\q          leave (or Ctrl-D); Ctrl-C drops what was typed"""


class SqlShell:
    """One session of questions. `limit` may be changed while it runs."""

    def __init__(self, output: Output, ask: Ask, limit: int) -> None:
        self._output, self._ask, self.limit = output, ask, limit

    def run(self, read: ReadLine, *, is_terminal: bool) -> None:
        """Until the input ends. An EmberError of a statement is raised unless the input is a terminal."""
        parts: list[str] = []
        while True:
            try:
                line = read(_MORE if parts else _PROMPT)
            except EOFError:
                break
            except KeyboardInterrupt:
                parts = []
                continue
            if not parts and line.strip() in ("\\q", "exit", "quit"):
                return
            if not parts and line.strip().startswith("\\"):
                self._guarded(partial(self._command, *line.split()), is_terminal)
                continue
            parts = [*parts, line] if parts or line.strip() else []
            if parts and line.rstrip().endswith(";"):
                text, parts = "\n".join(parts).rstrip().rstrip(";"), []
                self._guarded(partial(self._ask, text), is_terminal)
        if parts:
            self._guarded(partial(self._ask, "\n".join(parts)), is_terminal)

    def _guarded(self, work: Callable[[], None], is_terminal: bool) -> None:
        try:
            work()
        except EmberError as problem:
            if not is_terminal:
                raise
            self._output.say(f"error: {problem}", style="red")
        except KeyboardInterrupt:
            if not is_terminal:
                raise
            self._output.say("interrupted")

    def _command(self, name: str, *words: str) -> None:
        if name == "\\d":
            self._ask(f"describe `{words[0].strip('`;')}`" if words else "show tables")
        elif name == "\\limit" and len(words) == 1 and words[0].isdigit():
            self.limit = int(words[0])
        else:
            self._output.say(_HELP)


def reader(tables: Iterable[str]) -> ReadLine:
    """Lines of the terminal, with history from run to run, and the names of tables by the tab key."""
    try:
        import readline
    except ImportError:  # Not every Python has it.
        return input
    names = sorted(tables)

    def complete(text: str, state: int) -> str | None:
        found = [name for name in names if name.lower().startswith(text.lower())]
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n,;()`")
    readline.parse_and_bind("tab: complete")
    readline.set_history_length(_HISTORY_LINES)
    with suppress(OSError):
        readline.read_history_file(history_file())
    return _remembering(readline.write_history_file)


def _remembering(write: Callable[[Path], None]) -> ReadLine:
    """Written after each line: who kills the program keeps what was typed."""

    def read(prompt: str) -> str:
        line = input(prompt)
        with suppress(OSError):
            history_file().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write(history_file())
        return line

    return read


def history_file() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "embermq" / "sql_history"
