"""Read files in tasks, and set aside the records that no table can hold.

The driver lists files and cuts them into pieces: NDJSON by byte ranges, Parquet by row groups, the rest whole. A task
coerces a piece as ``Table.append`` would. Where that fails, the piece is halved until the bad records are alone; each
is given with its file, its line and the reason, and the others are kept. It does not write anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from tidelake.errors import InvalidInputError, NotFoundError, StorageError, TidelakeError
from tidelake.ingest import Coerced, Rules, coerce_arrow, coerce_lines, coerce_rows, infer_schema
from tidelake.ingest.parquet_files import parquet_batches
from tidelake.model.schema import DataType, Schema
from tidelake.spark.outside import Outside

PIECE_BYTES = 32 << 20  # of a file for one task
CHUNK_BYTES = 8 << 20  # coerced at a time
CHUNK_ROWS = 65_536
SAMPLE_BYTES = 4 << 20  # of the first file, from which a schema is chosen
MAX_BAD = 100_000  # records set aside by one task: past it, the files are not what they were said to be
SHOWN_RECORD = 4096  # characters kept of a record that was set aside

KINDS = {
    ".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet",
}  # fmt: skip
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
Coerce: TypeAlias = Callable[[Any, Schema, Rules], Coerced]
Show: TypeAlias = Callable[[Any], str]

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class Piece:
    """What one task reads of a file: bytes from ``start`` to ``end``, or row groups."""

    path: str
    kind: str
    compression: str | None
    start: int
    end: int
    file: int = 0  # which of the files of the job


@dataclass(frozen=True, slots=True)
class Bad:
    """A record that was set aside."""

    file: str
    line: int
    reason: str
    record: str


@dataclass(slots=True)
class PieceReader:
    """Coerce the records of one piece, and collect the bad ones."""

    piece: Piece
    schema: Schema
    rules: Rules
    outside: Outside = field(default_factory=Outside)
    bad: list[Bad] = field(default_factory=list)

    def read(self) -> Iterator[Coerced]:
        """Yield the good records as batches, each of the schema that the ones before it needed or a wider one."""
        try:
            match self.piece.kind:
                case "ndjson":
                    yield from self._read_ndjson()
                case "json":
                    yield from self._read_json()
                case "csv":
                    yield from self._read_csv()
                case _:
                    yield from self._read_parquet()
        except FileNotFoundError:
            raise NotFoundError("no such file", path=self.piece.path) from None
        except (pa.ArrowInvalid, OSError) as error:
            raise StorageError("the file cannot be read", path=self.piece.path, reason=error) from error

    def _set_aside(self, line: int, reason: object, record: str) -> None:
        if len(self.bad) == MAX_BAD:
            raise InvalidInputError("too many bad records", file=self.piece.path, limit=MAX_BAD, kind="too_many_bad")
        self.bad.append(Bad(self.piece.path, line, str(reason), record[:SHOWN_RECORD]))

    def _halved(self, records: Any, line: int, coerce: Coerce, show: Show) -> Iterator[Coerced]:
        """Coerce records; where that fails, halve them until the bad ones are alone."""
        try:
            coerced = coerce(records, self.schema, self.rules)
        except TidelakeError as error:
            if len(records) == 1:
                self._set_aside(line, error.message, show(records))
                return
        else:
            self.schema = coerced.schema
            yield coerced
            return
        middle = len(records) // 2
        yield from self._halved(records[:middle], line, coerce, show)
        yield from self._halved(records[middle:], line + middle, coerce, show)

    def _read_ndjson(self) -> Iterator[Coerced]:
        line = 1
        for chunk in _line_chunks(self.piece, self.outside):
            try:
                coerced = coerce_lines(chunk, self.schema, self.rules)
            except TidelakeError:
                yield from self._halved(chunk.split(b"\n"), line, _coerce_lines, _show_line)
            else:
                self.schema = coerced.schema
                yield coerced
            line += chunk.count(b"\n")
        if self.bad and self.piece.start:  # the lines before this piece are counted only when somebody asks
            before = _lines_before(self.piece, self.outside)
            self.bad = [replace(bad, line=bad.line + before) for bad in self.bad]

    def _read_json(self) -> Iterator[Coerced]:
        data = _whole(self.piece, self.outside)
        if data.lstrip()[:1] != b"[":
            for line, start, end in _line_starts(data):
                yield from self._halved(data[start:end].split(b"\n"), line, _coerce_lines, _show_line)
            return
        try:
            records = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            self._set_aside(error.lineno, f"not JSON: {error.msg}", "")
            return
        for start in range(0, len(records), CHUNK_ROWS):
            yield from self._halved(records[start : start + CHUNK_ROWS], start + 1, _coerce_values, repr)

    def _read_csv(self) -> Iterator[Coerced]:
        line = 2  # the first has the names
        for batch, wrong in _csv_batches(self.piece, self.outside):
            for at, reason, text in wrong:
                self._set_aside(at, reason, text)
            yield from self._halved(batch, line, _coerce_texts, _show_rows)
            line += len(batch) + len(wrong)

    def _read_parquet(self) -> Iterator[Coerced]:
        with pa.parquet.ParquetFile(self.outside.open(self.piece.path)) as file:
            groups = range(self.piece.start, self.piece.end)
            line = 1 + sum(file.metadata.row_group(group).num_rows for group in range(self.piece.start))
            for batch in parquet_batches(file, list(groups), rows=CHUNK_ROWS):
                yield from self._halved(_Sliced(batch), line, _coerce_batch, _show_rows)
                line += batch.num_rows


class _Sliced:
    """A batch that halves like a list."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def __getitem__(self, part: slice) -> _Sliced:
        start, stop, _ = part.indices(len(self))
        return _Sliced(self.batch.slice(start, stop - start))


