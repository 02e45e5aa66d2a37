"""Report what one extent holds, and whether its bytes are the ones that were written.

``inspect_extent`` reads the footer, then every byte that carries a checksum, one block at a time, and gives an
``ExtentReport``: a plain value with a JSON shape (``docs/inspect.md``). ``anatomy`` lays it out for a person. Damage in
the data is part of the report; damage in the footer is a CorruptExtent, because then nothing can be said. It does not
decode rows or repair anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, Literal, TypeAlias

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidelake.errors import CorruptExtent
from tidelake.format import (
    BlockInfo,
    ExtentMetadata,
    ExtentReader,
    PartInfo,
    PieceInfo,
    TellsParts,
    format_of_object,
)
from tidelake.format.segment import checksum_of, time_column
from tidelake.kernels.bloom import PROBES, Filter
from tidelake.model.schema import Column, Schema
from tidelake.objects import ObjectStore
from tidelake.pruning.statistics import Bound, ColumnStats, Stats, column_to_json, merge

MAX_BLOCKS_SHOWN = 24  # a screenful; --json has them all
BOUND_LETTERS = 26  # enough to tell values apart, few enough for two of them in a line
PARTS_SHOWN = 24  # of a column: a table of hundreds of paths says less
FULL = 0.95  # a filter with so many bits set does not tell how many keys it holds

State: TypeAlias = Literal["ok", "mismatch", "none"]

FILTERS = {"values": "value", "terms": "token", "leaves": "leaf"}  # statistics that are filters, and one key of each

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STYLES: Mapping[State, str] = {"ok": "green", "mismatch": "bold red", "none": "yellow"}


@dataclass(frozen=True, slots=True)
class PieceReport:
    """The bytes of one column of one block, and whether they match their checksum."""

    offset: int
    byte_size: int
    state: State
    known: ColumnStats


@dataclass(frozen=True, slots=True)
class SharedReport:
    """Bytes of a column beside its pieces in blocks, such as a dictionary, and whether they match their checksum."""

    column: str
    part: str
    block: int | None  # of what is of one block
    state: State


@dataclass(frozen=True, slots=True)
class BlockReport:
    """One block: its rows, its time range in nanoseconds, and its pieces by column."""

    rows: int
    min_ts_ns: int | None
    max_ts_ns: int | None
    pieces: Mapping[str, PieceReport]

    @property
    def byte_size(self) -> int:
        return sum(piece.byte_size for piece in self.pieces.values())


@dataclass(frozen=True, slots=True)
class ColumnReport:
    """One column over all blocks: its compressed bytes, their share of the object, and what is known of its values.

    ``filters`` has the filters of all blocks, of values, terms and leaves, as far as the blocks have them.
    """

    column: Column
    byte_size: int
    share: float
    known: ColumnStats
    filters: Mapping[str, tuple[Filter, ...]]


@dataclass(frozen=True, slots=True)
class ExtentReport:
    """What one extent is made of."""

    key: str
    format: str
    version: int
    extent_id: str | None
    schema: Schema
    rows: int
    byte_size: int
    footer_bytes: int
    time: str | None
    columns: tuple[ColumnReport, ...]
    blocks: tuple[BlockReport, ...]
    parts: tuple[PartInfo, ...] = ()  # of columns that consist of parts
    shared: tuple[SharedReport, ...] = ()  # what columns have beside the pieces of blocks

    @property
    def states(self) -> list[State]:
        """The state of every piece, those beside blocks included."""
        pieces = [piece.state for block in self.blocks for piece in block.pieces.values()]
        return pieces + [each.state for each in self.shared]

    @property
    def state(self) -> State:
        """One wrong piece makes a mismatch; ok means that every piece was verified."""
        states = set(self.states)
        return "mismatch" if "mismatch" in states else "ok" if states == {"ok"} else "none"

    @property
    def mismatches(self) -> tuple[tuple[int | None, str, str | None], ...]:
        """The block and column of every piece whose bytes are not the ones written, and what it is beside blocks."""
        in_blocks = (
            (number, name, None)
            for number, block in enumerate(self.blocks)
            for name, piece in block.pieces.items()
            if piece.state == "mismatch"
        )
        return (
            *in_blocks,
            *((each.block, each.column, each.part) for each in self.shared if each.state == "mismatch"),
        )

    @property
    def verified(self) -> int:
        """How many pieces matched."""
        return self.states.count("ok")

    def to_json(self) -> dict[str, Any]:
        """Return the documented shape."""
        return {
            "object": self.key,
            "format": self.format,
            "version": self.version,
            "extent_id": self.extent_id,
            "rows": self.rows,
            "bytes": self.byte_size,
            "footer_bytes": self.footer_bytes,
            "time": self.time,
            "schema": self.schema.to_json(),
            "checksums": {
                "state": self.state,
                "pieces": len(self.states),
                "verified": self.verified,
                "mismatches": [
                    {"block": block, "column": column} | ({} if part is None else {"part": part})
                    for block, column, part in self.mismatches
                ],
            },
            "columns": [
                {"name": each.column.name, "bytes": each.byte_size, "share": round(each.share, 6)}
                | {"stats": _column_stats_to_json(each)}
                for each in self.columns
            ],
            "parts": [
                {"column": each.column, "part": each.part, "path": each.path, "codecs": list(each.codecs)}
                | {"values": each.values, "bytes": each.byte_size}
                for each in self.parts
            ],
            "blocks": [_block_to_json(block) for block in self.blocks],
        }


def inspect_extent(store: ObjectStore, key: str) -> ExtentReport:
    """Read an extent's footer, verify every checksum, and report both."""
    reader = format_of_object(store, key).open_extent(store, key)
    metadata = reader.metadata()
    time = time_column(metadata.schema)
    name = time.name if time else None
    blocks = tuple(_inspect_block(store, key, block, name, metadata) for block in metadata.blocks)
    return ExtentReport(
        key=key,
        format=metadata.format,
        version=metadata.version,
        extent_id=metadata.extent_id,
        schema=metadata.schema,
        rows=metadata.row_count,
        byte_size=metadata.byte_size,
        footer_bytes=metadata.footer_bytes,
        time=name,
        columns=tuple(_column_reports(metadata)),
        blocks=blocks,
        parts=_parts(reader),
        shared=_shared(store, key, reader, metadata.byte_size),
    )


