"""Commands about vectors: index, nearest.

It does not compute embeddings: a query is the numbers of a vector.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tidelake.cli.commands.options import console, lake_options
from tidelake.errors import InvalidInputError

if TYPE_CHECKING:
    from tidelake.lake import Lake
    from tidelake.vectors.indexing import IndexInfo


@click.command()
@click.argument("table")
@click.argument("column", required=False)
@click.option("--metric", type=click.Choice(["cosine", "l2", "dot"]), help="How far is measured; cosine if not told.")
@click.option("--drop", is_flag=True, help="Drop the column's index.")
@lake_options(users=True)
def index(lake: Lake, table: str, column: str | None, metric: str | None, drop: bool) -> None:
    """Index a column of vectors, or drop its index.

    Without a column, the indexes of the table are listed.

    \b
    Examples:
      tidelake index docs embedding --metric cosine --lake lake
      tidelake index docs --lake lake
      tidelake index docs embedding --drop
    """
    held = lake.table(table)
    if column is None and (drop or metric):
        raise InvalidInputError("name the column, too")
    if column is None:
        for each in held.indexes():
            click.echo(_told(each))
    elif drop:
        held.drop_index(column)
        click.echo(f"{column} has no index any more; its objects go with the next collection")
    else:
        click.echo(held.create_index(column, metric=metric or "cosine"))


@click.command()
@click.argument("table")
@click.argument("column")
@click.argument("query", required=False)
@click.option("-k", default=10, show_default=True, help="How many rows.")
@click.option("--where", "condition", metavar="CONDITION", help="Of which rows, as in table.scan: \"tag == 'a'\".")
@click.option("--start", metavar="TIME", help="From this time on.")
@click.option("--end", metavar="TIME", help="Up to, not including.")
@click.option(
    "--columns", metavar="NAMES", help="The columns to show, separated by commas; all but the vectors if not told."
)
@click.option("--recall", type=float, help="How much of what is truly nearest is to be found, up to 1.")
@click.option("--probes", type=int, help="How many lists of the index are looked through.")
@click.option("--explain", is_flag=True, help="Say what was looked at instead.")
@click.option("--format", "form", default="table", show_default=True, help="How to print.",
              type=click.Choice(["table", "json", "ndjson", "csv", "parquet", "arrow"]))  # fmt: skip
@click.option("--output", "-o", metavar="FILE", help="Where to, instead of standard output.")
@lake_options(users=True)
def nearest(
    lake: Lake,
    table: str,
    column: str,
    query: str | None,
    explain: bool,
    columns: str | None,
    condition: str | None,
    form: str,
    output: str | None,
    **asked: Any,
) -> None:
    """Find the rows whose vectors are nearest to another.

    QUERY is that vector as a JSON list of numbers; it comes from standard input if it is not given.

    \b
    Examples:
      tidelake nearest docs embedding '[0.1, 0.7, 0.2]' -k 5 --lake lake
      tidelake nearest docs embedding --where "lang == 'en'" < query.json
    """
    held = lake.table(table)
    wanted = _numbers(sys.stdin.read() if query is None else query)
    if explain:
        click.echo(held.explain_nearest(column, wanted, where=condition, **asked))
        return
    named = [name.strip() for name in columns.split(",")] if columns else None
    shown = named or [each.name for each in held.schema if each.type.kind != "vector"]
    from tidelake.cli.output import write_result

    found = held.nearest(column, wanted, columns=shown, where=condition, **asked)
    write_result(found, form, output, console())


def _numbers(text: str) -> Any:
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidInputError("a query is a JSON list of numbers, such as [0.1, 0.7]", reason=str(error)) from error


def _told(each: IndexInfo) -> str:
    lacking = f", {each.missing:,} without codes" if each.missing else ""
    return (
        f"{each.column}: {each.metric}, {each.dimensions:,} dimensions, {each.state}, version {each.version}, "
        f"{each.extents:,} extents coded{lacking}, {each.byte_size:,} bytes"
    )
