"""Read any ordinary file as rows of a table: JSON, CSV, Parquet, Arrow, or text, from a path or a pipe.

What a file holds is known by its name (``.ndjson``, ``.csv``, ``.parquet``, …) and otherwise by its first bytes; text
that is neither JSON nor CSV is read line by line. Where its times are is found in the first piece of it. A pipe is
read once, a piece at a time, and never held whole. It does not write anything but the rows it was told to pass over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.parquet

from tidelake.errors import InvalidInputError, NotFoundError, SchemaError, StorageError, TidelakeError
from tidelake.ingest.coerce import (
    MISSING_TIMES,
    Coerced,
    Rules,
    Source,
    TimeRules,
    coerce_source,
    infer_columns,
    require_times,
)
from tidelake.ingest.json.plain_reader import few_rows, require_json
from tidelake.ingest.parquet_files import parquet_batches
from tidelake.ingest.quarantine import Quarantine
from tidelake.ingest.text_encoding import (
    MAX_LINE_BYTES,
    OnRead,
    as_utf8,
    is_text,
    line_pieces,
    line_too_long,
    opened,
)
from tidelake.model.schema import Schema
from tidelake.runtime.deferred import deferred

if TYPE_CHECKING:
    from tidelake.ingest import arrays as from_arrow
    from tidelake.ingest import constants, csv_files, line_shapes, text_lines, time_detection
    from tidelake.ingest import rows as from_rows
    from tidelake.ingest.json import columns as from_lines
    from tidelake.ingest.json import documents
else:  # they bring a compiler, which few lines do without
    from_arrow, from_lines = deferred("tidelake.ingest.arrays"), deferred("tidelake.ingest.json.columns")
    from_rows, constants = deferred("tidelake.ingest.rows"), deferred("tidelake.ingest.constants")
    csv_files, documents = deferred("tidelake.ingest.csv_files"), deferred("tidelake.ingest.json.documents")
    line_shapes, text_lines = deferred("tidelake.ingest.line_shapes"), deferred("tidelake.ingest.text_lines")
    time_detection = deferred("tidelake.ingest.time_detection")

_Piece: TypeAlias = tuple[int, bytes] | Source  # lines of JSON, with the number of the first; or rows

HEAD_BYTES = 8 << 20  # that everything is found in
PIECE_ROWS = 1 << 20  # of Arrow
TIME_COLUMN = "ts"  # of lines, and of times that are found in several columns or inside of one
OTHER_TIME_COLUMN = "event_time"  # where the rows have a column of that name which is something else

_COMPRESSED = (".gz", ".zst", ".bz2")
_JSON, _CSV = (".ndjson", ".jsonl", ".json"), (".csv", ".tsv", ".psv")
_ARROW = (".arrow", ".feather", ".ipc")
JSON, CSV, LINES, PARQUET, ARROW = "json", "csv", "lines", "parquet", "arrow"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a caller knows of a file; everything else is found."""

    time: str | None = None  # a column, two with a plus between, or a path
    time_format: str | None = None
    missing_time: str = "fail"
    lines: bool = False
    delimiter: str | None = None
    constants: Mapping[str, str] = field(default_factory=dict)
    skip_bad: bool = False
    quarantine: Path | None = None

    def __post_init__(self) -> None:
        if self.missing_time not in MISSING_TIMES:
            known = ", ".join(MISSING_TIMES)
            raise InvalidInputError(f"missing_time is one of {known}", found=self.missing_time, kind="bad_option")
        if self.delimiter is not None and len(self.delimiter.encode()) != 1:
            raise InvalidInputError("a delimiter is one character", found=self.delimiter, kind="bad_option")