def _parts(reader: ExtentReader) -> tuple[PartInfo, ...]:
    """Return the parts of columns; none where bytes are not those written, which the checksums tell."""
    try:
        return tuple(reader.parts()) if isinstance(reader, TellsParts) else ()
    except CorruptExtent:
        return ()


def _shared(store: ObjectStore, key: str, reader: ExtentReader, byte_size: int) -> tuple[SharedReport, ...]:
    """Verify what columns have beside the pieces of blocks."""
    pieces = {str(at): each for at, each in enumerate(reader.shared_pieces())} if isinstance(reader, TellsParts) else {}
    states = _verify(store, key, {at: each.piece for at, each in pieces.items()}, byte_size)
    return tuple(SharedReport(each.column, each.part, each.block, states[at]) for at, each in pieces.items())


def anatomy(report: ExtentReport) -> RenderableType:
    """Lay a report out for a person."""
    parts: list[RenderableType] = [_part_table(report), Text()] if report.parts else []
    return Group(_heading(report), Text(), _column_table(report), Text(), *parts, _block_table(report))


def size_text(count: int) -> str:
    """Return a number of bytes as a person reads it."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def time_text(ns: int, *, digits: str = "auto") -> str:
    """Return nanoseconds since 1970 as a UTC time, rounded down; ``digits`` is a ``timespec`` of isoformat."""
    return (_EPOCH + timedelta(microseconds=ns // 1000)).isoformat(" ", digits).removesuffix("+00:00")


def _inspect_block(
    store: ObjectStore, key: str, block: BlockInfo, time: str | None, metadata: ExtentMetadata
) -> BlockReport:
    states = _verify(store, key, block.pieces, metadata.byte_size)
    times = block.stats.columns.get(time, ColumnStats()) if time else ColumnStats()
    return BlockReport(
        rows=block.stats.rows,
        min_ts_ns=None if times.low is None else int(times.low),
        max_ts_ns=None if times.high is None else int(times.high),
        pieces={
            name: PieceReport(piece.offset, piece.length, states[name], block.stats.columns.get(name, ColumnStats()))
            for name, piece in block.pieces.items()
        },
    )


def _verify(store: ObjectStore, key: str, pieces: Mapping[str, PieceInfo], byte_size: int) -> dict[str, State]:
    """Check the pieces that have a checksum; one that lies outside the object cannot match."""
    states: dict[str, State] = dict.fromkeys(pieces, "none")
    held = {name: piece for name, piece in pieces.items() if piece.checksum is not None}
    inside = {name: piece for name, piece in held.items() if piece.offset + piece.length <= byte_size}
    states |= dict.fromkeys(held, "mismatch")
    fetched = store.get_ranges(key, [(piece.offset, piece.length) for piece in inside.values()])
    for (name, piece), data in zip(inside.items(), fetched, strict=True):
        if checksum_of(data) == piece.checksum:
            states[name] = "ok"
    return states


def _column_reports(metadata: ExtentMetadata) -> Iterator[ColumnReport]:
    whole = merge(block.stats for block in metadata.blocks) if metadata.blocks else Stats(0)
    for column in metadata.schema:
        size = sum(block.pieces[column.name].length for block in metadata.blocks)
        known = whole.columns.get(column.name, ColumnStats())
        parts = [block.stats.columns.get(column.name, ColumnStats()) for block in metadata.blocks]
        filters = {name: tuple(held for part in parts if (held := getattr(part, name))) for name in FILTERS}
        yield ColumnReport(column, size, size / metadata.byte_size, known, filters)


def _block_to_json(block: BlockReport) -> dict[str, Any]:
    return {
        "rows": block.rows,
        "bytes": block.byte_size,
        "min_ts_ns": block.min_ts_ns,
        "max_ts_ns": block.max_ts_ns,
        "columns": {
            name: {"at": piece.offset, "bytes": piece.byte_size, "checksum": piece.state}
            | {"stats": _stats_to_json(piece.known)}
            for name, piece in block.pieces.items()
        },
    }


def _column_stats_to_json(each: ColumnReport) -> dict[str, Any]:
    shape = _plain_stats_to_json(each.known)
    for name, filters in each.filters.items():
        if filters:
            shape[name] = {"bytes": sum(len(filter.bits) for filter in filters), "keys": _keys_in_all(filters)}
    return shape


def _stats_to_json(known: ColumnStats) -> dict[str, Any]:
    shape = _plain_stats_to_json(known)
    for name in FILTERS:
        if filter := getattr(known, name):
            shape[name] = {"bytes": len(filter.bits), "keys": _keys_in(filter)}
    return shape


def _plain_stats_to_json(known: ColumnStats) -> dict[str, Any]:
    """Return statistics as they are stored, without filters, and of grams their number; unknown is left out."""
    stored = column_to_json(known)
    shape = {key: value for key, value in stored.items() if value is not None and key not in FILTERS}
    return shape | ({} if known.grams is None else {"grams": _gram_count(known)})


def _keys_in(filter: Filter) -> int | None:
    """Estimate how many keys a filter holds from the share of bits that they set; None when nearly all are."""
    if filter.fill > FULL:
        return None
    return round(-len(filter.bits) * 8 / PROBES * math.log1p(-filter.fill))


def _keys_in_all(filters: Sequence[Filter]) -> int | None:
    """Estimate how many keys several filters hold together, from the largest; smaller ones are of few rows."""
    largest = max(len(filter.bits) for filter in filters)
    return _keys_in(reduce(or_, (filter for filter in filters if len(filter.bits) == largest)))


def _gram_count(known: ColumnStats) -> int:
    return int.from_bytes(known.grams.bits, "little").bit_count() if known.grams else 0


def _heading(report: ExtentReport) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold cyan")
    table.add_column()
    _add_row(table, "extent", _clean(report.extent_id or "without an id: another writer made it"))
    _add_row(table, "object", f"{_clean(report.key)}, {report.format} v{report.version}")
    rows, blocks = _many(report.rows, "row"), _many(len(report.blocks), "block")
    share = report.footer_bytes / report.byte_size
    footer = f"a footer of {size_text(report.footer_bytes)} ({share:.1%})" if report.footer_bytes else "no footer"
    _add_row(table, "holds", f"{rows} in {blocks}, {size_text(report.byte_size)} with {footer}")
    _add_row(table, "time", _time_line(report))
    _add_row(table, "checks", Text(_checksum_line(report), style=_STYLES[report.state]))
    return table


def _time_line(report: ExtentReport) -> str:
    if report.time is None:
        return "no timestamp column"
    times = next(each.known for each in report.columns if each.column.name == report.time)
    if times.low is None or times.high is None:
        return f"unknown, column {_clean(report.time)}"
    return f"{time_text(int(times.low))} to {time_text(int(times.high))} UTC, column {_clean(report.time)}"


def _checksum_line(report: ExtentReport) -> str:
    pieces = len(report.states)
    match report.state:
        case "ok":
            return f"ok: all {_many(pieces, 'piece')} match"
        case "none":
            return "none: the extent carries no checksums"
        case "mismatch":
            places = [_place_text(*each) for each in report.mismatches]
            more = f" and {len(places) - 3} more" if len(places) > 3 else ""
            return f"MISMATCH in {len(places)} of {_many(pieces, 'piece')}: {', '.join(places[:3])}{more}"


def _place_text(block: int | None, column: str, part: str | None) -> str:
    where = [] if block is None else [f"block {block}"]
    return " ".join([*where, f"column {_clean(column)}", *([] if part is None else [part])])


def _part_table(report: ExtentReport) -> Table:
    """List the parts of columns, of each column those that take the most bytes."""
    table = _table("column", "part", "path", "codec", ">values", ">bytes")
    for column in report.columns:
        own = [part for part in report.parts if part.column == column.column.name]
        for part in own[:PARTS_SHOWN]:
            _add_row(
                table,
                _clean(part.column),
                part.part,
                _clean(part.path or ""),
                ", ".join(part.codecs),
                f"{part.values:,}",
                size_text(part.byte_size),
            )
        if more := own[PARTS_SHOWN:]:
            name, rest = _clean(column.column.name), size_text(sum(part.byte_size for part in more))
            _add_row(table, name, f"{len(more)} more", "", "", "", rest)
    return table


def _column_table(report: ExtentReport) -> Table:
    table = _table("column", "type", ">bytes", ">share", ">nulls", "bounds", "distinct")
    for each in report.columns:
        _add_row(
            table,
            _clean(each.column.name),
            str(each.column.type) + ("" if each.column.nullable else " not null"),
            size_text(each.byte_size),
            f"{each.share:.1%}",
            "?" if each.known.nulls is None else f"{each.known.nulls:,}",
            _bounds_text(each),
            ", ".join(_known_parts(each)),
        )
    return table


def _block_table(report: ExtentReport) -> Table:
    table = _table(">block", ">rows", ">bytes", "from", "to", "checks")
    shown = list(enumerate(report.blocks))
    hidden = len(shown) - MAX_BLOCKS_SHOWN
    for number, block in shown if hidden <= 0 else shown[:MAX_BLOCKS_SHOWN]:
        wrong = [_clean(name) for name, piece in block.pieces.items() if piece.state == "mismatch"]
        states = {piece.state for piece in block.pieces.values()}
        state: State = "mismatch" if wrong else "ok" if states == {"ok"} else "none"
        _add_row(
            table,
            str(number),
            f"{block.rows:,}",
            size_text(block.byte_size),
            "?" if block.min_ts_ns is None else time_text(block.min_ts_ns),
            "?" if block.max_ts_ns is None else time_text(block.max_ts_ns),
            Text("mismatch: " + ", ".join(wrong) if wrong else state, style=_STYLES[state]),
        )
    if hidden > 0:
        _add_row(table, "…", "", "", f"{hidden:,} more blocks", "", "")
    return table


def _table(*headings: str) -> Table:
    """Make a plain table; a heading that begins with ``>`` is a column of numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold cyan")
    for heading in headings:
        wraps = heading in ("bounds", "distinct")
        table.add_column(heading.lstrip(">"), justify="right" if heading.startswith(">") else "left", no_wrap=not wraps)
    return table


