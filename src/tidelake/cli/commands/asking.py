"""Commands that ask: query, explain.

It does not start a JVM unless a query is told to run on Spark.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from tidelake.cli.commands.options import console, json_option, lake_options, show
from tidelake.cli.commands.reading import are_given, read_options
from tidelake.errors import InvalidInputError, QueryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelake.cli.catalog_rows import Listing
    from tidelake.lake import Lake
    from tidelake.query.promql.answer import PromAnswer
    from tidelake.query.result import Result


def query_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say what is asked, and how."""
    for option in (
        click.argument("text", required=False),
        click.option(
            "--file",
            "files",
            multiple=True,
            metavar="FILE",
            help="Beside TEXT, a file to ask, in no lake; may be repeated. Without TEXT, where the query is.",
        ),
        click.option("--kql", "language", flag_value="kql", help="The query is KQL; found out otherwise."),
        click.option("--sql", "language", flag_value="sql", help="The query is SQL; found out otherwise."),
        click.option("--engine", default="auto", show_default=True, type=click.Choice(["auto", "local", "spark"])),
    ):
        command = option(command)
    return command


def promql_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say for which times, and of which table, a PromQL query is asked."""
    command = click.option("--promql", "language", flag_value="promql", help="The query is PromQL.")(command)
    for name, metavar, told in (
        ("--at", "TIME", "Of PromQL, the time of an instant query; now otherwise."),
        ("--start", "TIME", "Of PromQL, where a range query begins."),
        ("--end", "TIME", "Of PromQL, where a range query ends."),
        ("--step", "DURATION", "Of PromQL, how far the steps of a range query are apart, as 30s; a minute otherwise."),
        ("--table", "TABLE", "Of PromQL, the table of samples, or a JSON object that maps its columns."),
    ):
        command = click.option(name, metavar=metavar, help=told)(command)
    return command


@click.command()
@query_options
@promql_options
@click.option("--format", "form", default=None, help="How to print.",
              type=click.Choice(["table", "json", "ndjson", "csv", "parquet", "arrow"]))  # fmt: skip
@click.option("--output", "-o", metavar="FILE", help="Where to, instead of standard output.")
@read_options
@lake_options(needed=False, users=True)
def query(
    lake: Lake,
    text: str | None,
    files: tuple[str, ...],
    language: str | None,
    engine: str,
    form: str | None,
    output: str | None,
    at: str | None,
    start: str | None,
    end: str | None,
    step: str | None,
    table: str | None,
    **options: Any,
) -> None:
    """Ask in KQL, SQL or PromQL.

    TEXT may also come from a file or from standard input. With TEXT, --file names a file to ask that is in no lake: it
    is read as ingest reads files, with the same options, and is the table that is called as the file is, up to its
    first dot.

    The answer is a table, or a chart if KQL's render asks for one, unless a format is named, or the output's name ends
    in one: .json, .ndjson, .csv, .parquet, .arrow. Rows are written as they come, and a file has its name once it is
    whole. Dynamic values are nested in JSON. A query that names no table needs no lake. Hints on what to try next,
    where no row is found or much is read, go to standard error, and only beside a table.

    PromQL asks the table prom_samples, which remote write makes, or the one of --table: at one time, or from --start to
    --end in steps.

    \b
    Examples:
      tidelake query "app.logs | where level == 'ERROR' | summarize count() by service"
      tidelake query "select service, count(*) from app.logs group by service" --format csv
      tidelake query --file incident.kql --format parquet --output incident.parquet
      tidelake query --file app.ndjson "app | where level == 'ERROR'"
      tidelake query --file sheet.csv --time-format '%d/%m/%Y' "sheet | count"
      tidelake query "show tables"
      tidelake query "print ago(7d)"
      tidelake query --promql "sum by (job) (rate(http_requests_total[5m]))" --at 2026-01-01T00:00:00Z
    """
    from tidelake.cli.catalog_rows import about_lake
    from tidelake.cli.output import suffix_format

    asked = _text(text, files)
    chosen = form or suffix_format(output)
    times = {"time": at, "start": start, "end": end, "step": step, "table": table}
    told = {name: value for name, value in times.items() if value is not None}
    if told and language != "promql":
        raise InvalidInputError("--at, --start, --end, --step and --table are for --promql")
    with _lake_for(lake, text, files, options) as held:
        listing = None if language else about_lake(held, asked)
        if language == "promql":
            _write_samples(_asked_promql(held, asked, told), chosen, output)
        elif listing is None:
            _write_answer(_asked(held, asked, language, engine), chosen, output)
        elif chosen is None and output is None:
            show(listing, as_json=False)
        else:
            _write_listing(listing, chosen or "table", output)


def _write_answer(result: Result, form: str | None, output: str | None) -> None:
    """Write an answer; a person who sees a table is told what was left out, and what to try next."""
    from tidelake.cli.output import table_of, write_result
    from tidelake.query.advice import next_steps

    if output is not None or form not in (None, "table"):
        write_result(result, form or "table", output, console())
    elif form is None and result.render is not None and len(result):
        from tidelake.cli.shell import drawn

        screen = console()
        screen.print(drawn(result.render.kind, result.to_arrow(), width=screen.width))
    else:
        shown = table_of(result.to_reader())
        console().print(shown)
        for each in next_steps(result, shown.total):
            click.echo(f"hint: {each}", err=True)
    for each in result.warnings:
        click.echo(f"warning: {each}", err=True)


def _asked_promql(lake: Lake, text: str, told: dict[str, Any]) -> PromAnswer:
    """Ask in PromQL; a table may be a mapping of columns, in JSON."""
    import orjson

    if (table := told.get("table", "")).lstrip().startswith("{"):
        try:
            told = told | {"table": orjson.loads(table)}
        except orjson.JSONDecodeError as error:
            raise InvalidInputError("--table is neither a table nor a JSON object", reason=error) from error
    return lake.promql(text, **told)


def _write_samples(answer: PromAnswer, form: str | None, output: str | None) -> None:
    from tidelake.cli.output import write_result

    write_result(answer, form or "table", output, console())


def _write_listing(listing: Listing, form: str, output: str | None) -> None:
    """Write what the catalog says in a format; bounds are text, because columns differ in type."""
    import pyarrow as pa

    from tidelake.cli.output import write_result

    columns = dict(zip(listing.keys, zip(*listing.rows, strict=True), strict=False))
    arrays = {}
    for key in listing.keys:
        values = list(columns.get(key, ()))
        is_mixed = len({type(value) for value in values if value is not None}) > 1
        arrays[key] = [None if value is None else str(value) for value in values] if is_mixed else values
    write_result(pa.table(arrays).to_reader(), form, output, console())


@click.command()
@query_options
@json_option
@read_options
@lake_options(needed=False, users=True)
def explain(
    lake: Lake,
    text: str | None,
    files: tuple[str, ...],
    language: str | None,
    engine: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Show what a query would read.

    For each table a funnel: from all extents to the blocks and columns that are fetched.

    \b
    Example:
      tidelake explain "app.logs | where message has 'timeout'"
    """
    import orjson

    with _lake_for(lake, text, files, options) as held:
        result = _asked(held, _text(text, files), language, engine)
        if as_json:
            shape = {"engine": result.engine, "tables": [plan.to_json() for plan in result.plans]}
            click.echo(orjson.dumps(shape, option=orjson.OPT_INDENT_2))
        else:
            click.echo(result.explain())


