"""Mirror the library on the command line: one command per verb, each a few lines over one library call.

An error of ours is one line on stderr and exit code 1, wrong usage is exit code 2, and anything else is a traceback,
because it is a defect. What a command needs is imported inside it, so that ``--help`` and shell completion do not wait
for compilers and object stores. To add a command, decorate a function with ``@main.command()`` and give it a docstring
with an example; ``open_object`` and ``console`` are here for it. It does not hold logic of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

import click

from tidelake import __version__
from tidelake.errors import CorruptExtent, InvalidInputError, TidelakeError

if TYPE_CHECKING:
    from rich.console import Console

    from tidelake.lake import Lake
    from tidelake.listing import Listing
    from tidelake.objects import ObjectStore

PIPE_WIDTH = 120  # columns of a table that nobody's terminal limits
# Commands that live with what they run, imported when they are asked for.
ELSEWHERE = dict.fromkeys(("copy", "load", "rewrite", "stream"), "tidelake.spark.commands")


class _Failure(click.ClickException):
    """One line on stderr."""

    def __init__(self, error: TidelakeError) -> None:
        super().__init__(" ".join(str(error).split()))

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"tidelake: {self.format_message()}", file=file or sys.stderr)


class _Group(click.Group):
    """A group whose commands raise our errors freely."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *ELSEWHERE})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        found: click.Command = getattr(import_module(ELSEWHERE[cmd_name]), cmd_name)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TidelakeError as error:
            raise _Failure(error) from error


@click.group("tidelake", cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="tidelake %(version)s")
def main() -> None:
    """Keep time-stamped data as immutable extents, and read almost nothing you do not need."""


def lake_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say which lake, and pass it that lake, open."""

    @click.option("--lake", "where", envvar="TIDELAKE_LAKE", default="lake", show_default=True, metavar="WHERE",
                  help="A folder, postgresql://…, or log:/root; also TIDELAKE_LAKE.")  # fmt: skip
    @click.option(
        "--objects", envvar="TIDELAKE_OBJECTS", metavar="WHERE", help="The object store beside a PostgreSQL catalog."
    )
    @click.option("--endpoint", metavar="URL", help="Where the S3 server is, if it is not AWS.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
    @wraps(command)
    def opened(*, where: str, objects: str | None, endpoint: str | None, **options: Any) -> None:
        from tidelake.lake import connect

        with connect(where, objects=objects, endpoint=endpoint, create=False) as lake:
            command(lake=lake, **options)

    return opened


@main.command()
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for machines; docs/inspect.md has its shape.")
@click.option("--endpoint", metavar="URL", help="Where the S3 server is, if it is not AWS.")
def inspect(file: str, as_json: bool, endpoint: str | None) -> None:
    """Show what one extent holds, and verify every checksum.

    FILE is a path, or the address of an object such as s3://bucket/logs/a.tlm. The exit code is 1 when bytes are not
    the ones that were written.

    \b
    Examples:
      tidelake inspect demo-lake/demo.tlm
      tidelake inspect demo-lake/demo.tlm --json | jq .checksums
    """
    import orjson

    from tidelake.inspect import anatomy, inspect_extent

    report = inspect_extent(*open_object(file, endpoint=endpoint))
    if as_json:
        click.echo(orjson.dumps(report.to_json(), option=orjson.OPT_INDENT_2))
    else:
        console().print(anatomy(report))
    if report.mismatches:
        block, column = report.mismatches[0]
        raise CorruptExtent(
            "checksum mismatch", object=report.key, block=block, column=column, mismatches=len(report.mismatches)
        )


@main.command()
@click.argument("folder", default="demo-lake")
def demo(folder: str) -> None:
    """Write a day of logs as one extent and search it.

    The extent is left in FOLDER for a closer look.

    \b
    Example:
      tidelake demo
    """
    from tidelake.demo import run_demo

    run_demo(folder, console())


@main.command()
@click.option("--namespace", metavar="NAME", help="Only the tables of this namespace.")
@lake_options
def tables(lake: Lake, as_json: bool, namespace: str | None) -> None:
    """List the tables of a lake.

    \b
    Examples:
      tidelake tables --lake lake
      TIDELAKE_LAKE=lake tidelake tables --json
    """
    from tidelake.listing import list_tables

    show(list_tables(lake, namespace), as_json)


@main.command()
@click.argument("table")
@click.option("--limit", default=20, show_default=True, help="How many snapshots, newest first.")
@lake_options
def history(lake: Lake, as_json: bool, table: str, limit: int) -> None:
    """List the snapshots of a table, newest first.

    \b
    Example:
      tidelake history obs.logs --lake lake
    """
    from tidelake.listing import list_history

    show(list_history(lake, table, limit), as_json)


@main.command()
@click.argument("table")
@click.option("--as-of", metavar="TIME", help="As the table was at this time, 2026-01-31T12:00:00Z.")
@click.option("--snapshot", metavar="N", type=int, help="As the table was in this snapshot.")
@lake_options
def extents(lake: Lake, as_json: bool, table: str, as_of: str | None, snapshot: int | None) -> None:
    """List the extents of a table and what each one holds.

    \b
    Example:
      tidelake extents obs.logs --lake lake
    """
    from tidelake.listing import list_extents

    show(list_extents(lake, table, as_of=as_of, snapshot=snapshot), as_json)


def show(listing: Listing, as_json: bool) -> None:
    """Print a listing as a table for people, or as JSON for machines."""
    if as_json:
        import orjson

        click.echo(orjson.dumps(listing.to_json(), option=orjson.OPT_INDENT_2))
    else:
        console().print(listing.to_table())


def open_object(place: str, *, endpoint: str | None = None) -> tuple[ObjectStore, str]:
    """Open the store that holds one object, and give the object's key in it."""
    from tidelake.objects import open_store

    folder, _, key = place.rpartition("/")
    if not key or (folder and folder.endswith(":/")):
        raise InvalidInputError("not the name of an object", place=place)
    if "://" not in place:
        folder = folder or ("/" if place.startswith("/") else ".")
    return open_store(folder, endpoint=endpoint, create=False), key


def console() -> Console:
    """Give what a command prints tables on: as wide as the terminal, or wide enough for a pipe."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
