"""Mirror the library on the command line: one command per verb, each a few lines over one library call.

An error of ours is one line on stderr and exit code 1, wrong usage is exit code 2, Ctrl-C is exit code 130, and
anything else is a traceback, because it is a defect. A command lives in a module of ``commands`` and is imported when
it is asked for; what it needs is imported inside it, so that ``--help`` and shell completion do not wait for compilers
and engines. To add a command, write it there with a docstring that has an example, and name it in ``COMMANDS``. It does
not hold logic of its own.
"""

from __future__ import annotations

import difflib
import io
import os
import re
import sys
from contextlib import suppress
from importlib import import_module
from typing import IO, Any

import click

from tidelake import __version__
from tidelake.errors import QueryError, StorageError, TidelakeError, not_installed
from tidelake.runtime import notices

COMMANDS = {
    "init": "tidelake.cli.commands.catalog",
    "create": "tidelake.cli.commands.catalog",
    "ingest": "tidelake.cli.commands.rows",
    "load": "tidelake.cli.commands.pipeline",
    "stream": "tidelake.cli.commands.pipeline",
    "copy": "tidelake.cli.commands.pipeline",
    "rewrite": "tidelake.cli.commands.pipeline",
    "query": "tidelake.cli.commands.asking",
    "explain": "tidelake.cli.commands.asking",
    "nearest": "tidelake.cli.commands.vectors",
    "index": "tidelake.cli.commands.vectors",
    "flush": "tidelake.cli.commands.rows",
    "delete": "tidelake.cli.commands.upkeep",
    "undo": "tidelake.cli.commands.upkeep",
    "restore": "tidelake.cli.commands.upkeep",
    "drop": "tidelake.cli.commands.upkeep",
    "compact": "tidelake.cli.commands.upkeep",
    "convert": "tidelake.cli.commands.upkeep",
    "maintain": "tidelake.cli.commands.upkeep",
    "work": "tidelake.cli.commands.upkeep",
    "status": "tidelake.cli.commands.upkeep",
    "manifests": "tidelake.cli.commands.catalog",
    "tables": "tidelake.cli.commands.catalog",
    "users": "tidelake.cli.commands.catalog",
    "describe": "tidelake.cli.commands.catalog",
    "history": "tidelake.cli.commands.catalog",
    "extents": "tidelake.cli.commands.catalog",
    "coverage": "tidelake.cli.commands.series",
    "gaps": "tidelake.cli.commands.series",
    "repair": "tidelake.cli.commands.series",
    "collect": "tidelake.cli.commands.collecting",
    "serve": "tidelake.cli.commands.serving",
    "ui": "tidelake.cli.commands.serving",
    "tokens": "tidelake.cli.commands.serving",
    "sync": "tidelake.cli.commands.syncing",
    "inspect": "tidelake.cli.commands.files",
    "shell": "tidelake.cli.commands.tour",
    "demo": "tidelake.cli.commands.tour",
}


STOPPED = 130  # the exit code of what Ctrl-C ended, as shells have it

# Words of the library, in a message: ``time=`` is ``--time`` here, and ``missing_time=now`` is ``--missing-time now``.
_WORD = re.compile(
    r"\b(bucket|objects|time|time_format|skip_bad|quarantine)=(?=\W|$)|\b(all|purge)=True"
    r"|\b(engine|missing_time)='?(\w+)'?"
)


class _Failure(click.ClickException):
    """One line on stderr; a query's caret keeps its own lines. What the library calls ``time=`` is ``--time`` here."""

    def __init__(self, error: TidelakeError) -> None:
        error.message = _WORD.sub(
            lambda word: f"--{word[1] or word[2] or f'{word[3]} {word[4]}'}".replace("_", "-"), error.message
        )
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

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = difflib.get_close_matches(args[0], COMMANDS, n=2)
            if close and error.message.startswith("No such command"):
                told = f"No such command {args[0]!r}, did you mean {' or '.join(map(repr, close))}?"
                raise click.UsageError(told, ctx) from None
            raise

    def invoke(self, ctx: click.Context) -> Any:
        try:
            if sys.stdout is None:  # closed by who called us
                raise StorageError("standard output is closed")
            _prepare_terminal()
            answer = super().invoke(ctx)
            sys.stdout.flush()
            return answer
        except TidelakeError as error:
            raise _Failure(error) from error
        except ModuleNotFoundError as error:
            if missing := not_installed(error):
                raise _Failure(missing) from error
            raise
        except KeyboardInterrupt:
            click.echo("tidelake: stopped", err=True)
            sys.exit(STOPPED)
        except BrokenPipeError:  # who reads has enough, as head does
            _close_output()
            sys.exit(0)


def _close_output() -> None:
    """Have what is still to be written go nowhere: nobody reads it."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


def _prepare_terminal() -> None:
    """Let no letter that a terminal lacks stop a command, and tell who sits at one why they wait."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if sys.stderr is not None and sys.stderr.isatty():
        over_a_bar = "\r\x1b[K"  # which may stand in this line, and is drawn again below
        notices.tell_with(lambda notice: click.echo(f"{over_a_bar}tidelake: {notice}", err=True))


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
