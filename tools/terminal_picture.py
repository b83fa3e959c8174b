"""Writes docs/images/terminal.svg: commands of `embermq store`, really run over a store that has taken damage.

    python tools/terminal_picture.py

A store of orders is made in a temporary directory, one byte of a record in its middle is flipped, and what the commands
then print on a terminal is kept as it is, colours included.
"""

import os
import pty
import re
import select
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from embermq import Message, MessageStore, StoreSettings

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "terminal.svg"
COLUMNS = 150
COMMANDS = (
    "store find broker-a --topic orders --key order-4100",
    "store verify broker-a",
)


def make_store(root: Path) -> None:
    """Some thousand orders, and one flipped byte."""
    with MessageStore.open(root, StoreSettings(segment_bytes=1 << 20)) as store:
        steps = ("created", "paid", "shipped")
        receipts = store.append_many(
            Message("orders", b"%d EUR" % (n % 90), tags=steps[n % 3], keys=[f"order-{n // 3}"], queue_id=n // 3 % 4)
            for n in range(15_000)
        )
        place = receipts[7_500].physical_offset
    file = root / "commitlog" / f"{place >> 20 << 20:020d}"
    data = bytearray(file.read_bytes())
    data[(place & 0xFFFFF) + 90] ^= 1
    file.write_bytes(data)


def printed(arguments: list[str], directory: str) -> str:
    """What a command prints on a terminal of its own."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color", "LINES": "60"}
    command = [sys.executable, "-m", "embermq.cli", *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL, env=environment, cwd=directory
    ) as child:
        os.close(theirs)
        found = b""
        while select.select([ours], [], [], 60)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # The other side is closed.
                break
            if not piece:
                break
            found += piece
        child.wait()
    os.close(ours)
    return found.decode().replace("\r\n", "\n")


def main() -> None:
    screen = Console(record=True, width=COLUMNS, file=open(os.devnull, "w", encoding="utf-8"), force_terminal=True)  # noqa: SIM115
    with tempfile.TemporaryDirectory() as directory:
        make_store(Path(directory) / "broker-a")
        for command in COMMANDS:
            screen.print(Text.assemble(("$ ", "bold green"), (f"embermq {command}", "bold")))
            screen.print(Text.from_ansi(printed(command.split(), directory).rstrip()))
            screen.print()
    PICTURE.write_text(_self_contained(screen.export_svg(title="embermq store")), encoding="utf-8")


def _self_contained(svg: str) -> str:
    """Without fonts from elsewhere and without comments: the reader's own fixed-width font will do."""
    plain = re.sub(r"@font-face\s*{[^}]*}|<!--.*?-->", "", svg, flags=re.DOTALL)
    return plain.replace("Fira Code, monospace", "monospace")


if __name__ == "__main__":
    main()