def list_files(paths: Sequence[str], outside: Outside | None = None) -> list[str]:
    """Find files by path, folder or glob, each once, in order; of a folder, those of a known kind. None is an error."""
    found: dict[str, None] = {}
    for path in paths:
        names, in_folder = (outside or Outside()).find(path)
        if in_folder:
            names = [name for name in names if kind_of(name)]
        if not names:
            raise NotFoundError("no file to load", path=path)
        found |= dict.fromkeys(names)
    return list(found)


def kind_of(path: str) -> tuple[str, str | None] | None:
    """Return by its name what a file holds, and how it is compressed; None for other files."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    compression = _COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    plain = suffixes[:-1] if compression else suffixes
    kind = KINDS.get(plain[-1]) if plain else None
    return (kind, compression) if kind else None


def cut_pieces(path: str, *, format: str | None = None, file: int = 0, outside: Outside | None = None) -> list[Piece]:
    """Cut one file into what tasks read."""
    place = outside or Outside()
    kind, compression = kind_of(path) or (None, None)
    kind = format or kind
    if kind is None or kind not in KINDS.values():
        known = ", ".join(sorted(set(KINDS.values())))
        raise InvalidInputError(f"cannot tell what {Path(path).name!r} holds: name its format", known=known)
    if kind == "parquet":
        try:
            with place.open(path) as opened:
                groups = pa.parquet.read_metadata(opened).num_row_groups
        except pa.ArrowInvalid as error:
            raise InvalidInputError("the file is not readable", path=path, reason=error) from error
        return [Piece(path, kind, None, group, group + 1, file) for group in range(groups)]
    size = place.size(path)
    step = PIECE_BYTES if kind == "ndjson" and compression is None else max(size, 1)
    return [Piece(path, kind, compression, start, min(start + step, size), file) for start in range(0, size, step)]


def sample_schema(piece: Piece, time: str | None, outside: Outside | None = None) -> tuple[Schema, str | None]:
    """Choose a schema and a time column by the beginning of a file."""
    place = outside or Outside()
    match piece.kind:
        case "ndjson" | "json":
            with place.stream(piece.path, piece.compression) as stream:
                head = stream.read(SAMPLE_BYTES)
            if head.lstrip()[:1] == b"[":
                return _inferred(orjson.loads(_whole(piece, place))[:CHUNK_ROWS], time)
            whole_lines = head[: head.rfind(b"\n") + 1] or head
            return _of_lines(whole_lines, time)
        case "csv":
            with place.stream(piece.path, piece.compression) as stream:
                handler = pa.csv.ParseOptions(delimiter=_delimiter(piece), invalid_row_handler=lambda row: "skip")
                batch = pa.csv.open_csv(stream, parse_options=handler).read_next_batch()
            return _inferred(_instants_of_text(batch), time)
        case _:
            with pa.parquet.ParquetFile(place.open(piece.path)) as file:
                return _inferred(next(parquet_batches(file, rows=CHUNK_ROWS)), time)


def _instants_of_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Take what looks like a date or a time without a zone in text as a time in UTC, as ``ingest`` does."""
    for at, (name, kind) in enumerate(zip(batch.schema.names, batch.schema.types, strict=True)):
        if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None):
            times = batch.column(at).cast(pa.timestamp("us", tz="UTC"), safe=False)
            batch = batch.set_column(at, name, times)
    return batch


def _inferred(sample: Any, time: str | None) -> tuple[Schema, str | None]:
    """Choose a schema; a time column that was named is one even if a record of the sample has none."""
    try:
        return infer_schema(sample, time=time)
    except InvalidInputError as error:
        if error.kind != "bad_time" or time is None:
            raise
        schema, _ = infer_schema(sample)
        if time not in schema:
            raise
        kinds = {column.name: DataType("timestamp") if column.name == time else column.type for column in schema}
        return Schema.of(kinds), time


def _of_lines(data: bytes, time: str | None) -> tuple[Schema, str | None]:
    """Choose a schema by lines of JSON, without those that are no JSON objects."""
    try:
        return _inferred(data, time)
    except InvalidInputError as error:
        if error.kind in ("no_rows", "bad_time"):
            raise
    return _inferred(b"\n".join(line for line in data.split(b"\n") if _is_object(line)), time)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False


