"""Read CSV in the forms that programs and spreadsheets write it, a piece at a time, every value as text.

What separates the columns (comma, semicolon, tab or bar), whether there is a header, and whether decimals have a comma
are found in the first lines. A file without a header gets the columns ``column_1``, ``column_2``, …. Lines before the
header that begin with ``#`` and a spreadsheet's ``sep=;`` are passed over. A piece ends at a line end outside of
quotes. A row with more or fewer values than the header is bad: an error that says its line, or passed over. It does
not say what type a column has: see ``text_columns``.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.csv

from tidelake.errors import InvalidInputError
from tidelake.ingest.text_columns import EMPTY, INT, REAL, TEXT, TIME, RawRow, TextColumns, classify
from tidelake.ingest.text_encoding import as_utf8, first_lines
from tidelake.ingest.time_formats import few_times

SEPARATORS = "\t;|,"  # in the order of preference: decimals have commas, texts have commas
LOOK_LINES = 100
MAX_QUOTED_BYTES = 64 << 20  # a quote that is not closed within so much is not one

_DECIMAL_COMMA = re.compile(r"-?[0-9.]+,[0-9]+")
_DECIMAL_POINT = re.compile(r"-?[0-9]+\.[0-9]+")
_CLOCK = re.compile(r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?")

OnBad = Callable[[int, str, str], None]  # line, reason, text


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a CSV file is written."""

    separator: str
    names: tuple[str, ...]
    skipped: int  # lines before the first row
    decimal: str = "."


def find_dialect(head: bytes, *, separator: str | None = None) -> Dialect:
    """Find how a file is written, from its first lines."""
    lines = first_lines(head, LOOK_LINES + 1)
    if len(lines) > LOOK_LINES or not head.endswith(b"\n"):
        lines = lines[:LOOK_LINES] if len(lines) > LOOK_LINES else lines
    skipped = 0
    if lines and (told := re.fullmatch(r"sep=(.)", lines[0].strip(), re.IGNORECASE)):
        separator, skipped = separator or told[1], 1
    while skipped < len(lines) and (lines[skipped].startswith("#") or not lines[skipped].strip()):
        skipped += 1
    rest = lines[skipped:]
    if not rest:
        raise InvalidInputError("no rows to choose a schema from", kind="no_rows")
    mark = separator or find_separator(rest) or ","
    try:
        rows = [row for row in csv.reader(io.StringIO("\n".join(rest)), delimiter=mark) if row]
    except csv.Error as error:  # such as a first field that does not end
        raise InvalidInputError(f"the first lines are not CSV: {error}", kind="bad_csv") from error
    is_header = _is_header(rows)
    names = _names(rows[0]) if is_header else tuple(f"column_{n}" for n in range(1, len(rows[0]) + 1))
    header_lines = 1 + sum(cell.count("\n") for cell in rows[0]) if is_header else 0
    return Dialect(mark, names, skipped + header_lines, _decimal(rows[1:], mark))


def find_separator(lines: Sequence[str]) -> str | None:
    """Return what separates the columns: it occurs in every line, and equally often in nearly all."""
    for mark in SEPARATORS:
        try:
            counts = [len(row) - 1 for row in csv.reader(io.StringIO("\n".join(lines)), delimiter=mark) if row]
        except csv.Error:
            continue
        if counts and min(counts) >= 1 and Counter(counts).most_common(1)[0][1] >= 0.9 * len(counts):
            return mark
    return next((mark for mark in SEPARATORS[::-1] if mark in lines[0]), None)


def looks_like_csv(head: bytes) -> bool:
    """Whether text of no known name is CSV: a header of words, and lines with as many columns."""
    lines = [line for line in first_lines(head, LOOK_LINES)[:-1] if line.strip()]
    if len(lines) < 2 or not find_separator(lines):
        return False
    try:
        dialect = find_dialect(head)
    except (InvalidInputError, csv.Error):
        return False
    counts = {len(row) for row in csv.reader(io.StringIO("\n".join(lines)), delimiter=dialect.separator) if row}
    words = all(re.fullmatch(r"[\w @.()/%-]{1,40}", name) for name in dialect.names)
    return counts == {len(dialect.names)} and len(dialect.names) > 1 and words and dialect.skipped > 0


def csv_pieces(
    buffers: Iterator[bytes], dialect: Dialect, names: Sequence[str], *, on_bad: OnBad | None
) -> Iterator[TextColumns]:
    """Read rows a piece at a time; a bad row is told to ``on_bad``, or is an error."""
    for line, piece in _row_pieces(buffers, dialect.skipped):
        yield _columns(as_utf8(piece), line, dialect, names, on_bad)


