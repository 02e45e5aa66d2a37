"""Write docs/cli.md: every command's help, as the command itself prints it.

    python -m tools.cli_reference

A test compares the page with what would be written, so that it is never out of date. It does not explain: the help
texts do.
"""

from __future__ import annotations

from pathlib import Path

import click

from tidelake.cli.main import COMMANDS, main

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
WIDTH = 100

INTRODUCTION = """\
# The command line

Every command mirrors a library call. `--lake` (or `TIDELAKE_LAKE`) says which lake: a folder, `postgresql://…` with
`--objects`, or `log:/root`. The exit code is 0 when it worked, 1 when Tidelake says in one line on standard error why
not, 2 when the command was used wrongly, 130 when Ctrl-C stopped it.

This page is written by `python -m tools.cli_reference` from the commands themselves.
"""


def reference() -> str:
    """Return the whole page."""
    parts = [INTRODUCTION, _section(main, "tidelake")]
    context = click.Context(main, info_name="tidelake")
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        parts.append(_section(command, f"tidelake {name}"))
        if isinstance(command, click.Group):
            parts += [_section(each, f"tidelake {name} {own}") for own, each in command.commands.items()]
    return "\n".join(parts)


def _section(command: click.Command, title: str) -> str:
    names = main.context_settings["help_option_names"]
    context = click.Context(
        command, info_name=title, max_content_width=WIDTH, terminal_width=WIDTH, help_option_names=names
    )
    lines = [line.rstrip() for line in command.get_help(context).splitlines()]
    text = "\n".join(lines)
    return f"## {title}\n\n```text\n{text}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(reference())
