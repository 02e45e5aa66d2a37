"""Commands about what a table holds and what is missing.

It does not read rows, but for ``repair --thorough``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from tidelake.cli.commands.options import console, json_option, lake_options
from tidelake.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelake.coverage.verbs import CoverageReport
    from tidelake.lake import Lake
    from tidelake.table import Table

SHADES = " ░▒▓█"  # from nothing held to everything
NOT_EXPECTED = "·"
NUMBERS_WIDTH = 32  # characters of the three numbers of a line, and of the gaps between columns
MIN_NAME = 18  # characters of an entity's value that are shown before the strip is
MIN_STRIP = 10  # cells


def _range_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--schedule", metavar="TEXT", help="When data is expected, 'mon-fri 09:30-16:00 Europe/Berlin'."),
        click.option(
            "--entity", metavar="VALUE", multiple=True, help="One entity; repeat it for several entity columns."
        ),
        click.option("--end", metavar="TIME", help="Up to, not including; by default the last window held."),
        click.option(
            "--start",
            metavar="TIME",
            help="From: 2026-01-31T12:00:00Z, or a number since 1970; by default the first window held.",
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("table")
@_range_options
@click.option(
    "--limit",
    default=40,
    show_default=True,
    type=click.IntRange(min=1),
    help="How many entities, those with the least first.",
)
@json_option
@lake_options(users=True)
def coverage(
    lake: Lake,
    table: str,
    start: str | None,
    end: str | None,
    entity: tuple[str, ...],
    schedule: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show how much of its time each entity holds, and where.

    A strip shows the range from left to right: full blocks are held, blanks are missing, dots are not expected.

    \b
    Examples:
      tidelake coverage m.cpu --lake lake
      tidelake coverage m.cpu --start 2026-01-01 --end 2026-02-01 --entity dev-1
    """
    held = lake.table(table).pinned()
    report = held.coverage.report(start, end, entity=_entity(held, entity), schedule=schedule)
    if as_json:
        facts = {"table": report.table, "snapshot": report.snapshot, "mode": report.mode, "bucket": report.bucket,
                 "start": report.start, "end": report.end, "ratio": report.ratio,
                 "entities": _plain(report.entities)}  # fmt: skip
        _print_json(facts)
    else:
        _print_strips(report, limit)


