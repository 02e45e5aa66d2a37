"""Commands that keep a lake small and right: take rows away, bring states back, compact, do what is due, show health.

It does not hold logic of its own.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import click

from tidelake.cli.commands.options import json_option, lake_options, show
from tidelake.model.settings import FORMATS

if TYPE_CHECKING:
    from tidelake.lake import Lake
    from tidelake.maintain.restore import RestoreReport

KINDS = ("flush", "retain", "compact", "expire", "collect")


@click.command()
@click.argument("table")
@click.argument("condition", required=False, metavar="[WHERE]")
@click.option("--start", metavar="TIME", help="From this time of the time column on.")
@click.option("--end", metavar="TIME", help="Up to, not including.")
@click.option("--all", "everything", is_flag=True, help="Every row; without a condition this must be said.")
@click.option("--purge", is_flag=True, help="Also expire older snapshots and delete the objects, at once.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be deleted.")
@json_option
@lake_options(users=True)
def delete(
    lake: Lake,
    table: str,
    condition: str | None,
    start: str | None,
    end: str | None,
    everything: bool,
    purge: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Delete rows by a condition or a time range.

    It is one commit. Readers of older snapshots still see the rows until those expire, after the table's history, 7
    days; with --purge they are gone from the disk when the command ends.

    \b
    Examples:
      tidelake delete obs.logs "user_id == 'u1'" --dry-run
      tidelake delete obs.logs "user_id == 'u1'" --purge
      tidelake delete m.cpu --start 2026-01-01 --end 2026-02-01
    """
    report = lake.table(table).delete(condition, start=start, end=end, all=everything, purge=purge, dry_run=dry_run)
    _tell(report, as_json, f"{'would delete' if dry_run else 'deleted'} from {table}: ")


@click.command()
@click.argument("table")
@click.argument("snapshot", type=int, required=False)
@click.option("--key", metavar="KEY", help="The append with this idempotency key, in place of a snapshot's number.")
@click.option("--commit", metavar="ID", help="The commit with this id, in place of a snapshot's number.")
@json_option
@lake_options(users=True)
def undo(lake: Lake, table: str, snapshot: int | None, key: str | None, commit: str | None, as_json: bool) -> None:
    """Take back what one commit added to a table.

    It must still be there as it was: not flushed, compacted or deleted since. See history for the numbers of snapshots.
    Appends that arrive together share a snapshot; one of them is named by its key or its commit.

    \b
    Examples:
      tidelake undo obs.logs 17
      tidelake undo obs.logs --key batch-17
    """
    _tell_restored(lake.table(table).undo(snapshot, key=key, commit=commit), table, as_json)


@click.command()
@click.argument("table")
@click.argument("snapshot", type=int, required=False)
@click.option("--as-of", metavar="TIME", help="The state at a time, in place of a snapshot's number.")
@json_option
@lake_options(users=True)
def restore(lake: Lake, table: str, snapshot: int | None, as_of: str | None, as_json: bool) -> None:
    """Publish an older state of a table as its newest.

    What came after it stays in the history, so that a restore can be taken back by another.

    \b
    Examples:
      tidelake restore obs.logs 12
      tidelake restore obs.logs --as-of 2026-01-31T12:00:00Z
    """
    _tell_restored(lake.table(table).restore(snapshot, as_of=as_of), table, as_json)


@click.command()
@click.argument("table")
@click.option("--purge", is_flag=True, help="Also delete its objects, at once; they are collected later otherwise.")
@lake_options()
def drop(lake: Lake, table: str, purge: bool) -> None:
    """Take a table away.

    \b
    Example:
      tidelake drop scratch.test
    """
    lake.drop_table(table, purge=purge)
    click.echo(f"dropped {table}")


@click.command()
@click.argument("tables", nargs=-1, required=True, metavar="TABLE...")
@json_option
@lake_options(users=True)
def compact(lake: Lake, tables: tuple[str, ...], as_json: bool) -> None:
    """Join small extents into few that are well filled.

    Extents that overlap deeply are sorted apart. What is not worth its cost is left as it is.

    \b
    Example:
      tidelake compact obs.logs
    """
    for name in tables:
        _tell(lake.table(name).compact(), as_json, f"{name}: ")


@click.command()
@click.argument("table")
@click.option("--format", "format_name", required=True, type=click.Choice(FORMATS), help="The format of its extents.")
@json_option
@lake_options()
def convert(lake: Lake, table: str, format_name: str, as_json: bool) -> None:
    """Move a table to another format of extents.

    New extents have it at once, and those that there are are written again, each in a commit of its own.

    \b
    Example:
      tidelake convert obs.logs --format tlm
    """
    _tell(lake.table(table).convert(format_name), as_json, f"{table}: ")


