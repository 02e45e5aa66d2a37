"""Commands about what a lake's catalog holds: make a lake or a table, list, describe.

It does not read rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tidelake.cli.commands.options import json_option, lake_options, show
from tidelake.errors import InvalidInputError
from tidelake.model.settings import FORMATS, HISTORY, SCOPES, SHARED

if TYPE_CHECKING:
    from tidelake.lake import Lake

STATES = ("in_sync", "pending_write", "syncing", "stale", "error")


@click.command()
@lake_options(create=True)
def init(lake: Lake) -> None:
    """Make a lake.

    It is a folder with a catalog in it, or tables in PostgreSQL beside an object store. Commands that write make a
    missing lake by themselves; init is for those who want it to be there first.

    \b
    Examples:
      tidelake init --lake lake
      tidelake init --lake postgresql://user@host/db --objects s3://bucket/prefix
    """
    click.echo(f"{lake.where} is a lake with {len(lake.tables())} tables")


def check_columns(table: str, columns: tuple[str, ...], **_: Any) -> None:
    """Look at a table's name and columns, before a lake is made for it."""
    from tidelake.catalog.protocol import parse_table_name
    from tidelake.model.schema import Schema

    parse_table_name(table)
    Schema.of(_schema(columns))


def _schema(columns: tuple[str, ...]) -> dict[str, str]:
    """Read columns as they are typed, NAME:TYPE each."""
    pairs = [column.rpartition(":") for column in columns]
    if wrong := [text for text, (name, _, _) in zip(columns, pairs, strict=True) if not name]:
        raise InvalidInputError(f"{wrong[0]!r} is not a column: give NAME:TYPE, such as ts:timestamp")
    schema = {name: kind for name, _, kind in pairs}
    if len(schema) < len(pairs):
        raise InvalidInputError("a column is named twice", columns=" ".join(columns))
    return schema


@click.command()
@click.argument("table")
@click.argument("columns", nargs=-1, required=True, metavar="NAME:TYPE...")
@click.option("--time", metavar="COLUMN", help="The time column; needed if there are several timestamps.")
@click.option("--format", type=click.Choice(FORMATS), help="Of extents; tlm, and parquet in a log.")
@click.option("--retention", metavar="DURATION", help="Rows leave once they are older by their time column, 30d.")
@click.option("--history", metavar="DURATION", help="How long older snapshots can be read; 7d by default.")
@click.option("--key", metavar="COLUMN", multiple=True, help="Hold one row for each value; may be repeated.")
@click.option("--scope", type=click.Choice(SCOPES), default=SHARED, show_default=True,
              help="One table for all, or one for each user.")  # fmt: skip
@click.option("--bucket", metavar="WIDTH", help="Know which time windows are held, 1m.")
@click.option("--entity", metavar="COLUMN", multiple=True, help="Know it for each value of a column; may be repeated.")
@click.option("--coverage", type=click.Choice(["exclusive", "track"]), help="Refuse a window that is held, or take it.")
@lake_options(create=True, check=check_columns)
def create(
    lake: Lake,
    table: str,
    columns: tuple[str, ...],
    time: str | None,
    format: str | None,
    retention: str | None,
    history: str | None,
    key: tuple[str, ...],
    scope: str,
    bucket: str | None,
    entity: tuple[str, ...],
    coverage: str | None,
) -> None:
    """Make a table with typed columns.

    Types: int, long, real, bool, string, timestamp, dynamic, vector(N).

    \b
    Example:
      tidelake create obs.logs ts:timestamp service:string message:string attributes:dynamic
      tidelake create app.notes id:long ts:timestamp text:string --key id
      tidelake create app.notes ts:timestamp text:string --scope user
      tidelake create m.cpu ts:timestamp device:string load:real --bucket 1m --entity device --coverage exclusive
    """
    from tidelake.model.schema import Schema
    from tidelake.write.create import create_table

    schema = Schema.of(_schema(columns))
    made = create_table(
        lake.catalog,
        table,
        schema,
        time=time,
        format=format,
        retention=retention,
        history=history or HISTORY,
        key=key,
        scope=scope,
        bucket=bucket,
        entity=entity,
        coverage=coverage,
    )
    click.echo(f"made {made}: {', '.join(map(str, schema))}")