def _line_chunks(piece: Piece, outside: Outside) -> Iterator[bytes]:
    """Yield the lines that begin in a piece, in chunks of whole lines."""
    if piece.compression is not None:
        data = _whole(piece, outside)
        for _, start, end in _line_starts(data):
            yield data[start:end]
        return
    with outside.lines(piece.path) as file:
        if piece.start:
            file.seek(piece.start - 1)
            file.readline()  # it began in the piece before
        while file.tell() < piece.end:
            chunk = file.read(min(CHUNK_BYTES, piece.end - file.tell()))
            if not chunk:
                break
            yield chunk + (b"" if chunk.endswith(b"\n") else file.readline())


def _line_starts(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Cut data at line ends: the number of the first line, and the places where a chunk begins and ends."""
    line, start = 1, 0
    while start < len(data):
        end = data.find(b"\n", min(start + CHUNK_BYTES, len(data)))
        end = len(data) if end < 0 else end + 1
        yield line, start, end
        line += data.count(b"\n", start, end)
        start = end


def _lines_before(piece: Piece, outside: Outside) -> int:
    count = 0
    with outside.lines(piece.path) as file:
        left = piece.start
        while left > 0 and (part := file.read(min(CHUNK_BYTES, left))):
            count += part.count(b"\n")
            left -= len(part)
        file.seek(piece.start - 1)
        return count + (0 if file.read(1) == b"\n" else 1)


def _whole(piece: Piece, outside: Outside) -> bytes:
    with outside.stream(piece.path, piece.compression) as stream:
        return bytes(stream.read())


def _delimiter(piece: Piece) -> str:
    return "\t" if ".tsv" in piece.path else ","


def _csv_batches(piece: Piece, outside: Outside) -> Iterator[tuple[_Sliced, list[tuple[int, str, str]]]]:
    """Yield the rows of a CSV file, all fields as text, and those that have another number of fields."""
    wrong: list[tuple[int, str, str]] = []

    def skip(row: Any) -> str:
        reason = f"{row.actual_columns} fields and not {row.expected_columns}"
        wrong.append((row.number or 0, reason, row.text))
        return "skip"

    parse = pa.csv.ParseOptions(delimiter=_delimiter(piece), invalid_row_handler=skip, newlines_in_values=True)
    read = pa.csv.ReadOptions(use_threads=False, block_size=CHUNK_BYTES)
    with outside.stream(piece.path, piece.compression) as stream:
        names = pa.csv.open_csv(stream, read_options=read, parse_options=parse).schema.names
    wrong.clear()
    texts = pa.csv.ConvertOptions(
        column_types={name: pa.string() for name in names}, strings_can_be_null=True, null_values=[""]
    )
    with outside.stream(piece.path, piece.compression) as stream:
        batch = None
        for batch in pa.csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=texts):
            yield _Sliced(batch), list(wrong)
            wrong.clear()
        if wrong and batch is not None:
            yield _Sliced(batch.slice(0, 0)), list(wrong)


def _coerce_lines(lines: list[bytes], schema: Schema, rules: Rules) -> Coerced:
    return coerce_lines(b"\n".join(lines), schema, rules)


def _coerce_values(records: list[Any], schema: Schema, rules: Rules) -> Coerced:
    for record in records:
        if not isinstance(record, dict):
            raise InvalidInputError("not a JSON object", got=type(record).__name__)
    return coerce_rows(records, schema, rules)


def _coerce_batch(rows: _Sliced, schema: Schema, rules: Rules) -> Coerced:
    return coerce_arrow(rows.batch, schema, rules)


def _coerce_texts(rows: _Sliced, schema: Schema, rules: Rules) -> Coerced:
    """Read fields of text as their columns' types: whole columns where all fit, else value by value."""
    arrays, batch = [], rows.batch
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        kind = schema[name].type if name in schema else DataType("string")
        if kind.logical is None and kind.kind in ("int", "long", "real", "bool"):
            wide = pa.int64() if kind.kind == "int" else kind.arrow
            try:
                array = array.cast(wide)
            except pa.ArrowInvalid:
                return coerce_rows(_parsed_rows(batch, schema), schema, rules)
        elif kind.kind in ("dynamic", "vector"):
            return coerce_rows(_parsed_rows(batch, schema), schema, rules)
        arrays.append(array)
    return coerce_arrow(pa.RecordBatch.from_arrays(arrays, names=batch.schema.names), schema, rules)


def _parsed_rows(batch: pa.RecordBatch, schema: Schema) -> list[dict[str, Any]]:
    """Return rows of text as values: what does not read as its column's type stays text."""
    types = {name: schema[name].type if name in schema else DataType("string") for name in batch.schema.names}
    kinds = {name: "string" if kind.logical and kind.kind != "dynamic" else kind.kind for name, kind in types.items()}
    return [
        {name: _parsed(text, kinds[name]) for name, text in row.items() if text is not None}
        for row in batch.to_pylist()
    ]


def _parsed(text: str, kind: str) -> Any:
    if kind in ("string", "timestamp"):
        return text
    if kind in ("dynamic", "vector") or _NUMBER.fullmatch(text) or text in ("true", "false"):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            return text
    return text


def _show_line(lines: list[bytes]) -> str:
    return lines[0].decode("utf-8", "replace")


def _show_rows(rows: _Sliced) -> str:
    return str(rows.batch.to_pylist()[0])
