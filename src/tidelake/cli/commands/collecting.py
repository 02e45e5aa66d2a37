"""The command that deletes what nothing can reach, and says what and why.

It does not decide what that is: see ``maintain.collect``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from tidelake.cli.commands.options import console, json_option, lake_options

if TYPE_CHECKING:
    from tidelake.cli.catalog_rows import Listing
    from tidelake.lake import Lake
    from tidelake.maintain.collect import CollectReport, Watch

ROWS_SHOWN = 50  # objects of a dry run on a terminal; --json has all
LEFT = {
    "writing": "of writers at work",
    "reading": "of readers at work",
    "young": "too young to be judged",
    "foreign": "of other programs",
    "doubtful": "that nothing names in a store that this lake hardly knows: see --all-orphans",
}


@click.command()
@click.option("--dry-run", is_flag=True, help="List what would be deleted, and why; change nothing.")
@click.option("--abandoned-after", metavar="AGE", default="1d", show_default=True,
              help="Of writers elsewhere that may have been killed.")  # fmt: skip
@click.option("--dropped-after", metavar="AGE", default="0s", show_default=True, help="Of tables that were dropped.")
@click.option("--orphan-after", metavar="AGE", default="1d", show_default=True,
              help="Of objects that nothing names, and unfinished writes.")  # fmt: skip
@click.option("--all-orphans", is_flag=True, help="Also when most objects are such, as in another lake's store.")
@json_option
@lake_options()
def collect(lake: Lake, as_json: bool, **options: Any) -> None:
    """Delete the objects that nothing can reach.

    These are what expired snapshots held, what killed writers left behind, what dropped tables held, and objects that
    nothing names. Files of other programs stay, and are counted. It may run at any time, beside writers and readers.

    \b
    Examples:
      tidelake collect --dry-run
      tidelake collect --lake lake
      tidelake collect --abandoned-after 6h --orphan-after 7d --json
    """
    from tidelake.maintain.collect import collect as collect_objects

    with _shown() as watch:
        report = collect_objects(lake.handle, watch=watch, **options)
    if as_json:
        import orjson

        click.echo(orjson.dumps(_shape(report), option=orjson.OPT_INDENT_2 | orjson.OPT_UTC_Z))
        return
    screen = console()
    if report.dry_run and report.total.objects:
        screen.print(_objects(report).to_table(screen.width))
    if report.total.objects:
        screen.print(_summary(report).to_table(screen.width))
    for line in _remarks(report):
        click.echo(line)


@contextmanager
def _shown() -> Iterator[Watch]:
    """Show on a terminal how many objects were listed and deleted."""
    if not sys.stderr.isatty():
        yield lambda what, count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
    done = {"listed": 0, "deleted": 0}
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("collect", total=None)

        def watch(what: str, count: int) -> None:
            done[what] += count
            progress.update(task, description=f"{done['listed']:,} objects listed, {done['deleted']:,} deleted")

        yield watch


def _shape(report: CollectReport) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "dry_run": report.dry_run,
        "deleted": {why: {"objects": each.objects, "bytes": each.bytes} for why, each in report.deleted.items()},
        "left": dict(report.left),
        "foreign": list(report.foreign),
        "tables": report.tables,
        "registrations": report.registrations,
    }
    if report.objects is not None:
        shape["objects"] = report.objects.to_pylist()
    return shape


def _objects(report: CollectReport) -> Listing:
    from tidelake.cli.catalog_rows import Listing

    assert report.objects is not None
    found = report.objects.slice(0, ROWS_SHOWN).to_pylist()
    rows = [(each["key"], each["size"], each["reason"], f"{each['since']:%Y-%m-%d %H:%M}") for each in found]
    more = report.objects.num_rows - len(rows)
    notes = (f"and {more:,} more: --json has all",) if more else ()
    return Listing("what would be deleted", ("key", "bytes", "reason", "since"), rows, spare=("since",), notes=notes)


def _summary(report: CollectReport) -> Listing:
    from tidelake.cli.catalog_rows import Listing

    rows = [(why, each.objects, each.bytes) for why, each in report.deleted.items()]
    if len(rows) > 1:
        rows.append(("together", report.total.objects, report.total.bytes))
    title = "would be deleted, by reason" if report.dry_run else "deleted, by reason"
    return Listing(title, ("reason", "objects", "bytes"), rows)


def _remarks(report: CollectReport) -> Iterator[str]:
    """Say what else was done, and what was left and why."""
    would = "would be " if report.dry_run else ""
    if not report.total.objects:
        yield "there is nothing to delete"
    if report.tables:
        yield f"{_many(report.tables, 'dropped table')} {would}purged"
    if report.registrations:
        yield f"{_many(report.registrations, 'registration')} of writers that are gone {would}given up"
    for why, count in report.left.items():
        names = f", such as {', '.join(report.foreign[:3])}" if why == "foreign" else ""
        yield f"left: {count:,} {LEFT[why]}{names}"


def _many(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"