@click.command()
@click.argument("tables", nargs=-1, metavar="[TABLE...]")
@click.option("--only", multiple=True, type=click.Choice(KINDS), help="Only this kind of work; may be repeated.")
@click.option("--seconds", type=click.FloatRange(min=0), help="Stop to begin work after so many seconds.")
@click.option("--dry-run", is_flag=True, help="Only tell what is due, and why.")
@json_option
@lake_options()
def maintain(
    lake: Lake, tables: tuple[str, ...], only: tuple[str, ...], seconds: float | None, dry_run: bool, as_json: bool
) -> None:
    """Do the upkeep that is due, once.

    It flushes, retains, compacts, expires and collects.
    A lake that is written to does this by itself, a little at a time; this does all of it, for a cron job or before a
    backup.

    \b
    Examples:
      tidelake maintain --dry-run
      tidelake maintain obs.logs --only compact
    """
    from tidelake.maintain.units import due_in_lake
    from tidelake.maintain.worker import maintain as maintain_lake

    kinds, named = only or KINDS, tables or None
    if dry_run:
        found = list(due_in_lake(lake.handle, named, kinds))
        if as_json:
            _echo_json([{"kind": each.kind, "table": each.table, "reason": each.reason} for each in found])
        else:
            lines = [f"{each.kind} {each.table or '(the lake)'}: {each.reason}" for each in found]
            click.echo("\n".join(lines) or "nothing is due")
        return
    shown = sys.stderr.isatty() and not as_json
    report = maintain_lake(
        lake.handle, named, kinds=kinds, seconds=seconds,
        tell=(lambda done: click.echo(f"{done.table or 'the lake'}: {done.said}", err=True)) if shown else None,
    )  # fmt: skip
    if as_json:
        done = [{"kind": each.kind, "table": each.table, "done": each.said} for each in report.done]
        _echo_json({"done": done, "failed": list(report.failed), "bytes_freed": report.bytes_freed})
    else:
        click.echo(str(report))
    if report.failed:
        sys.exit(1)


@click.command()
@click.option("--only", multiple=True, type=click.Choice(KINDS), help="Only this kind of work; may be repeated.")
@click.option("--every", default=10.0, show_default=True, type=click.FloatRange(min=0.1), help="Seconds between looks.")
@click.option("--until-idle", is_flag=True, help="End when nothing is due any more.")
@click.option("--spark", is_flag=True, help="Compact on Spark, one piece of work a task.")
@click.option("--master", metavar="URL", help="Where Spark runs, with --spark; local[*] by default.")
@lake_options()
def work(lake: Lake, only: tuple[str, ...], every: float, until_idle: bool, spark: bool, master: str | None) -> None:
    """Do upkeep as it falls due, until stopped.

    Run as many as you like, on any machine.

    \b
    Examples:
      tidelake work --lake postgresql://user@host/db --objects s3://bucket/prefix
      tidelake work --only compact --until-idle
      tidelake work --spark --master spark://host:7077
    """
    from tidelake.maintain.worker import Step
    from tidelake.maintain.worker import work as work_lake

    stop = threading.Event()

    def tell(step: Step) -> None:
        name = step.unit.payload.get("table") or "the lake"
        if step.error is not None:
            click.echo(f"{name}: {step.done.kind} failed, is tried again later: {step.error}", err=True)
        elif step.done.said:
            click.echo(f"{name}: {step.done.said}")

    if master is not None and not spark:
        raise click.UsageError("--master is for --spark")
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if spark:
        from tidelake.spark.working import work as work_on_spark

        count = work_on_spark(
            lake, kinds=only or KINDS, master=master, stop=stop, every_s=every, until_idle=until_idle, tell=tell
        )
    else:
        count = work_lake(lake.handle, only or KINDS, stop=stop, every_s=every, until_idle=until_idle, tell=tell)
    click.echo(f"{count:,} pieces of work done")


@click.command()
@json_option
@lake_options()
def status(lake: Lake, as_json: bool) -> None:
    """Show the health of every table.

    Its shape, what waits, and what is due, on one screen.

    \b
    Examples:
      tidelake status
      tidelake status --json
    """
    from tidelake.cli.catalog_rows import list_status

    show(list_status(lake), as_json)


def _tell_restored(report: RestoreReport, table: str, as_json: bool) -> None:
    if as_json:
        _tell(report, as_json, "")
        return
    click.echo(
        f"{table}: {report.rows_removed:,} rows taken away, {report.rows_restored:,} brought back, "
        f"snapshot {report.snapshot}"
    )


def _tell(report: Any, as_json: bool, before: str) -> None:
    if as_json:
        from dataclasses import asdict

        _echo_json(asdict(report))
    else:
        click.echo(f"{before}{report}")


def _echo_json(shape: Any) -> None:
    import orjson

    click.echo(orjson.dumps(shape, option=orjson.OPT_INDENT_2, default=str))
