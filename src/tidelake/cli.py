"""Mirror the library on the command line: one command per verb, each a few lines over one library call.

An error of ours is one line on stderr and exit code 1, wrong usage is exit code 2, and anything else is a traceback,
because it is a defect. A command lives in a module of ``commands`` and is imported when it is asked for; what it needs
is imported inside it, so that ``--help`` and shell completion do not wait for compilers and engines. To add a command,
write it there with a docstring that has an example, and name it in ``COMMANDS``. It does not hold logic of its own.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import IO, Any

import click

from tidelake import __version__
from tidelake.errors import QueryError, TidelakeError

COMMANDS = {
    "init": "tidelake.commands.catalog",
    "create": "tidelake.commands.catalog",
    "ingest": "tidelake.commands.rows",
    "load": "tidelake.commands.pipeline",
    "stream": "tidelake.commands.pipeline",
    "copy": "tidelake.commands.pipeline",
    "rewrite": "tidelake.commands.pipeline",
    "query": "tidelake.commands.asking",
    "explain": "tidelake.commands.asking",
    "flush": "tidelake.commands.rows",
    "tables": "tidelake.commands.catalog",
    "describe": "tidelake.commands.catalog",
    "history": "tidelake.commands.catalog",
    "extents": "tidelake.commands.catalog",
    "coverage": "tidelake.commands.series",
    "gaps": "tidelake.commands.series",
    "repair": "tidelake.commands.series",
    "inspect": "tidelake.commands.files",
    "shell": "tidelake.commands.tour",
    "demo": "tidelake.commands.tour",
}


class _Failure(click.ClickException):
    """One line on stderr; a query's caret keeps its own lines."""

    def __init__(self, error: TidelakeError) -> None:
        super().__init__(str(error) if isinstance(error, QueryError) else " ".join(str(error).split()))

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"tidelake: {self.format_message()}", file=file or sys.stderr)


class _Group(click.Group):
    """A group whose commands are imported when asked for, and raise our errors freely."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = getattr(import_module(COMMANDS[cmd_name]), cmd_name)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TidelakeError as error:
            raise _Failure(error) from error


@click.group("tidelake", cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--lake", envvar="TIDELAKE_LAKE", default="lake", show_default=True, metavar="WHERE",
              help="A folder, postgresql://…, or log:/root; also TIDELAKE_LAKE.")  # fmt: skip
@click.version_option(__version__, message="tidelake %(version)s")
@click.pass_context
def main(context: click.Context, lake: str) -> None:
    """Keep time-stamped data as immutable extents, and read almost nothing you do not need.

    \b
    A first minute:
      tidelake ingest app.logs app.ndjson
      tidelake query "app.logs | summarize count() by level"
      tidelake shell
    """
    context.obj = lake
