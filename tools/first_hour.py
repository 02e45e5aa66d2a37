"""Write docs/screens/first-hour.svg: what a terminal shows while real commands read a file of one's own.

    python -m tools.first_hour

Commands run on a pseudo-terminal, in a folder of their own, on a file that is the same each time; so is the picture. It
does not show the bar of a long ingest, whose rates differ from run to run.
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tools.screens import FRAME

SCREENS = Path(__file__).parents[1] / "docs" / "screens"
WIDTH, HEIGHT = 100, 50
COMMANDS = (
    "tidelake ingest web.access access.log",
    "tidelake describe web.access",
    'tidelake query "web.access | summarize n = count(), sum(bytes) by status | order by status asc"',
    "tidelake query \"web.access | where pth startswith '/cart'\"",
)


def access_log() -> str:
    """Return the lines of a web server's log."""
    return "".join(
        f"10.0.{n % 4}.{n % 7} - - [14/Mar/2026:{12 + n // 3600:02}:{n // 60 % 60:02}:{n % 60:02} +0000] "
        f'"GET /{("cart", "item", "search")[n % 3]}/{n % 20} HTTP/1.1" {(200, 200, 200, 404, 500)[n % 5]} {300 + n}\n'
        for n in range(6000)
    )


def run_on_terminal(command: str, folder: Path) -> str:
    """Run a command as a person does, and return all that it writes."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": str(WIDTH), "LINES": str(HEIGHT), "TERM": "xterm-256color"}
    words = [sys.executable, "-m", *shlex.split(command)]
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment)
    os.close(theirs)
    written = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:  # Linux says so when the other end is closed
            break
        if not piece:
            break
        written += piece
    os.close(ours)
    process.wait()
    return written.decode().replace("\r\n", "\n")


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as name, Path(os.devnull).open("w") as nowhere:
        folder = Path(name)
        (folder / "access.log").write_text(access_log())
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True, highlight=False)
        for command in COMMANDS:
            console.print(f"[bold cyan]$[/] {command}", soft_wrap=True)
            told = re.sub(
                r"\r\x1b\[Ktidelake: compiling for this machine[^\n]*\n", "", run_on_terminal(command, folder)
            )
            console.print(Text.from_ansi(told), soft_wrap=True)
    svg = console.export_svg(title="tidelake", theme=MONOKAI, code_format=FRAME, unique_id="first-hour")
    SCREENS.mkdir(exist_ok=True)
    (SCREENS / "first-hour.svg").write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")


if __name__ == "__main__":
    main()
