"""Read text line by line: the time is found in the line, and the line itself is kept whole.

A line with a time begins an event; lines without one, such as those of a stack trace, belong to the event before
them. Lines before the first time belong to the event that has it. Where no line has a time every line is an event. The
columns are the time, ``line`` (all lines of the event, as they are), and what the shape of the lines has beside that.
An event is cut where it grows beyond a megabyte, so that memory does not grow with the text. It does not know shapes:
see ``line_shapes``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.ingest.instants import NO_TIME
from tidelake.ingest.line_shapes import LineShape
from tidelake.ingest.text_columns import RawRow, TextColumns
from tidelake.ingest.text_encoding import as_utf8, line_pieces
from tidelake.ingest.time_formats import times_in

LINE_COLUMN = "line"
MAX_EVENT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LineReader:
    """How lines are read: their shape and the format of its time, or neither; and what the time's column is called."""

    shape: LineShape | None
    format: str
    time: str
    now_us: int

    def pieces(self, buffers: Iterator[bytes], names: Sequence[str]) -> Iterator[TextColumns]:
        """Read events a piece at a time."""
        held, held_line, last_time = b"", 1, pa.scalar(None, pa.string())
        for line, piece in chain(line_pieces(buffers), [(0, b"")]):
            text = held + as_utf8(piece).replace(b"\r\n", b"\n")
            line = held_line if held else line
            events = self._events(text, is_last=not piece)
            held, held_line = text[events.end :], line + text.count(b"\n", 0, events.end)
            if len(events.texts):
                columns = self._columns(events, last_time)
                if self.shape is not None:
                    last_time = columns[self.time][-1]
                yield self._piece(columns, events.texts, line, names)

    def _events(self, text: bytes, *, is_last: bool) -> _Events:
        """Cut text into events; the last one may go on, and is left unless it is too long."""
        starts, end = line_starts(text), len(text)
        lines = texts_at(text, starts, end)
        if self.shape is None:
            return _Events(lines, None, end)
        fields = pc.extract_regex(lines, self.shape.pattern)
        begins = times_in(pc.struct_field(fields, "ts"), self.format, now_us=self.now_us) != NO_TIME
        is_timed = bool(begins[:1].any())  # whether the first event has a time of its own
        begins[:1] = True
        starts, fields = starts[begins], fields.filter(pa.array(begins))
        if not is_last and len(starts) and end - int(starts[-1]) <= MAX_EVENT_BYTES:
            left = 2 if len(starts) == 2 and not is_timed else 1  # the first waits for the time of the second
            starts, end, fields = starts[:-left], int(starts[-left]), fields[:-left]
        return _Events(texts_at(text, starts, end), fields, end)

    def _columns(self, events: _Events, last_time: pa.Scalar) -> dict[str, pa.Array]:
        """Return the columns of events; one that has no time, as it was cut or is the first, has its neighbour's."""
        columns: dict[str, pa.Array] = {}
        if self.shape is not None:
            for name in ("ts", *self.shape.columns):
                column = pc.struct_field(events.fields, name)
                is_none = pc.is_in(column, pa.array(["", "-"]))
                columns[self.time if name == "ts" else name] = pc.if_else(is_none, pa.scalar(None, pa.string()), column)
            times = columns[self.time]
            if times.null_count:
                times = pc.fill_null_forward(pa.concat_arrays([pa.array([last_time.as_py()], pa.string()), times]))[1:]
                columns[self.time] = pc.fill_null_backward(times)
        columns[LINE_COLUMN] = pc.utf8_rtrim(events.texts, "\n\r")
        return columns

    def _piece(self, columns: dict[str, pa.Array], events: pa.Array, line: int, names: Sequence[str]) -> TextColumns:
        def raw(rows: Sequence[int]) -> list[RawRow]:
            lines = line + np.concatenate([[0], np.cumsum(pc.count_substring(events, "\n").to_numpy())])
            texts = columns[LINE_COLUMN].take(pa.array(rows, pa.int64())).to_pylist()
            return [(int(lines[row]), text) for row, text in zip(rows, texts, strict=True)]

        as_text = [name for name in columns if self.shape is None or name not in self.shape.numbers]
        return TextColumns(columns, len(events), names, raw=raw, as_text=as_text)


@dataclass(frozen=True, slots=True)
class _Events:
    texts: pa.Array
    fields: pa.Array | None  # what the shape found in the first line of each
    end: int  # of the last one in the text


def line_starts(text: bytes) -> npt.NDArray[np.int64]:
    """Return where each line begins that is not empty."""
    data = np.frombuffer(text, dtype=np.uint8)
    ends = np.flatnonzero(data == 10)
    starts = np.concatenate([[0], ends + 1])
    stops = np.concatenate([ends, [len(data)]])
    return np.asarray(starts[stops > starts], dtype=np.int64)


def texts_at(text: bytes, starts: npt.NDArray[np.int64], end: int) -> pa.Array:
    """Return the texts that begin at these places, each up to the next, as an array over the same bytes."""
    offsets = np.append(starts, end).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(text)])