@click.command()
@click.option("--namespace", metavar="NAME", help="Only the tables of this namespace.")
@json_option
@lake_options()
def tables(lake: Lake, as_json: bool, namespace: str | None) -> None:
    """List the tables of a lake.

    \b
    Examples:
      tidelake tables --lake lake
      TIDELAKE_LAKE=lake tidelake tables --json
    """
    from tidelake.cli.catalog_rows import list_tables

    show(list_tables(lake, namespace), as_json)


@click.command()
@click.argument("table")
@json_option
@lake_options(users=True)
def describe(lake: Lake, as_json: bool, table: str) -> None:
    """Show a table's columns and what is known of each.

    Bounds, nulls and their share, distinct values and a few of them, and values that do not fit their column are those
    of extents' statistics: no object is read. Hot rows are not looked at; columns with many values have no count.

    \b
    Example:
      tidelake describe obs.logs --lake lake
    """
    from tidelake.cli.catalog_rows import list_columns

    show(list_columns(lake, table), as_json)


@click.command()
@click.argument("table")
@click.option(
    "--limit", default=20, show_default=True, type=click.IntRange(min=1), help="How many snapshots, newest first."
)
@json_option
@lake_options(users=True)
def history(lake: Lake, as_json: bool, table: str, limit: int) -> None:
    """List the snapshots of a table, newest first.

    \b
    Example:
      tidelake history obs.logs --lake lake
    """
    from tidelake.cli.catalog_rows import list_history

    show(list_history(lake, table, limit), as_json)


@click.command()
@click.argument("table")
@click.option("--as-of", metavar="TIME", help="As the table was at this time, 2026-01-31T12:00:00Z.")
@click.option("--snapshot", metavar="N", type=int, help="As the table was in this snapshot.")
@json_option
@lake_options(users=True)
def extents(lake: Lake, as_json: bool, table: str, as_of: str | None, snapshot: int | None) -> None:
    """List the extents of a table and what each one holds.

    \b
    Example:
      tidelake extents obs.logs --lake lake
    """
    from tidelake.cli.catalog_rows import list_extents

    show(list_extents(lake, table, as_of=as_of, snapshot=snapshot), as_json)


@click.command()
@click.argument("table", required=False)
@click.option("--state", type=click.Choice(STATES), help="Only those in this state.")
@click.option("--limit", default=1000, show_default=True, type=click.IntRange(min=0), help="Rows at most.")
@json_option
@lake_options(users=True)
def manifests(lake: Lake, table: str | None, state: str | None, limit: int, as_json: bool) -> None:
    """Show the manifests of users and keyed tables.

    Their states, what they list, which copy is nearest, and what went wrong.

    \b
    Examples:
      tidelake manifests
      tidelake manifests app.notes --user alice
      tidelake manifests --state error --json
    """
    from tidelake.cli.catalog_rows import list_manifests

    show(list_manifests(lake, table, state, limit), as_json)


@click.command()
@click.argument("table")
@click.option("--after", default="", metavar="ID", help="Only those that come after this one.")
@click.option("--limit", default=1000, show_default=True, type=click.IntRange(min=1), help="Users at most.")
@json_option
@lake_options()
def users(lake: Lake, table: str, after: str, limit: int, as_json: bool) -> None:
    """List the users of a table that have ever written.

    \b
    Example:
      tidelake users app.notes --lake lake
      tidelake users app.notes --after alice --limit 100 --json
    """
    from tidelake.cli.catalog_rows import list_users

    show(list_users(lake, table, after, limit), as_json)
