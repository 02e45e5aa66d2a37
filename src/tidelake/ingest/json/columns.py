"""Turn the values of JSON lines into Arrow arrays of a table's types, compiled.

``Lines`` gives the values of one key as one type: those that fit. The others it notes as spilled, and writes them at
the end as one CBOR map a row. Buffers are written once, in the form Arrow keeps. What fits what is said in ``coerce``.
It does not choose which keys become columns.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic.values import real_text
from tidelake.errors import InvalidInputError
from tidelake.ingest.instants import NO_TIME, time_of_decimal, time_of_int, time_of_text, times_of_texts
from tidelake.ingest.json.shred import Bytes, Shredded, lines_of, shred
from tidelake.ingest.json.text import (
    BIG,
    FALSE,
    INT,
    LIST,
    REAL,
    TEXT,
    TRUE,
    WIDE,
    copy_bytes,
    copy_text,
    scan_number,
)
from tidelake.ingest.json.to_cbor import MAP_HEAD, TEXT_HEAD, put_head, put_number, skip_blanks
from tidelake.ingest.rows import (
    SHOWN_BYTES,
    Flags,
    binary_array,
    double_of,
    fixed_array,
    int_array,
    long_array,
    vector_array,
    vector_of,
)
from tidelake.logical import fitted
from tidelake.model.schema import DataType
from tidelake.runtime.compiling import allocating, compiled, part

MAX_OFFSET = (1 << 31) - 1  # of Arrow's strings and binaries

_U = np.uint64
_LONG, _REAL = DataType("long"), DataType("real")
_NUMBERS = 1 << INT | 1 << WIDE | 1 << BIG | 1 << REAL
_TYPES = {
    1 << INT: _LONG,
    1 << TEXT: DataType("string"),
    1 << FALSE: DataType("bool"),
    1 << TRUE: DataType("bool"),
    1 << FALSE | 1 << TRUE: DataType("bool"),
}


class Lines:
    """The values of some lines of JSON, by key; ``names`` are those of the table's columns."""

    def __init__(self, data: Bytes, names: tuple[str, ...], *, first_line: int = 1) -> None:
        self._shredded = shred(lines_of(data), names, first_line=first_line)
        self._known, self._first_line = names, first_line
        self._spilled = np.zeros(len(self._shredded.entries), dtype=np.bool_)
        self._keys: dict[str, int] = {}

    @property
    def rows(self) -> int:
        return self._shredded.rows

    @property
    def spilled(self) -> int:
        """How many values were spilled."""
        return int(np.count_nonzero(self._spilled))

    def names(self) -> Iterator[str]:
        """Yield the keys that have a value somewhere: the columns' first, then others in the order of their first."""
        keys = np.flatnonzero(np.diff(self._shredded.starts))
        known = int(np.searchsorted(keys, len(self._known)))
        for key in keys[:known].tolist():
            self._keys[self._known[key]] = key
            yield self._known[key]
        others = keys[known:]
        for key in others[np.argsort(self._shredded.order[self._shredded.starts[others]])].tolist():
            name = self._shredded.name(key)
            self._keys[name] = key
            yield name

    def fold(self, name: str, into: str) -> bool:
        """Return all values of a key to another; not where a row has both."""
        held, key, to = self._shredded, self._keys[name], self._key_of(into)
        rows = held.entries["row"]
        moved, there = held.of_key(key), held.of_key(to)
        if len(np.intersect1d(rows[moved], rows[there])):
            return False
        entries, kinds = held.entries.copy(), held.kinds.copy()
        entries["key"][moved] = to
        kinds[to], kinds[key] = kinds[to] | kinds[key], 0
        groups = [held.of_key(at) for at in range(len(held.starts) - 1)]
        groups[key], united = groups[key][:0], np.concatenate((there, moved))
        groups[to] = united[np.argsort(rows[united], kind="stable")]
        starts = np.concatenate(([0], np.cumsum([len(group) for group in groups]))).astype(held.starts.dtype)
        order = np.concatenate([*groups, held.order[held.starts[-1] :]])
        self._shredded = replace(held, entries=entries, order=order, starts=starts, kinds=kinds)
        self._keys[into] = to
        return True

    def _key_of(self, name: str) -> int:
        return self._keys[name] if name in self._keys else self._known.index(name)

    def proposed(self, name: str) -> DataType | None:
        """Return the type that holds all values of a key, if they are scalars and there is one."""
        kinds = int(self._shredded.kinds[self._keys[name]])
        if kinds & 1 << REAL and not kinds & ~_NUMBERS:
            return _REAL
        return _TYPES.get(kinds)

    def has_reals(self, name: str) -> bool:
        """Whether a key has a number that is not whole, or is written as such."""
        return bool(self._shredded.kinds[self._keys[name]] & 1 << REAL)

    def spill_others(self, kept: Collection[str]) -> None:
        """Send all values of all other keys to the overflow column."""
        is_other = np.ones(len(self._shredded.keys) + 1, dtype=np.bool_)
        is_other[[self._keys[name] for name in kept]] = False
        is_other[-1] = False  # where entries that do not count point to
        self._spilled |= is_other[self._shredded.entries["key"]]

    def where(self, row: int) -> dict[str, int]:
        """Return where a row is, for a message."""
        return {"line": self._shredded.line(row) + self._first_line - 1}

    def raw(self, rows: Sequence[int]) -> list[tuple[int, str]]:
        """Return the numbers and the texts of the lines that rows came from."""
        lines = enumerate(self._shredded.data.tobytes().split(b"\n"), start=self._first_line)
        held = [(number, line) for number, line in lines if line.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r")]
        return [(held[row][0], held[row][1].decode("utf-8", "replace")) for row in rows]

    def shown(self, name: str, row: int) -> str:
        """Show what a row has under a key, for a message."""
        picks = self._shredded.of_key(self._keys[name]) if name in self._keys else np.zeros(0, dtype=np.int64)
        for entry in self._shredded.entries[picks]:
            if entry["row"] == row:
                text = self._shredded.data[entry["start"] : entry["end"]].tobytes()
                return repr(text[:SHOWN_BYTES].decode("utf-8", "replace"))
        return "none"

    def column(self, name: str, kind: DataType) -> pa.Array:
        """Return the values of a key as this type, or as long where one is too large for an int; spill the others."""
        shredded, spilled = self._shredded, self._spilled
        data, entries, rows = shredded.data, shredded.entries, shredded.rows
        picks = shredded.of_key(self._keys[name])
        valid = np.zeros(rows, dtype=np.bool_)
        if kind.logical is not None:
            array, bad = fitted(self.column(name, DataType("dynamic")), kind)
            spilled[picks[bad[entries["row"][picks]]]] = True
            return array
        match kind.kind:
            case "int" | "long":
                numbers = np.zeros(rows, dtype=np.int64)
                is_wide = _fill_longs(entries, picks, numbers, valid, spilled)
                return long_array(numbers, valid) if is_wide or kind == _LONG else int_array(numbers, valid)
            case "real":
                reals = np.zeros(rows, dtype=np.float64)
                _fill_reals(entries, picks, reals, valid, spilled)
                if shredded.kinds[self._keys[name]] & (1 << WIDE | 1 << BIG):
                    _add_whole_doubles(shredded, picks, reals, valid, spilled)
                return fixed_array(kind.arrow, reals, valid)
            case "bool":
                bits = np.zeros(rows, dtype=np.bool_)
                _fill_bools(entries, picks, bits, valid, spilled)
                return fixed_array(kind.arrow, np.packbits(bits, bitorder="little"), valid)
            case "timestamp":
                times = np.zeros(rows, dtype=np.int64)
                _fill_times(data, entries, picks, times, valid, spilled)
                _add_escaped_times(shredded, picks, times, valid, spilled)
                return fixed_array(kind.arrow, times, valid)
            case "string":
                offsets, letters = _texts(data, entries, picks, valid, spilled)
                texts = binary_array(kind.arrow, offsets, letters, valid)
                has_reals = shredded.kinds[self._keys[name]] & 1 << REAL
                return _with_reals(texts, entries, picks, spilled) if has_reals else texts
            case "dynamic":
                out = _room(_values_size(entries, picks))
                offsets, letters = _dynamics(data, shredded.cbor, entries, picks, valid, out)
                return binary_array(kind.arrow, offsets, letters, valid)
            case "vector":
                return self._vectors(name, kind, picks, valid)

    def overflow(self) -> pa.Array:
        """Return one CBOR map a row of the spilled values under their keys, null where there is none."""
        shredded = self._shredded
        entries, keys, letters = shredded.entries, shredded.keys, shredded.letters
        ends = np.append(keys["at"], keys["at"][-1:] + keys["size"][-1:]).astype(np.int32)
        texts = pa.Array.from_buffers(pa.binary(), len(keys), [None, pa.py_buffer(ends), pa.py_buffer(letters)])
        ranks = pc.array_sort_indices(texts).to_numpy().astype(np.int64)  # a key's CBOR sorts as canonical maps do
        per_row = np.zeros(self.rows + 1, dtype=np.int64)
        out = _room(_count_spilled(entries, keys, self._spilled, per_row))
        picks = np.empty(per_row[-1], dtype=np.int64)
        _arrange_spilled(entries, shredded.order, shredded.starts, ranks, self._spilled, per_row, picks)
        valid = np.zeros(self.rows, dtype=np.bool_)
        offsets, maps = _maps(shredded.data, shredded.cbor, entries, keys, letters, picks, valid, out)
        return binary_array(pa.binary(), offsets, maps, valid)

    def _vectors(self, name: str, kind: DataType, picks: Any, valid: Flags) -> pa.Array:
        data, entries = self._shredded.data, self._shredded.entries
        dimension = cast(int, kind.dimension)
        values = np.zeros((self.rows, dimension), dtype=np.float32)
        done = -1
        while (done := int(_fill_vectors(data, entries, picks, done + 1, values, valid))) >= 0:
            entry = entries[picks[done]]  # numbers beyond 64 bits, or not a vector of this column
            quotes = int(entry["kind"] == TEXT)
            found = json.loads(data[entry["start"] - quotes : entry["end"] + quotes].tobytes())
            row = int(entry["row"])
            values[row] = vector_of(found, dimension, name, self.where(row))
            valid[row] = True
        return vector_array(kind.arrow, values, valid)


def bytes_of(data: bytes | memoryview | pa.Buffer) -> npt.NDArray[np.uint8]:
    """Return bytes as the loops take them."""
    return np.frombuffer(data, dtype=np.uint8) if len(memoryview(data)) else np.zeros(0, dtype=np.uint8)


def _room(size: int) -> npt.NDArray[np.uint8]:
    if size > MAX_OFFSET:
        raise InvalidInputError("too much data for one call", bytes=size, limit=MAX_OFFSET, kind="too_large")
    return np.empty(size, dtype=np.uint8)


def _add_whole_doubles(shredded: Shredded, picks: Any, reals: Any, valid: Flags, spilled: Flags) -> None:
    """Keep the integers beyond 63 bits that a double holds exactly, as some writers print large doubles."""
    entries = shredded.entries
    kinds = entries["kind"][picks]
    for pick in picks[(kinds == WIDE) | (kinds == BIG)].tolist():
        near = double_of(int(shredded.data[entries["start"][pick] : entries["end"][pick]].tobytes()))
        if near is not None:
            row = entries["row"][pick]
            reals[row], valid[row], spilled[pick] = near, True, False


def _add_escaped_times(shredded: Shredded, picks: Any, times: Any, valid: Flags, spilled: Flags) -> None:
    """Keep the times whose text has escapes, which nobody writes."""
    entries = shredded.entries[picks[spilled[picks]]]
    for pick in picks[spilled[picks]][
        (entries["kind"] == TEXT) & (entries["word"] < entries["end"] - entries["start"])
    ]:
        entry = shredded.entries[pick]
        text = json.loads(shredded.data[entry["start"] - 1 : entry["end"] + 1].tobytes())
        time = times_of_texts(pa.array([text]))[0]
        if time != NO_TIME:
            times[entry["row"]], valid[entry["row"]], spilled[pick] = time, True, False


@compiled
def _fill_longs(entries: Any, picks: Any, values: Any, valid: Any, spilled: Any) -> Any:
    """Fill whole numbers, and say whether one needs more than 32 bits."""
    is_wide = False
    for pick in picks:
        if entries[pick].kind == INT:
            number, row = entries[pick].word, entries[pick].row
            values[row], valid[row] = number, True
            is_wide = is_wide or number != np.int64(np.int32(number))
        else:
            spilled[pick] = True
    return is_wide


@compiled
def _fill_reals(entries: Any, picks: Any, values: Any, valid: Any, spilled: Any) -> None:
    for pick in picks:
        row, word = entries[pick].row, np.int64(entries[pick].word)
        if entries[pick].kind == REAL:
            values[row], valid[row] = word.view(np.float64), True
            continue
        near = np.float64(word)
        if entries[pick].kind == INT and near < 2.0**63 and np.int64(near) == word:
            values[row], valid[row] = near, True
        else:
            spilled[pick] = True


@compiled
def _fill_bools(entries: Any, picks: Any, values: Any, valid: Any, spilled: Any) -> None:
    for pick in picks:
        row, kind = entries[pick].row, entries[pick].kind
        if kind in (TRUE, FALSE):
            values[row], valid[row] = kind == TRUE, True
        else:
            spilled[pick] = True


@compiled
def _fill_times(data: Any, entries: Any, picks: Any, values: Any, valid: Any, spilled: Any) -> None:
    for pick in picks:
        start, end, word = np.int64(entries[pick].start), np.int64(entries[pick].end), np.int64(entries[pick].word)
        kind, time = entries[pick].kind, NO_TIME
        if kind == TEXT and word == end - start:
            time = time_of_text(data, start, end)
        elif kind == INT:
            time = time_of_int(word)
        elif kind == REAL and np.isfinite(word.view(np.float64)):
            time = time_of_decimal(data, start, end, abs(word.view(np.float64)))
        if time == NO_TIME:
            spilled[pick] = True
        else:
            row = entries[pick].row
            values[row], valid[row] = time, True


def _with_reals(texts: pa.Array, entries: Any, picks: Any, spilled: Flags) -> pa.Array:
    """Add the doubles among the values as the text that JSON has for them."""
    reals = picks[entries["kind"][picks] == REAL]
    spilled[reals] = False
    several = [real_text(real) for real in entries["word"][reals].astype(np.int64).view(np.float64).tolist()]
    others = np.zeros(len(texts), dtype=np.int64)
    others[entries["row"][reals]] = np.arange(1, len(reals) + 1)
    return pc.coalesce(texts, pa.array([None, *several], pa.string()).take(pa.array(others)))


@allocating
def _texts(data: Any, entries: Any, picks: Any, valid: Any, spilled: Any) -> Any:
    """Copy texts, and whole numbers and booleans as they are written; doubles are left to the caller."""
    size = 0
    for pick in picks:
        kind = entries[pick].kind
        if kind == TEXT:
            size += entries[pick].word
        elif kind in (INT, WIDE, BIG, TRUE, FALSE):
            size += entries[pick].end - entries[pick].start
    offsets, letters = np.empty(len(valid) + 1, dtype=np.int32), np.empty(size, dtype=np.uint8)
    to, next_row = np.int64(0), np.int64(0)
    for pick in picks:
        kind = entries[pick].kind
        if kind not in (TEXT, INT, WIDE, BIG, TRUE, FALSE):
            spilled[pick] = True
            continue
        row = np.int64(entries[pick].row)
        while next_row <= row:
            offsets[next_row] = to
            next_row += 1
        start, end = np.int64(entries[pick].start), np.int64(entries[pick].end)
        if kind == TEXT:
            to = copy_text(data, start, end, np.int64(entries[pick].word), letters, to)
        else:
            is_below_zero = kind == INT and entries[pick].word == 0 and data[_U(start)] == 45  # -0 is 0
            start += is_below_zero
            to = copy_bytes(data, start, end - start, letters, to)
        valid[row] = True
    offsets[next_row:] = to
    return offsets, letters


@compiled
def _values_size(entries: Any, picks: Any) -> Any:
    """Return room enough for the CBOR of these values."""
    size = np.int64(0)
    for pick in picks:
        size += _value_size(entries[pick])
    return size


@part
def _value_size(entry: Any) -> Any:
    if entry.kind == TEXT:
        return np.int64(entry.word) + 9
    return np.int64(entry.word) & 0xFFFF_FFFF if entry.kind > TEXT or entry.kind == BIG else np.int64(9)


@part
def _put_value(data: Any, cbor: Any, entry: Any, out: Any, to: Any) -> Any:
    """Write one value as canonical CBOR, and give the place after it."""
    kind, word = np.int64(entry.kind), np.int64(entry.word)
    if kind == TEXT:
        start, end = np.int64(entry.start), np.int64(entry.end)
        return copy_text(data, start, end, word, out, put_head(out, to, TEXT_HEAD, _U(word)))
    if kind > TEXT or kind == BIG:
        return copy_bytes(cbor, word >> 32, word & 0xFFFF_FFFF, out, to)
    if kind in (TRUE, FALSE):
        out[_U(to)] = 0xF5 if kind == TRUE else 0xF4
        return to + 1
    return put_number(out, to, kind, word, data[_U(entry.start)] == 45)


@allocating
def _dynamics(data: Any, cbor: Any, entries: Any, picks: Any, valid: Any, out: Any) -> Any:
    offsets = np.empty(len(valid) + 1, dtype=np.int32)
    to, next_row = np.int64(0), np.int64(0)
    for pick in picks:
        row = np.int64(entries[pick].row)
        while next_row <= row:
            offsets[next_row] = to
            next_row += 1
        to = _put_value(data, cbor, entries[pick], out, to)
        valid[row] = True
    offsets[next_row:] = to
    return offsets, out[:to]


@compiled
def _fill_vectors(data: Any, entries: Any, picks: Any, first: Any, values: Any, valid: Any) -> Any:
    """Fill vectors from one place in ``picks`` on, and give the place of the first that is not plain, or -1."""
    for place in range(first, len(picks)):
        entry = entries[picks[place]]
        if entry.kind != LIST:
            return place
        at, dimension = skip_blanks(data, np.int64(entry.start) + 1), values.shape[1]
        for i in range(dimension):
            end, kind, word = scan_number(data, at)
            if kind != REAL and kind != INT:
                return place
            near = np.int64(word).view(np.float64) if kind == REAL else np.float64(word)
            narrow = np.float32(near)
            if np.isinf(narrow):
                return place
            values[entry.row, i] = narrow
            at = skip_blanks(data, end)
            if data[_U(at)] != (44 if i + 1 < dimension else 93):
                return place
            if i + 1 < dimension:
                at = skip_blanks(data, at + 1)
        valid[entry.row] = True
    return -1


@compiled
def _count_spilled(entries: Any, keys: Any, spilled: Any, per_row: Any) -> Any:
    """Count the spilled values of each row, summed up, and give room enough for their maps."""
    size = np.int64(9) * len(per_row)
    for i in range(len(entries)):
        if spilled[i]:
            per_row[entries[i].row + 1] += 1
            size += keys[entries[i].key].size + _value_size(entries[i])
    for row in range(1, len(per_row)):
        per_row[row] += per_row[row - 1]
    return size


@allocating
def _arrange_spilled(entries: Any, order: Any, starts: Any, ranks: Any, spilled: Any, per_row: Any, picks: Any) -> None:
    """Order the spilled entries by row and then by the rank of their key."""
    free = per_row.copy()
    for key in ranks:
        for i in range(starts[key], starts[key + 1]):
            pick = order[i]
            if spilled[pick]:
                row = entries[pick].row
                picks[free[row]] = pick
                free[row] += 1


@allocating
def _maps(data: Any, cbor: Any, entries: Any, keys: Any, letters: Any, picks: Any, valid: Any, out: Any) -> Any:
    """Write one map for each run of entries of the same row."""
    offsets = np.empty(len(valid) + 1, dtype=np.int32)
    to, next_row, place = np.int64(0), np.int64(0), 0
    while place < len(picks):
        row, last = np.int64(entries[picks[place]].row), place
        while last < len(picks) and entries[picks[last]].row == row:
            last += 1
        while next_row <= row:
            offsets[next_row] = to
            next_row += 1
        to = put_head(out, to, MAP_HEAD, _U(last - place))
        for pick in picks[place:last]:
            key = entries[pick].key
            to = copy_bytes(letters, keys[key].at, np.int64(keys[key].size), out, to)
            to = _put_value(data, cbor, entries[pick], out, to)
        valid[row] = True
        place = last
    offsets[next_row:] = to
    return offsets, out[:to]
