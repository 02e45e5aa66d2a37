"""Commands of sources: add, list, pause, resume, run and remove what tables are synced from.

It does not hold logic of its own: see ``connectors``.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tidelake.cli.commands.options import json_option, lake_options

if TYPE_CHECKING:
    from tidelake.lake import Lake


@click.group()
def sync() -> None:
    """Keep tables in step with those of other databases.

    A source is kept in the lake, so that any machine can run it; one does at a time. A password is a variable of the
    environment, which the address names and every machine that runs the source needs.

    \b
    Examples:
      tidelake sync add 'postgresql://app:${PGPASSWORD}@host/shop' --into crm --table public.orders
      tidelake sync run crm --follow
      tidelake sync list
    """


@sync.command()
@click.argument("url")
@click.option("--into", metavar="NAMESPACE", help="Of the tables in the lake; also the source's name, unless told.")
@click.option("--table", "tables", multiple=True, metavar="NAME[=TABLE]",
              help="Of the source, and its name in the lake; may be repeated. By default all with a key.")  # fmt: skip
@click.option("--name", metavar="NAME", help="Of the source.")
@click.option("--mode", type=click.Choice(["log", "upsert"]), default="log", show_default=True,
              help="A row for each change, or the current state alone.")  # fmt: skip
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Of this kind of source; see the docs.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Sent to an HTTP endpoint.")
@lake_options(create=True)
def add(
    lake: Lake,
    url: str,
    into: str | None,
    tables: tuple[str, ...],
    name: str | None,
    mode: str,
    options: tuple[str, ...],
    headers: tuple[str, ...],
) -> None:
    """Keep a new source, once it was looked at; nothing is copied yet.

    \b
    Examples:
      tidelake sync add 'postgresql://app:${PGPASSWORD}@host/shop' --into crm
      tidelake sync add postgresql://app@host/shop --into crm --table public.orders=crm.orders --mode upsert
    """
    from tidelake.connectors.definition import target_tables
    from tidelake.connectors.sources import define

    named: Any = None
    if tables:
        named = [each.partition("=")[0] for each in tables]
        if any("=" in each for each in tables):
            named = {
                source: target or target_tables([source], into)[source]
                for source, _, target in (each.partition("=") for each in tables)
            }
    words: dict[str, Any] = _pairs("--option", options)
    if headers:
        words["headers"] = _pairs("--header", headers)
    source = define(lake.handle, url, named, into=into, name=name, mode=mode, options=words)
    targets = ", ".join(source.definition.tables.values())
    click.echo(f"{source.name}: {targets}")


def _pairs(option: str, words: Sequence[str]) -> dict[str, str]:
    if lone := [each for each in words if "=" not in each]:
        raise click.UsageError(f"{option} takes NAME=VALUE, not {lone[0]!r}")
    return dict(each.partition("=")[::2] for each in words)


@sync.command("list")
@json_option
@lake_options()
def list_(lake: Lake, as_json: bool) -> None:
    """List the sources and how they do, a line for each table.

    \b
    Example:
      tidelake sync list
    """
    rows = lake.sources().to_pylist()
    if as_json:
        import orjson

        click.echo(orjson.dumps(rows, option=orjson.OPT_INDENT_2))
        return
    for row in rows:
        lag = "" if row["lag_seconds"] is None else f", {row['lag_seconds']:.1f} s behind"
        why = f": {row['reason']}" if row["reason"] else ""
        click.echo(f"{row['source']}  {row['source_table']} -> {row['table']}  {row['rows']:,} rows, {row['state']}, "
                   f"{row['phase']}{lag}{why}")  # fmt: skip


@sync.command()
@click.argument("names", nargs=-1)
@click.option("--follow", is_flag=True, help="Go on until stopped.")
@click.option("--resync", is_flag=True, help="Read all tables again, and delete what the source has no more.")
@click.option("--only-missing", is_flag=True, help="Fetch again what failed, of sources that are pulled on a schedule.")
@lake_options()
def run(lake: Lake, names: tuple[str, ...], follow: bool, resync: bool, only_missing: bool) -> None:
    """Copy what was not copied yet and commit what changed; of all sources that are not paused, or of some.

    \b
    Examples:
      tidelake sync run
      tidelake sync run crm --follow
    """
    from tidelake.connectors.sources import run_several

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    for report in run_several(lake.handle, names, follow=follow, resync=resync, only_missing=only_missing, stop=stop):
        click.echo(str(report))


@sync.command()
@click.argument("name")
@lake_options()
def pause(lake: Lake, name: str) -> None:
    """Let a source rest; who runs it stops within seconds.

    \b
    Example:
      tidelake sync pause crm
    """
    lake.source(name).pause()
    click.echo(f"{name}: paused")


@sync.command()
@click.argument("name")
@lake_options()
def resume(lake: Lake, name: str) -> None:
    """Let a source run again, after a pause or once what stopped it is mended.

    \b
    Example:
      tidelake sync resume crm
    """
    lake.source(name).resume()
    click.echo(f"{name}: to be run")


@sync.command()
@click.argument("name")
@click.option("--keep-remote", is_flag=True, help="Leave at the source what was made there, such as a slot.")
@lake_options()
def remove(lake: Lake, name: str, keep_remote: bool) -> None:
    """Forget a source, and take away what was made there; the tables that it filled stay.

    \b
    Example:
      tidelake sync remove crm
    """
    lake.source(name).remove(keep_remote=keep_remote)
    click.echo(f"{name}: removed")