@click.command()
@click.argument("table")
@_range_options
@click.option(
    "--least", default="1", show_default=True, metavar="LENGTH", help="Leave out shorter gaps: 5m, or buckets."
)
@click.option("--limit", default=100, show_default=True, type=click.IntRange(min=1), help="How many gaps are printed.")
@json_option
@lake_options(users=True)
def gaps(
    lake: Lake,
    table: str,
    start: str | None,
    end: str | None,
    entity: tuple[str, ...],
    schedule: str | None,
    least: str,
    limit: int,
    as_json: bool,
) -> None:
    """List the time windows that are missing.

    \b
    Examples:
      tidelake gaps m.cpu --lake lake
      tidelake gaps m.cpu --entity dev-1 --least 15m --json
    """
    shortest: str | int = int(least) if least.isdecimal() else least
    held = lake.table(table).pinned()
    found = held.coverage.gaps(start, end, entity=_entity(held, entity), schedule=schedule, least=shortest)
    if as_json:
        _print_json(_plain(found))
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    listed = RichTable(
        title=f"{found.num_rows:,} {'gap' if found.num_rows == 1 else 'gaps'} in {table}",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for name in found.column_names:
        listed.add_column(name, justify="right" if name == "buckets" else "left", no_wrap=True)
    for row in _plain(found.slice(0, limit)):
        listed.add_row(*(Text(f"{value:,}" if name == "buckets" else _shown(value)) for name, value in row.items()))
    console().print(listed)
    if found.num_rows > limit:
        console().print(f"and {found.num_rows - limit:,} more, with a larger --limit")


@click.command()
@click.argument("table")
@click.option("--thorough", is_flag=True, help="Read every row, and compare.")
@json_option
@lake_options(users=True)
def repair(lake: Lake, table: str, thorough: bool, as_json: bool) -> None:
    """Make lost or damaged coverage again.

    Coverage of an extent is made from its rows, and the table's from that of its extents. Rows are never changed.

    \b
    Example:
      tidelake repair m.cpu --lake lake
    """
    report = lake.table(table).repair(thorough=thorough)
    if as_json:
        _print_json(report.to_json())
        return
    for each in report.mended:
        click.echo(f"made again from {each.source}: {each.key} ({each.reason})")
    click.echo(f"{report.table}: {report.extents} extents looked at, {len(report.mended)} objects made again")


def _entity(table: Table, values: tuple[str, ...]) -> list[Any] | None:
    """Read an entity's values as the table's columns have them."""
    if not values:
        return None
    head = table.snapshot
    names = head.settings.get("entity") or []
    if len(names) != len(values):
        raise InvalidInputError("give --entity once for each entity column", columns=", ".join(names))
    kinds = [head.schema[name].type.kind for name in names]
    try:
        return [int(v) if kind in ("int", "long") else v for v, kind in zip(values, kinds, strict=True)]
    except ValueError as error:
        raise InvalidInputError("an entity's value is a whole number", reason=error) from None


def _print_strips(report: CoverageReport, limit: int) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    title = f"{report.table} at snapshot {report.snapshot}: {report.ratio:.2%} of {report.bucket} buckets held"
    listed = RichTable(
        title=title, caption=f"{report.start} to {report.end}", title_justify="left", caption_justify="left",
        box=SIMPLE_HEAD, pad_edge=False,
    )  # fmt: skip
    rows = report.entities.to_pylist()
    names = report.entities.column_names[: report.entities.column_names.index("first")]
    for name in names:
        listed.add_column(Text(name, no_wrap=True, overflow="ellipsis"))  # what is cut where there is little room
    for name in ("held", "gaps", "longest"):
        listed.add_column(name, justify="right", no_wrap=True)
    listed.add_column("", no_wrap=True)
    screen = console()
    room = screen.width - NUMBERS_WIDTH - len(names) * (MIN_NAME + 3)
    order = sorted(range(len(rows)), key=lambda at: rows[at]["ratio"])
    for at in order[:limit]:
        row = rows[at]
        facts = (f"{row['ratio']:.2%}", f"{row['gaps']:,}", f"{row['longest_gap']:,}")
        strip = Text(
            "".join(map(_shade, pooled(report.strips[at], room))), style="green" if row["ratio"] == 1 else "yellow"
        )
        listed.add_row(*(Text(_shown(row[name]), no_wrap=True, overflow="ellipsis") for name in names), *facts, strip)
    screen.print(listed)
    if len(rows) > limit:
        screen.print(f"and {len(rows) - limit:,} entities that hold no less")


def pooled(strip: Sequence[float], room: int) -> list[float]:
    """Return a strip of at most so many cells, each the mean of what is expected in those it stands for."""
    size = -(-len(strip) // max(room, MIN_STRIP))
    groups = [[share for share in strip[at : at + size] if share >= 0] for at in range(0, len(strip), size)]
    return [sum(group) / len(group) if group else -1.0 for group in groups]


def _shade(share: float) -> str:
    if share < 0:
        return NOT_EXPECTED
    return SHADES[-1] if share >= 1 else SHADES[min(int(share * 4) + (share > 0), 3)]


def _plain(table: pa.Table) -> list[dict[str, Any]]:
    from datetime import datetime

    rows: list[dict[str, Any]] = table.to_pylist()
    return [
        {
            name: value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
            for name, value in row.items()
        }
        for row in rows
    ]


def _shown(value: Any) -> str:
    return "".join(c if c.isprintable() else "�" for c in str(value))


def _print_json(shape: Any) -> None:
    import orjson

    click.echo(orjson.dumps(shape, option=orjson.OPT_INDENT_2))
