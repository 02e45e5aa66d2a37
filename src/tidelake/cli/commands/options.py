"""Share what commands have in common: which lake, how to print.

It does not know any command.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidelake.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from rich.console import Console

    from tidelake.cli.catalog_rows import Listing
    from tidelake.lake import Lake
    from tidelake.objects import ObjectStore

PIPE_WIDTH = 120  # columns of a table that nobody's terminal limits


def lake_options(
    create: bool = False, check: Callable[..., None] | None = None, *, needed: bool = True, users: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that say which lake, and pass it that lake, open.

    A lake that is not there is made if told to, once ``check`` has looked at the command's options and raised nothing;
    what fails or is stopped after that takes a lake without a table away again. Where none is ``needed``, one that is
    not there is missed only by a command that looks for a table. A command for ``users`` too takes ``--user``, and gets
    the lake as that user sees it.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.option("--lake", "where", metavar="WHERE", help="Which lake; see tidelake --help.")
        @click.option(
            "--objects",
            envvar="TIDELAKE_OBJECTS",
            metavar="WHERE",
            help="The object store beside a PostgreSQL catalog.",
        )
        @click.option(
            "--endpoint", envvar="TIDELAKE_ENDPOINT", metavar="URL", help="Where the S3 server is, if not AWS."
        )
        @wraps(command)
        def opened(
            *, where: str | None, objects: str | None, endpoint: str | None, user: str | None = None, **options: Any
        ) -> None:
            from tidelake.lake import connect

            if user is not None:
                from tidelake.catalog.names import check_user

                check_user(user)
            place = where or click.get_current_context().obj or "lake"
            is_made = False
            try:
                lake = connect(place, objects=objects, endpoint=endpoint, create=create and check is None)
            except NotFoundError as error:
                if not create or check is None:
                    hint = "say which with --lake or TIDELAKE_LAKE; init and ingest make one"
                    missing = NotFoundError(f"{error.message}: {hint}", kind=error.kind, **error.facts)
                    if needed:
                        raise missing from error
                    from tidelake.cli.commands.no_lake import no_lake

                    with no_lake(place, missing) as nothing:
                        command(lake=nothing, **options)
                    return
                check(**options)
                is_made = True
            try:
                lake = connect(place, objects=objects, endpoint=endpoint) if is_made else lake
                with lake:
                    try:
                        command(lake=lake if user is None else lake.user(user), **options)
                    except NotFoundError as error:
                        raise _closer(error, lake) from error
            except BaseException:
                if is_made and "://" not in place and not place.startswith("log:"):
                    from tidelake.catalog.unused import remove_unused

                    remove_unused(Path(place).expanduser())
                raise

        return user_option(opened) if users else opened

    return decorate


user_option = click.option("--user", metavar="ID", help="Whose table, where each user has one.")


def _closer(error: NotFoundError, lake: Lake) -> NotFoundError:
    """Name the tables that are spelled like one that is not there."""
    from tidelake.model.lexer import did_you_mean, tables_there_are

    if error.kind != "no_table" or "did you mean" in error.message:
        return error
    names = lake.tables()
    told = did_you_mean(str(error.facts.get("table", "")), names) or tables_there_are(names)
    return NotFoundError(error.message + told, kind=error.kind, **error.facts)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")


def show(listing: Listing, as_json: bool) -> None:
    """Print a listing as a table for people, or as JSON for machines."""
    if as_json:
        import orjson

        click.echo(orjson.dumps(listing.to_json(), option=orjson.OPT_INDENT_2))
    else:
        screen = console()
        screen.print(listing.to_table(screen.width))


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
    """Return what a command prints tables on: as wide as the terminal, or wide enough for a pipe."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