def _columns(piece: bytes, line: int, dialect: Dialect, names: Sequence[str], on_bad: OnBad | None) -> TextColumns:
    bad: list[tuple[int | None, str, int]] = []

    def keep(row: pa.csv.InvalidRow) -> str:
        bad.append((row.number, row.text, row.actual_columns))
        return "skip"

    has_broken = b'"' in piece and _has_broken_lines(piece)
    parse = pa.csv.ParseOptions(delimiter=dialect.separator, newlines_in_values=has_broken, invalid_row_handler=keep)
    read = pa.csv.ReadOptions(column_names=list(dialect.names), use_threads=False, block_size=len(piece) + 1)
    convert = pa.csv.ConvertOptions(
        column_types=dict.fromkeys(dialect.names, pa.string()),
        strings_can_be_null=False,
        quoted_strings_can_be_null=False,
    )
    try:
        table = pa.csv.read_csv(pa.py_buffer(piece), read_options=read, parse_options=parse, convert_options=convert)
    except pa.ArrowInvalid as error:
        if "Empty CSV" not in str(error):
            raise InvalidInputError("bad CSV", line=line, reason=error, kind="bad_csv") from error
        table = pa.table({name: pa.array([], pa.string()) for name in dialect.names})
    lines = _Places(piece, line, dialect, {number - 1 for number, _, _ in bad if number is not None}, has_broken)
    for number, text, count in bad:
        where = lines.of_record(number - 1) if number is not None else line
        reason = f"{count} values where the header has {len(dialect.names)}"
        if on_bad is None:
            raise InvalidInputError(f"a row has {reason}: leave such rows out with skip_bad=", line=where,
                                    near=repr(text[:40]), kind="bad_csv")  # fmt: skip
        on_bad(where, reason, text)
    columns = {
        name: column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        for name, column in zip(table.schema.names, table.columns, strict=True)
    }
    return TextColumns(columns, table.num_rows, names, raw=lines.raw, decimal=dialect.decimal)


class _Places:
    """Which line each row of a piece is; for messages and for rows that are passed over."""

    def __init__(self, piece: bytes, line: int, dialect: Dialect, bad: set[int], has_broken: bool) -> None:
        self._piece, self._line, self._dialect, self._bad, self._has_broken = piece, line, dialect, bad, has_broken
        self._records: list[RawRow] | None = None

    def of_record(self, record: int) -> int:
        """Return the line of a record, bad ones counted."""
        return self._all()[record][0]

    def raw(self, rows: Sequence[int]) -> list[RawRow]:
        """Return the lines of rows, bad ones not counted."""
        good = [found for at, found in enumerate(self._all()) if at not in self._bad]
        return [good[row] for row in rows]

    def _all(self) -> list[RawRow]:
        if self._records is None:
            self._records = list(self._read())
        return self._records

    def _read(self) -> Iterator[RawRow]:
        held, begin = "", self._line
        for number, text in enumerate(self._piece.decode().split("\n"), start=self._line):
            if not held:
                begin = number
            held = f"{held}\n{text}" if held else text
            if self._has_broken and held.count('"') % 2:
                continue
            if held.strip("\r"):
                yield begin, held.rstrip("\r")
            held = ""
        if held:
            yield begin, held


def _has_broken_lines(piece: bytes) -> bool:
    """Whether a quoted value goes over a line end."""
    data = np.frombuffer(piece, dtype=np.uint8)
    ends = np.flatnonzero(data == 10)
    return bool((np.searchsorted(np.flatnonzero(data == 34), ends) % 2).any())


def _row_pieces(buffers: Iterator[bytes], skipped: int) -> Iterator[tuple[int, bytes]]:
    """Cut text at line ends outside of quotes, after the first lines."""
    line, rest = 1, b""
    for data in buffers:
        rest += data
        while skipped and b"\n" in rest:
            rest = rest[rest.index(b"\n") + 1 :]
            skipped, line = skipped - 1, line + 1
        if skipped or not (cut := _last_row_end(rest)):
            continue
        yield line, rest[:cut]
        line, rest = line + rest.count(b"\n", 0, cut), rest[cut:]
    if rest and not skipped:
        yield line, rest


def _last_row_end(data: bytes) -> int:
    """Return the place after the last line end that is outside of quotes, or 0."""
    if b'"' not in data:
        return data.rfind(b"\n") + 1
    seen = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(seen == 10)
    outside = ends[np.searchsorted(np.flatnonzero(seen == 34), ends) % 2 == 0]
    if len(outside):
        return int(outside[-1]) + 1
    return data.rfind(b"\n") + 1 if len(data) > MAX_QUOTED_BYTES else 0


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names the columns: words, none of them a number or a time."""
    codes = classify(pa.array(list(rows[0]), pa.string())).tolist()
    if any(code in (INT, REAL, TIME) for code in codes) or all(code == EMPTY for code in codes):
        return False
    if any(_CLOCK.fullmatch(cell.strip()) or _is_dated(cell) for cell in rows[0]):
        return False
    return len(rows) == 1 or TEXT in codes


def _is_dated(cell: str) -> bool:
    formats = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%b %d %H:%M:%S", "%d.%m.%Y %H:%M:%S")
    short = cell.strip()
    return any(few_times([short, short.partition(" ")[0]], form, now_us=1 << 51).max() > 0 for form in formats)


def _names(header: Sequence[str]) -> tuple[str, ...]:
    """Return names of columns: trimmed, and each one once."""
    names: list[str] = []
    for at, cell in enumerate(header, start=1):
        name = base = cell.strip() or f"column_{at}"
        for n in chain(range(2, len(header) + 2)):
            if name not in names:
                break
            name = f"{base}_{n}"
        names.append(name)
    return tuple(names)


def _decimal(rows: Sequence[Sequence[str]], separator: str) -> str:
    """Return the decimal mark of a file whose columns are not separated by commas."""
    if separator == ",":
        return "."
    cells = [cell.strip() for row in rows for cell in row]
    commas = sum(bool(_DECIMAL_COMMA.fullmatch(cell)) for cell in cells)
    points = sum(bool(_DECIMAL_POINT.fullmatch(cell)) for cell in cells)
    return "," if commas > points else "."
