"""Read rows from wherever they are, a piece at a time, and give them the table's shape.

Rows come as anything with an Arrow C stream, as dicts, as NDJSON bytes, or as the path of a file: NDJSON (``.ndjson``,
``.jsonl``, ``.json``), CSV, Parquet or Arrow, the first two also compressed (``.gz``, ``.zst``, ``.bz2``). A piece is
some megabytes, so memory does not grow with the source. It does not decide how values fit: see ``coerce``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from tidelake.errors import InvalidInputError, NotFoundError, StorageError, TidelakeError
from tidelake.ingest.coerce import Coerced, Rules, coerce_arrow, coerce_ndjson, coerce_rows
from tidelake.ingest.few import few_rows
from tidelake.schema import Schema

PIECE_BYTES = 8 << 20  # of NDJSON
PIECE_ROWS = 65_536  # of dicts, or of Arrow
MOST_LINE_BYTES = 1 << 30  # one line of NDJSON must fit Arrow's offsets, with room to spare

_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_OTHER_COMMAS = re.compile(r"[;\t|]")
_NDJSON = (".ndjson", ".jsonl", ".json")


def coerced_stream(rows: Any, schema: Schema, rules: Rules) -> Iterator[Coerced]:
    """Give rows as batches of the schema, or of a wider one from the batch that needed it on."""
    for piece in _pieces(rows):
        if isinstance(piece, tuple):
            line, data = piece
            coerced = _coerced_lines(line, data, schema, rules)
        elif isinstance(piece, pa.RecordBatch):
            coerced = coerce_arrow(piece, schema, rules)
        else:
            coerced = coerce_rows(piece, schema, rules)
        schema = coerced.schema
        yield coerced


def _coerced_lines(line: int, data: memoryview, schema: Schema, rules: Rules) -> Coerced:
    """Coerce lines of JSON, a few of them without the loops; what is wrong is said by those, with its line."""
    if (rows := few_rows(data)) is not None:
        with suppress(TidelakeError):
            return coerce_rows(rows, schema, rules)
    return coerce_ndjson(data, schema, rules, first_line=line)


def is_rereadable(rows: Any) -> bool:
    """Say whether rows can be read a second time: all but streams and iterators can."""
    return not isinstance(rows, pa.RecordBatchReader | Iterator)


def first_rows(rows: Any) -> tuple[Sample, Any]:
    """Give the first rows, to choose a schema from, and rows that still begin with them."""
    if isinstance(rows, pa.RecordBatchReader):
        batches = iter(rows)
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            raise InvalidInputError("no rows to choose a schema from", kind="no_rows")
        return first, pa.RecordBatchReader.from_batches(rows.schema, chain([first], batches))
    if isinstance(rows, Iterator):
        head = list(islice(rows, PIECE_ROWS))
        return head, chain(head, rows)
    piece = next(_pieces(rows), [])
    return (piece[1] if isinstance(piece, tuple) else piece), rows


Sample: TypeAlias = memoryview | pa.RecordBatch | list[Mapping[str, Any]]
Piece: TypeAlias = tuple[int, memoryview] | pa.RecordBatch | list[Mapping[str, Any]]


def _pieces(rows: Any) -> Iterator[Piece]:
    if isinstance(rows, bytes | bytearray | memoryview | pa.Buffer):
        yield from _ndjson_pieces(iter([pa.py_buffer(rows)]))
    elif isinstance(rows, str | os.PathLike):
        yield from _file_pieces(Path(rows))
    elif isinstance(rows, pa.RecordBatch | pa.Table):
        yield from _arrow_pieces([rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches())
    elif hasattr(rows, "__arrow_c_stream__"):
        yield from _arrow_pieces(pa.RecordBatchReader.from_stream(rows))
    elif hasattr(rows, "__arrow_c_array__"):
        yield pa.record_batch(rows)
    elif isinstance(rows, Mapping) or not isinstance(rows, Iterable):
        raise InvalidInputError(
            "append takes an Arrow stream, a list of dicts, NDJSON bytes or a path", got=type(rows).__name__
        )
    else:
        several = iter(rows)
        while piece := list(islice(several, PIECE_ROWS)):
            yield piece


def _arrow_pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, PIECE_ROWS * 16):
            yield batch.slice(start, PIECE_ROWS * 16)


def _file_pieces(path: Path) -> Iterator[Piece]:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = _COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    kind = (suffixes[-2] if len(suffixes) > 1 else "") if compression else (suffixes[-1] if suffixes else "")
    try:
        if kind == ".parquet":
            with pa.parquet.ParquetFile(path) as file:
                yield from _arrow_pieces(file.iter_batches())
        elif kind in (".arrow", ".feather", ".ipc"):
            with pa.memory_map(str(path)) as file:
                reader = pa.ipc.open_file(file)
                yield from _arrow_pieces(reader.get_batch(at) for at in range(reader.num_record_batches))
        elif kind == ".csv":
            with pa.input_stream(str(path), compression=compression) as stream:
                yield from _arrow_pieces(_csv_batches(stream, path))
        elif kind in _NDJSON:
            with pa.input_stream(str(path), compression=compression) as stream:
                yield from _ndjson_pieces(_buffers(stream))
        elif path.is_dir():
            raise InvalidInputError("a folder is not a file: name the files in it", path=path, kind="folder")
        elif not path.exists():
            raise FileNotFoundError
        else:
            raise InvalidInputError(
                f"cannot tell what {path.name!r} holds: give .ndjson, .jsonl, .json, .csv, .parquet or .arrow"
            )
    except FileNotFoundError:
        raise NotFoundError("no such file", path=path) from None
    except pa.ArrowInvalid as error:
        raise InvalidInputError("the file is not readable", path=path, reason=error) from error
    except OSError as error:
        raise StorageError("the file cannot be read", path=path, reason=error) from error


def _csv_batches(stream: pa.NativeFile, path: Path) -> pa.RecordBatchReader:
    """Read CSV with a header; text that is not UTF-8, which Arrow would take for bytes, is an error."""
    reader = pa.csv.open_csv(stream)
    if bad := [field.name for field in reader.schema if pa.types.is_binary(field.type)]:
        raise InvalidInputError("the file is not UTF-8", path=path, column=bad[0], kind="bad_utf8")
    if len(reader.schema) == 1 and (other := _OTHER_COMMAS.search(reader.schema.names[0])):
        raise InvalidInputError(f"columns are parted by {other[0]!r} and not by commas", path=path, kind="bad_csv")
    return reader


def _buffers(stream: pa.NativeFile) -> Iterator[pa.Buffer]:
    while (buffer := stream.read_buffer(PIECE_BYTES)).size:
        yield buffer


def _ndjson_pieces(buffers: Iterator[pa.Buffer]) -> Iterator[tuple[int, memoryview]]:
    """Cut bytes at line ends into pieces, each with the number of its first line; a last line may lack its end."""
    line, rest = 1, b""
    held: tuple[int, bytes] | None = None  # the newest piece, which may be the last and takes the rest along
    for buffer in buffers:
        view = memoryview(buffer)
        start = 0
        while start < len(view):
            end = min(start + PIECE_BYTES, len(view))
            cut = _last_line_end(view, start, end)
            piece = rest + bytes(view[start : cut if cut > start else end])
            if cut > start:
                if held is not None:
                    yield held[0], memoryview(held[1])
                held = line, piece
                line, rest = line + piece.count(b"\n"), b""
                start = cut
            else:
                if len(piece) > MOST_LINE_BYTES:
                    raise InvalidInputError("a line is too long", line=line, limit_bytes=MOST_LINE_BYTES)
                rest, start = piece, end
    if held is not None:
        yield held[0], memoryview(held[1] + rest)
    elif rest:
        yield line, memoryview(rest)


def _last_line_end(view: memoryview, start: int, end: int) -> int:
    """Give the place after the last line end in a window, or its start if there is none."""
    at = bytes(view[start:end]).rfind(b"\n")
    return start if at < 0 else start + at + 1
