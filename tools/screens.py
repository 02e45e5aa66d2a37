"""Write docs/images/*.svg: pictures of the terminal, taken while real commands run.

    tidelake demo && python -m tools.screens demo-lake/lake

The lake is the one that the demo leaves. Fonts are the reader's own: a picture refers to nothing outside itself. It
does not run in tests, because times differ from run to run.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI

from tidelake.cli import demo
from tidelake.cli.shell import Shell
from tidelake.lake import Lake, connect

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH = 100

FRAME = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
FRAME = re.sub(r"<!--.*?-->", "", FRAME).replace("<svg ", '<svg xml:space="preserve" ', 1)

SHELL = (
    "obs.logs | summarize lines = count(), errors = countif(level == 'ERROR') by service | order by lines desc",
    "obs.logs | where servce == 'auth'",
    "select host, round(avg(cpu), 1) as cpu from obs.metrics group by host order by cpu desc limit 3",
    "obs.logs | where message has 'OutOfMemoryError' | summarize n = count() by host | render barchart",
)


def show_demo(console: Console, lake: Lake) -> None:
    """Take the heart of the demo: the question that finds it, what was read for one request, what is missing."""
    title, text = demo.QUESTIONS[0]
    lake.kql(text).to_arrow()  # what happens only once in a process is not what is shown
    demo._ask(console, lake, title, text)
    demo._show_funnel(console, lake)
    demo._show_gaps(console, lake)


def show_shell(console: Console, lake: Lake) -> None:
    """Take a few questions in the shell, one of them wrong."""
    shell = Shell(lake, console)
    shell.greet()
    for question in SHELL:
        console.print(f"[bold cyan]tidelake>[/] {question}")
        shell.answer(question)


def show_explain(console: Console, lake: Lake) -> None:
    """Take a funnel."""
    question = "obs.logs | where ts > datetime(2026-03-14T12:30) and message has 'OutOfMemoryError' | count"
    console.print(f'[bold cyan]$[/] tidelake explain "{question}"')
    console.print(lake.kql(question).explain(), markup=False, soft_wrap=True)


PICTURES: dict[str, Callable[[Console, Lake], None]] = {
    "demo": show_demo,
    "shell": show_shell,
    "explain": show_explain,
}


def main(where: str) -> None:
    """Write every picture."""
    with connect(where, create=False) as lake:
        for name, show in PICTURES.items():
            with Path("/dev/null").open("w") as nowhere:
                console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True, highlight=False)
                show(console, lake)
            svg = console.export_svg(title=f"tidelake {name}", theme=MONOKAI, code_format=FRAME)
            (IMAGES / f"{name}.svg").write_text(svg)


if __name__ == "__main__":
    main(*sys.argv[1:])