def _add_row(table: Table, *cells: str | Text) -> None:
    """Add cells as they are: square brackets in a name or a value are not rich's markup."""
    table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))


def _bounds_text(each: ColumnReport) -> str:
    low, high = each.known.low, each.known.high
    if low is None and high is None:
        return ""
    is_time = each.column.type.kind == "timestamp"
    return f"{_bound_text(low, is_time=is_time)} … {_bound_text(high, is_time=is_time)}" + (
        "" if each.known.tight else " (loose)"
    )


def _bound_text(bound: Bound | None, *, is_time: bool) -> str:
    match bound:
        case None:
            return "?"
        case bool():
            return str(bound).lower()
        case int():
            return time_text(bound, digits="seconds") if is_time else f"{bound:,}"
        case float():
            return repr(bound)
        case str():
            text = _clean(bound)
            return f"'{text[:BOUND_LETTERS]}…'" if len(text) > BOUND_LETTERS else f"'{text}'"


def _known_parts(each: ColumnReport) -> Iterator[str]:
    for name, filters in each.filters.items():
        if filters:
            yield _keys_text(filters, FILTERS[name])
    if each.known.grams is not None:
        yield _many(_gram_count(each.known), "gram")
    if each.known.paths is not None:
        yield _many(len(each.known.paths), "path")
    if each.known.ball is not None:
        yield f"ball of radius {each.known.ball.radius:.3g}"


def _keys_text(filters: Sequence[Filter], noun: str) -> str:
    """Return how many keys the blocks have together, or, if that is past telling, each of them."""
    keys = _keys_in_all(filters)
    if keys is not None:
        return f"≈ {_many(keys, noun)}"
    each = [count for filter in filters if (count := _keys_in(filter)) is not None]
    return f"≈ {_many(round(sum(each) / len(each)), noun)} a block" if each else f"very many {_plural(noun)}"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun if count == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    return "leaves" if noun == "leaf" else f"{noun}s"


def _clean(text: str) -> str:
    """Show what a terminal would obey, such as an escape, as its code."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