class FileRows:
    """The rows of one file or pipe."""

    def __init__(
        self, place: Path | BinaryIO, options: ReadOptions | None = None, *, on_read: OnRead | None = None
    ) -> None:
        options = options or ReadOptions()
        self.place, self.options, self.on_read = place, options, on_read
        self.name = str(place) if isinstance(place, Path) else "-"
        self._now_us = time.time_ns() // 1000
        self._rest: Iterator[bytes] | None = None  # of a pipe
        self._kept_sample: tuple[str, Source] | None = None
        self.quarantine: Quarantine | None = None
        if options.skip_bad or options.missing_time == "skip":
            base = place.name if isinstance(place, Path) else "stdin"
            path = options.quarantine or Path(f"{base}.quarantine.ndjson")
            self.quarantine = Quarantine(path, self.name)

    @property
    def is_rereadable(self) -> bool:
        """Whether the rows can be read twice."""
        return isinstance(self.place, Path)

    @cached_property
    def kind(self) -> str:
        """What the file holds."""
        suffix = self._suffix()
        if self.options.lines:
            return LINES
        if suffix == ".parquet" or self._head.startswith(b"PAR1"):
            return PARQUET
        if suffix in _ARROW or self._head.startswith(b"ARROW1"):
            return ARROW
        if self.options.delimiter or suffix in _CSV:
            return CSV
        if suffix in _JSON or documents.is_json(self._head):
            return JSON
        if not is_text(self._head):
            raise InvalidInputError(
                "the file is not text: give .parquet, .arrow, or text such as JSON, CSV or log lines", kind="not_text"
            )
        return CSV if csv_files.looks_like_csv(self._head) else LINES

    def schema(self) -> tuple[Schema, str]:
        """Choose the columns and the time column of a table that is to hold these rows."""
        with self._errors():
            sample = self._sample(self.options.time or TIME_COLUMN)
            source = self._time_of(sample, self.options.time)
            if source is None and self.options.missing_time != "now":
                raise self._no_time(sample)
            if source is not None and self.options.missing_time == "fail":
                require_times(sample, source.times(sample, now_us=self._now_us), source.shown)
            name = TIME_COLUMN if source is None else source.name
            if name not in (source.columns if source else ()) and name in set(sample.names()):
                name = OTHER_TIME_COLUMN
            consumed = set(source.columns) if source is not None and source.name in source.columns else set()
            return infer_columns(sample, time=name, consumed=consumed), name

    def check(self) -> None:
        """Raise what is wrong with the first rows."""
        self._sample()

    def coerced(self, schema: Schema, rules: Rules) -> Iterator[Coerced]:
        """Yield the rows as batches of the schema, or of a wider one from the batch that needed it on."""
        if self.quarantine is not None:
            self.quarantine.restart()
        with self._errors():
            rules = self._with_times(schema, rules)
            self._kept_sample = None
            for piece in self._pieces(schema.names, rules.time or TIME_COLUMN):
                coerced = self._coerced_piece(piece, schema, rules)
                schema = coerced.schema
                yield coerced

    def finish(self) -> None:
        """Keep the rows that were passed over: the others are committed."""
        if self.quarantine is not None:
            self.quarantine.finish()

    def abandon(self) -> None:
        """Leave nothing behind."""
        if self.quarantine is not None:
            self.quarantine.abandon()

    def _with_times(self, schema: Schema, rules: Rules) -> Rules:
        if rules.time is None:
            return rules
        wanted = self.options.time
        sample = self._sample(rules.time)
        if self.kind == LINES or (wanted is None and rules.time in set(sample.names())):
            wanted = rules.time
        source = self._time_of(sample, wanted)
        if source is None and self.options.missing_time == "fail" and sample.rows:
            raise self._no_time(sample)
        native = source is None or (source.is_native(rules.time))
        times = TimeRules(None if native else source, self.options.missing_time, self._now_us, self.quarantine)
        return replace(rules, times=times)

    def _time_of(self, sample: Source, wanted: str | None) -> time_detection.TimeSource | None:
        """Return where the times are; what few ordinary rows have under the usual names needs no compiler."""
        if self.kind == LINES:
            shape, form = self._line_shape
            return None if shape is None else time_detection.TimeSource((wanted or TIME_COLUMN,), form)
        found = time_detection.find_time(sample, now_us=self._now_us, time=wanted, format=self.options.time_format)
        if found is None and wanted is not None:
            names = ", ".join(sample.names())
            raise InvalidInputError(
                "there is no such column to take times from", column=wanted, columns=names, kind="bad_time"
            )
        return found

    def _no_time(self, sample: Source) -> InvalidInputError:
        if self.kind == LINES:
            return InvalidInputError(
                "no time was found in the lines: say how it is written with time_format=, or missing_time=now",
                kind="no_time",
            )
        names = ", ".join(sample.names())
        return InvalidInputError("no time column was found: name it with time=", columns=names, kind="no_time")

    # Pieces

    def _coerced_piece(self, piece: _Piece, schema: Schema, rules: Rules) -> Coerced:
        if isinstance(piece, tuple):
            return self._coerced_json(piece, schema, rules)
        return coerce_source(self._with_constants(piece, schema.names), schema, rules)

    def _coerced_json(self, piece: tuple[int, bytes], schema: Schema, rules: Rules) -> Coerced:
        """Coerce lines of JSON, a few of them without the loops; what is wrong is said by those, with its line."""
        line, data = piece
        if self.quarantine is None and (rows := few_rows(data)) is not None:
            with suppress(TidelakeError):
                few = from_rows.Rows(rows, schema.names)
                return coerce_source(self._with_constants(few, schema.names), schema, rules)
        if not self.options.skip_bad:
            require_json(data, line)
        while True:
            try:
                lines = from_lines.Lines(from_lines.bytes_of(data), schema.names, first_line=line)
                return coerce_source(self._with_constants(lines, schema.names), schema, rules)
            except (InvalidInputError, SchemaError) as error:
                if not self._is_bad_line(error):
                    raise
                data = self._without_bad_lines(data, line, error)

    def _is_bad_line(self, error: TidelakeError) -> bool:
        return self.options.skip_bad and isinstance(error.facts.get("line"), int) and error.kind != "bad_time"

    def _without_bad_lines(self, data: bytes, first: int, error: TidelakeError) -> bytes:
        """Make the lines that are not JSON empty, and keep them elsewhere; each is looked at once."""
        assert self.quarantine is not None
        lines = data.split(b"\n")
        start = 0  # of the lines that are not known to be good
        found: TidelakeError | None = error
        while found is not None:
            at = int(str(found.facts["line"])) - first
            self.quarantine.add(at + first, str(found), lines[at].decode("utf-8", "replace"))
            lines[at], start = b"", at + 1
            found = None
            rest = b"\n".join(lines[start:])
            try:
                if rest.strip():
                    from_lines.Lines(from_lines.bytes_of(rest), (), first_line=first + start)
            except InvalidInputError as next_error:
                if not self._is_bad_line(next_error):
                    raise
                found = next_error
        return b"\n".join(lines)

    def _with_constants(self, rows: Source, names: Sequence[str]) -> Source:
        return constants.WithConstants(rows, self.options.constants, names) if self.options.constants else rows

    def _sample(self, time: str = TIME_COLUMN) -> Source:
        """Return the first rows, to choose from; they are parsed once for choosing, and let go when that is done."""
        with self._errors():
            key = time if self.kind == LINES else ""  # elsewhere the name of the time column changes nothing
            if self._kept_sample is None or self._kept_sample[0] != key:
                self._kept_sample = key, self._parsed_sample(time)
            return self._kept_sample[1]

    def _parsed_sample(self, time: str) -> Source:
        piece = next(self._read_pieces(iter([self._head]), (), time, is_sample=True), None)
        if isinstance(piece, tuple):
            piece = self._json_sample(*piece)
        if piece is None or not piece.rows:
            raise InvalidInputError("no rows to choose a schema from", kind="no_rows")
        return self._with_constants(piece, ())

    def _json_sample(self, line: int, data: bytes) -> Source:
        if not self._is_all:
            if not (cut := data.rfind(b"\n") + 1):
                raise line_too_long(line)
            data = data[:cut]  # the last line goes on beyond the sample
        if (rows := few_rows(data)) is not None:
            with suppress(TidelakeError):
                return from_rows.Rows(rows, ())
        if not self.options.skip_bad:
            require_json(data, line)
        while True:
            try:
                return from_lines.Lines(from_lines.bytes_of(data), (), first_line=line)
            except InvalidInputError as error:
                if not self._is_bad_line(error):
                    raise
                lines = data.split(b"\n")
                lines[int(str(error.facts["line"])) - line] = b""
                data = b"\n".join(lines)

    def _pieces(self, names: Sequence[str], time: str) -> Iterator[_Piece]:
        if self.kind in (PARQUET, ARROW):
            yield from self._batches(names)
            return
        with self._text() as buffers:
            yield from self._read_pieces(buffers, names, time)

    def _read_pieces(
        self, buffers: Iterator[bytes], names: Sequence[str], time: str, *, is_sample: bool = False
    ) -> Iterator[_Piece]:
        match self.kind:
            case "json":
                yield from line_pieces(documents.as_lines(buffers, self._json_shape))
            case "csv":
                yield from csv_files.csv_pieces(buffers, self._dialect, names, on_bad=self._on_bad(is_sample))
            case "lines":
                yield from self._line_reader(time).pieces(buffers, names)
            case _:
                yield from self._batches(names)

    def _on_bad(self, is_sample: bool) -> Callable[[int, str, str], None] | None:
        if not self.options.skip_bad or self.quarantine is None:
            return None
        return (lambda line, reason, text: None) if is_sample else self.quarantine.add

    def _batches(self, names: Sequence[str]) -> Iterator[Source]:
        place = self.place if isinstance(self.place, Path) else None
        if place is None:
            raise InvalidInputError("Parquet and Arrow are read from files, not from standard input", kind="bad_input")
        if self.kind == PARQUET:
            with pa.parquet.ParquetFile(place) as file:
                for group in range(file.num_row_groups):
                    for batch in parquet_batches(file, [group]):
                        yield from_arrow.Arrays(batch, names, Rules().overflow)
                    chunks = file.metadata.row_group(group)
                    self._tell(sum(chunks.column(at).total_compressed_size for at in range(chunks.num_columns)))
            return
        with pa.memory_map(str(place)) as mapped:
            reader = pa.ipc.open_file(mapped)
            for at in range(reader.num_record_batches):
                batch = reader.get_batch(at)
                for start in range(0, batch.num_rows, PIECE_ROWS):
                    yield from_arrow.Arrays(batch.slice(start, PIECE_ROWS), names, Rules().overflow)
                self._tell(batch.nbytes)

    def _tell(self, count: int) -> None:
        if self.on_read is not None:
            self.on_read(count)

    # What was found in the first bytes

    def _suffix(self) -> str:
        if not isinstance(self.place, Path):
            return ""
        suffixes = [suffix.lower() for suffix in self.place.suffixes]
        return next((suffix for suffix in suffixes[:-3:-1] if suffix not in _COMPRESSED), "")

    @cached_property
    def _head(self) -> bytes:
        """The first bytes of the text; of a pipe, they are kept and given again."""
        with self._errors():
            if isinstance(self.place, Path):
                if self.place.is_dir():
                    raise InvalidInputError("a folder is not a file: name the files in it", kind="folder")
                with opened(self.place) as buffers:
                    return self._begin(buffers)
            buffers = opened(self.place, self._tell).__enter__()
            head = self._begin(buffers)
            self._rest = buffers
            return head

    def _begin(self, buffers: Iterator[bytes]) -> bytes:
        held: list[bytes] = []
        wanted, size, is_cut = HEAD_BYTES, 0, False
        while size < wanted:
            if not (data := next(buffers, b"")):
                return b"".join(held)
            held.append(data)
            size += len(data)
            is_cut = is_cut or b"\n" in data
            is_line = held[0].lstrip()[:1] == b"{" and not is_cut  # which may be longer
            wanted = MAX_LINE_BYTES if is_line else HEAD_BYTES
        self._is_all = False
        return b"".join(held)

    _is_all = True  # whether the head is the whole file

    @contextmanager
    def _text(self) -> Iterator[Iterator[bytes]]:
        if isinstance(self.place, Path):
            with opened(self.place, self.on_read) as buffers:
                yield buffers
            return
        head, rest = self._head, self._rest
        if rest is None:
            raise InvalidInputError("standard input can be read once", kind="read_once")
        self._rest = None
        yield chain([head], rest)

    @cached_property
    def _json_shape(self) -> documents.Shape:
        return documents.find_shape(self._head) or documents.Shape(documents.LINES)

    @cached_property
    def _dialect(self) -> csv_files.Dialect:
        return csv_files.find_dialect(self._head, separator=self.options.delimiter)

    def _line_reader(self, time: str) -> text_lines.LineReader:
        shape, form = self._line_shape
        return text_lines.LineReader(shape, form, time, self._now_us)

    @cached_property
    def _line_shape(self) -> tuple[line_shapes.LineShape | None, str]:
        if self.options.time_format is not None:
            return line_shapes.shape_of_format(self.options.time_format), self.options.time_format
        text = as_utf8(self._head.replace(b"\r\n", b"\n"))
        lines = text_lines.texts_at(text, text_lines.line_starts(text), len(text))
        found = line_shapes.find_shape(lines, now_us=self._now_us) if len(lines) else None
        return found or (None, "")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise NotFoundError("no such file", path=self.name) from None
        except (InvalidInputError, SchemaError) as error:
            if "path" in error.facts:
                raise
            raise type(error)(error.message, kind=error.kind, **self._located(error), path=self.name) from error
        except pa.ArrowInvalid as error:
            raise InvalidInputError("the file is not readable", path=self.name, reason=error) from error
        except OSError as error:
            raise StorageError("the file cannot be read", path=self.name, reason=error) from error

    def _located(self, error: TidelakeError) -> dict[str, Any]:
        """Return the facts of an error; an element of a document has a number, and no line."""
        facts = dict(error.facts)
        if "line" in facts and self.__dict__.get("kind") == JSON and self._json_shape.kind != documents.LINES:
            facts = {"element" if name == "line" else name: value for name, value in facts.items() if name != "column"}
        return facts