def _lake_for(
    lake: Lake, text: str | None, files: tuple[str, ...], options: dict[str, Any]
) -> AbstractContextManager[Lake]:
    """Return the lake that is asked: the one that is open, or one of files, while they are asked."""
    if text is None or not files:
        if are_given():
            raise InvalidInputError("these options say how files are read: name one with --file, beside the query")
        return nullcontext(lake)
    from tidelake.cli.commands.loose_files import lake_of

    return lake_of(files, options)


def _asked(lake: Lake, text: str, language: str | None, engine: str) -> Result:
    from tidelake.query.language import hinted, language_of

    ask = lake.kql if (language or language_of(text)) == "kql" else lake.sql
    try:
        return ask(text, engine=engine)
    except QueryError as error:
        raise hinted(error, text) from error


def _text(text: str | None, files: tuple[str, ...]) -> str:
    """Return the query: the argument, or what the one file or standard input holds."""
    if text is None and len(files) > 1:
        raise InvalidInputError("one file holds the query; to ask files, give the query as an argument")
    if text is None and not files and sys.stdin.isatty():
        raise InvalidInputError("no query: give it as an argument, with --file, or on standard input")
    found = text if text is not None else _read_text(files[0]) if files else sys.stdin.read()
    if not found.strip():
        raise InvalidInputError("the query is empty")
    return found


def _read_text(file: str) -> str:
    try:
        with click.open_file(file, encoding="utf-8") as opened:
            text: str = opened.read()
        return text
    except OSError as error:
        raise InvalidInputError("the query's file cannot be read", path=file, reason=error.strerror) from error
    except UnicodeDecodeError as error:
        raise InvalidInputError("the query's file is not UTF-8 text", path=file) from error
