"""Mirror the library on the command line: one command per verb, each a few lines over one library call.

An error of ours is one line on stderr and exit code 1, wrong usage is exit code 2, and anything else is a traceback,
because it is a defect. What a command needs is imported inside it, so that ``--help`` and shell completion do not wait
for compilers and object stores. To add a command, decorate a function with ``@main.command()`` and give it a docstring
with an example; ``open_object`` and ``console`` are here for it. It does not hold logic of its own.
"""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING, Any

import click

from tidelake import __version__
from tidelake.errors import CorruptExtent, InvalidInputError, TidelakeError

if TYPE_CHECKING:
    from rich.console import Console

    from tidelake.objects import ObjectStore

PIPE_WIDTH = 120  # columns of a table that nobody's terminal limits


class _Failure(click.ClickException):
    """One line on stderr."""

    def __init__(self, error: TidelakeError) -> None:
        super().__init__(" ".join(str(error).split()))

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"tidelake: {self.format_message()}", file=file or sys.stderr)


class _Group(click.Group):
    """A group whose commands raise our errors freely."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TidelakeError as error:
            raise _Failure(error) from error


@click.group("tidelake", cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="tidelake %(version)s")
def main() -> None:
    """Keep time-stamped data as immutable extents, and read almost nothing you do not need."""


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
