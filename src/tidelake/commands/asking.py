"""Commands that ask: query, explain.

It does not start a JVM unless a query is told to run on Spark.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tidelake.commands.options import console, json_option, lake_options
from tidelake.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelake.lake import Lake
    from tidelake.query.result import Result


def query_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say what is asked, and how."""
    for option in (
        click.argument("text", required=False),
        click.option("--file", "file", type=click.File(), help="Read the query from a file."),
        click.option("--kql", "language", flag_value="kql", help="The query is KQL; found out otherwise."),
        click.option("--sql", "language", flag_value="sql", help="The query is SQL; found out otherwise."),
        click.option("--engine", default="auto", show_default=True, type=click.Choice(["auto", "local", "spark"])),
    ):
        command = option(command)
    return command


@click.command()
@query_options
@click.option("--format", "form", default=None, help="How to print.",
              type=click.Choice(["table", "json", "ndjson", "csv", "parquet", "arrow"]))  # fmt: skip
@click.option("--output", "-o", metavar="FILE", help="Where to, instead of standard output.")
@lake_options(needed=False)
def query(
    lake: Lake, text: str | None, file: Any, language: str | None, engine: str, form: str | None, output: str | None
) -> None:
    """Ask in KQL or SQL.

    TEXT may also come from a file or from standard input. The answer is a table, or a chart if KQL's render asks for
    one, unless a format is named, or the output's name ends in one: .json, .ndjson, .csv, .parquet, .arrow. Rows are
    written as they come, and a file has its name once it is whole. Dynamic values are nested in JSON. A query that
    names no table needs no lake.

    \b
    Examples:
      tidelake query "app.logs | where level == 'ERROR' | summarize count() by service"
      tidelake query "select service, count(*) from app.logs group by service" --format csv
      tidelake query --file incident.kql --format parquet --output incident.parquet
      tidelake query "print ago(7d)"
    """
    from tidelake.output import suffix_format, write_result

    result = _asked(lake, _text(text, file), language, engine)
    chosen = form or suffix_format(output)
    if chosen is None and output is None and result.render is not None and len(result):
        from tidelake.shell import drawn

        screen = console()
        screen.print(drawn(result.render.kind, result.to_arrow(), width=screen.width))
    else:
        write_result(result, chosen or "table", output, console())
    for each in result.warnings:
        click.echo(f"warning: {each}", err=True)


@click.command()
@query_options
@json_option
@lake_options(needed=False)
def explain(lake: Lake, text: str | None, file: Any, language: str | None, engine: str, as_json: bool) -> None:
    """Show what a query would read.

    For each table a funnel: from all extents to the blocks and columns that are fetched.

    \b
    Example:
      tidelake explain "app.logs | where message has 'timeout'"
    """
    import orjson

    result = _asked(lake, _text(text, file), language, engine)
    if as_json:
        shape = {"engine": result.engine, "tables": [plan.to_json() for plan in result.plans]}
        click.echo(orjson.dumps(shape, option=orjson.OPT_INDENT_2))
    else:
        click.echo(result.explain())


def _asked(lake: Lake, text: str, language: str | None, engine: str) -> Result:
    from tidelake.query.language import language_of

    ask = lake.kql if (language or language_of(text)) == "kql" else lake.sql
    return ask(text, engine=engine)


def _text(text: str | None, file: Any) -> str:
    if text is not None and file is not None:
        raise InvalidInputError("give the query as an argument or as a file, not both")
    if text is None and file is None and sys.stdin.isatty():
        raise InvalidInputError("no query: give it as an argument, with --file, or on standard input")
    found: str = text if text is not None else (file or sys.stdin).read()
    if not found.strip():
        raise InvalidInputError("the query is empty")
    return found
